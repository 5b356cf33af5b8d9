// A profile of plumb.h as the public headers have it. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_RUN_PROFILE_H_
#define PLUMB_RUNTIME_TOOLS_RUN_PROFILE_H_

#include "plumb.h"
#include "runtime/tools/handles.h"
#include "runtime/tools/profile.h"

namespace plumb {

// `row_of`: plumb_trainer_profile_row, or the session's. Of no steps where none was turned on.
template <class Function, class T>
Profile ReadProfile(Function row_of, T* handle) {
  Profile profile;
  auto row = Sized<plumb_profile_row>();
  for (size_t i = 0; row_of(handle, i, &row, nullptr) == PLUMB_OK; ++i) {
    if (i == 0) {
      profile.steps = row.runs;
      profile.seconds = row.seconds;
    } else {
      profile.rows.push_back(
          {row.name, row.in_graph == 1, row.runs, row.seconds, row.flops, row.bytes});
    }
  }
  return profile;
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_RUN_PROFILE_H_
