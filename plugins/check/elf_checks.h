// Checks of level 1 on the file and on loading it: E1 to E6.
#ifndef PLUMB_PLUGINS_CHECK_ELF_CHECKS_H_
#define PLUMB_PLUGINS_CHECK_ELF_CHECKS_H_

#include "plugins/check/check.h"

namespace plumb::check {

void CheckNote(const Subject& subject, Report* report);            // E1
void CheckExports(const Subject& subject, Report* report);         // E2
void CheckDynamicSection(const Subject& subject, Report* report);  // E3
void CheckLoads(const Subject& subject, Report* report);           // E4
void CheckLoadEffects(const Subject& subject, Report* report);     // E5
void CheckLoadTime(const Subject& subject, Report* report);        // E6

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_ELF_CHECKS_H_
