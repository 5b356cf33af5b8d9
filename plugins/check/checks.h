// Checks that are not rules at points (rules.h): of the file, of what the norm says of itself, and
// of its speed. all_checks.cc lists them.
#ifndef PLUMB_PLUGINS_CHECK_CHECKS_H_
#define PLUMB_PLUGINS_CHECK_CHECKS_H_

#include "plugins/check/check.h"

namespace plumb::check {

void CheckNote(const Subject& subject, Report* report);            // E1
void CheckExports(const Subject& subject, Report* report);         // E2
void CheckDynamicSection(const Subject& subject, Report* report);  // E3
void CheckLoads(const Subject& subject, Report* report);           // E4
void CheckLoadEffects(const Subject& subject, Report* report);     // E5
void CheckLoadTime(const Subject& subject, Report* report);        // E6
void CheckMetadata(const Subject& subject, Report* report);        // M1
void CheckSchema(const Subject& subject, Report* report);          // M2
void CheckBadAttributes(const Subject& subject, Report* report);   // M3
void CheckLayout(const Subject& subject, Report* report);          // M4
void CheckExtensions(const Subject& subject, Report* report);      // M5, what no rule sees
void CheckFill(const Subject& subject, Report* report);            // M6
void CheckFarRows(const Subject& subject, Report* report);         // N8, what no rule sees
void CheckDenormals(const Subject& subject, Report* report);       // N15
void CheckSecondInput(const Subject& subject, Report* report);     // N18, what no rule sees
void CheckBandwidth(const Subject& subject, Report* report);       // P1
void CheckOneRow(const Subject& subject, Report* report);          // P2

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_CHECKS_H_
