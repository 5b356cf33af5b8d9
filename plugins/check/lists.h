// The lists that AllChecks() is put together from, one a file. Stateless.
#ifndef PLUMB_PLUGINS_CHECK_LISTS_H_
#define PLUMB_PLUGINS_CHECK_LISTS_H_

#include <vector>

#include "plugins/check/check.h"

namespace plumb::check {

std::vector<Check> ElfChecks();          // E1-E6: the file, and what loading it does
std::vector<Check> MetadataChecks();     // M1-M6: what the norm says of itself
std::vector<Check> NumericChecks();      // N1-N9: values, gradients, memory
std::vector<Check> ModeChecks();         // N10-N20: training, aliasing, element types, odd data
std::vector<Check> RobustnessChecks();   // R1-R7: allocation, state, failures
std::vector<Check> ExploringChecks();    // X1-X7: points drawn from a space of calls
std::vector<Check> PerformanceChecks();  // P1, P2

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_LISTS_H_
