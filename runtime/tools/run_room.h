// What a run takes of the disk. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_RUN_ROOM_H_
#define PLUMB_RUNTIME_TOOLS_RUN_ROOM_H_

#include <string>

#include "absl/status/status.h"
#include "runtime/tools/model.h"
#include "runtime/tools/recipe.h"
#include "runtime/tools/train.h"

namespace plumb {

// Of a run from step 0 into `out`, which may be new; "" writes nothing.
TrainingDisk PlanDisk(const TrainingMemory& memory, const Recipe& recipe, const std::string& out);

// kResourceExhausted when the disk has no room for what the run keeps.
absl::Status CheckFits(const TrainingDisk& disk, const std::string& out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_RUN_ROOM_H_
