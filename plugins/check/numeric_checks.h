// Checks of level 2: do the numbers of a norm mean what the ABI says they mean? N1 to N9.
#ifndef PLUMB_PLUGINS_CHECK_NUMERIC_CHECKS_H_
#define PLUMB_PLUGINS_CHECK_NUMERIC_CHECKS_H_

#include <vector>

#include "plugins/check/check.h"

namespace plumb::check {

void CheckForward(const Subject& subject, Report* report);       // N1
void CheckGradient(const Subject& subject, Report* report);      // N2
void CheckAccumulation(const Subject& subject, Report* report);  // N3
void CheckRowsAlone(const Subject& subject, Report* report);     // N4
void CheckDeterminism(const Subject& subject, Report* report);   // N5
void CheckConcurrency(const Subject& subject, Report* report);   // N6
void CheckBounds(const Subject& subject, Report* report);        // N7
void CheckAlignment(const Subject& subject, Report* report);     // N8
void CheckFarRows(const Subject& subject, Report* report);       // N8, rows gigabytes apart
void CheckShapes(const Subject& subject, Report* report);        // N9

// The nine above, in order.
std::vector<Check> NumericChecks();

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_NUMERIC_CHECKS_H_
