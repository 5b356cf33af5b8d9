// A session's profile as the public headers have it. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_RUN_PROFILE_H_
#define PLUMB_RUNTIME_TOOLS_RUN_PROFILE_H_

#include "runtime/session/step_profile.h"
#include "runtime/tools/profile.h"

namespace plumb {

Profile ToPublic(const StepProfile& profile);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_RUN_PROFILE_H_
