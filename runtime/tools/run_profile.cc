#include "runtime/tools/run_profile.h"

namespace plumb {

Profile ToPublic(const StepProfile& profile) {
  Profile out;
  out.steps = profile.steps();
  out.seconds = profile.seconds();
  for (const StepProfile::Row& row : profile.Rows()) {
    out.rows.push_back({row.name, row.in_graph, row.runs, row.seconds, row.flops, row.bytes});
  }
  return out;
}

}  // namespace plumb
