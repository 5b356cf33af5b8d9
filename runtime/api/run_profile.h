// A session's profile as the public headers have it. Private to runtime/api.
#ifndef PLUMB_RUNTIME_API_RUN_PROFILE_H_
#define PLUMB_RUNTIME_API_RUN_PROFILE_H_

#include "plumb/profile.h"
#include "runtime/session/step_profile.h"

namespace plumb {

Profile ToPublic(const StepProfile& profile);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_API_RUN_PROFILE_H_
