// Checks of level 3: does a norm keep the rules that no number shows? R1 to R7.
#ifndef PLUMB_PLUGINS_CHECK_ROBUSTNESS_CHECKS_H_
#define PLUMB_PLUGINS_CHECK_ROBUSTNESS_CHECKS_H_

#include "plugins/check/check.h"

namespace plumb::check {

void CheckNoAllocation(const Subject& subject, Report* report);        // R1
void CheckNoState(const Subject& subject, Report* report);             // R2
void CheckAllocationFailure(const Subject& subject, Report* report);   // R3
void CheckLeaks(const Subject& subject, Report* report);               // R4
void CheckExceptions(const Subject& subject, Report* report);          // R5
void CheckFloatingPointState(const Subject& subject, Report* report);  // R6
void CheckReturns(const Subject& subject, Report* report);             // R7

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_ROBUSTNESS_CHECKS_H_
