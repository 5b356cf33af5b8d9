// Checks of level 2: does a norm mean the same in every mode and on every kind of number? N10 to
// N17.
#ifndef PLUMB_PLUGINS_CHECK_MODE_CHECKS_H_
#define PLUMB_PLUGINS_CHECK_MODE_CHECKS_H_

#include "plugins/check/check.h"

namespace plumb::check {

void CheckTrainAndEval(const Subject& subject, Report* report);      // N10
void CheckInPlace(const Subject& subject, Report* report);           // N11
void CheckTypes(const Subject& subject, Report* report);             // N12
void CheckHardRows(const Subject& subject, Report* report);          // N13
void CheckNotANumber(const Subject& subject, Report* report);        // N14
void CheckDenormals(const Subject& subject, Report* report);         // N15
void CheckStatistics(const Subject& subject, Report* report);        // N16
void CheckDenormalOperands(const Subject& subject, Report* report);  // N17
void CheckSecondInput(const Subject& subject, Report* report);       // N18
void CheckHeads(const Subject& subject, Report* report);             // N19
void CheckContext(const Subject& subject, Report* report);           // N20

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_MODE_CHECKS_H_
