// Checks of level 1 on a norm's metadata: M1 to M5.
#ifndef PLUMB_PLUGINS_CHECK_METADATA_CHECKS_H_
#define PLUMB_PLUGINS_CHECK_METADATA_CHECKS_H_

#include "plugins/check/check.h"

namespace plumb::check {

void CheckMetadata(const Subject& subject, Report* report);       // M1
void CheckSchema(const Subject& subject, Report* report);         // M2
void CheckBadAttributes(const Subject& subject, Report* report);  // M3
void CheckLayout(const Subject& subject, Report* report);         // M4
void CheckTimeMachine(const Subject& subject, Report* report);    // M5
void CheckFill(const Subject& subject, Report* report);           // M6

// [a-z][a-z0-9_]*, at most 63 characters: what attributes and tensors are called.
bool IsName(const char* name);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_METADATA_CHECKS_H_
