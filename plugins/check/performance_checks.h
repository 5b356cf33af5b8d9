// Checks of level 4: how fast is a norm? P1 and P2. They report, and warn where something must be
// wrong; they never fail a norm.
#ifndef PLUMB_PLUGINS_CHECK_PERFORMANCE_CHECKS_H_
#define PLUMB_PLUGINS_CHECK_PERFORMANCE_CHECKS_H_

#include "plugins/check/check.h"

namespace plumb::check {

void CheckBandwidth(const Subject& subject, Report* report);  // P1
void CheckOneRow(const Subject& subject, Report* report);     // P2

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_PERFORMANCE_CHECKS_H_
