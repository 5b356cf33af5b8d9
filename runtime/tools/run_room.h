// What a run takes of memory and of the disk. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_RUN_ROOM_H_
#define PLUMB_RUNTIME_TOOLS_RUN_ROOM_H_

#include "absl/status/status.h"
#include "runtime/session/train_memory.h"
#include "runtime/spec/train_spec.h"
#include "runtime/tools/model.h"
#include "runtime/tools/train.h"

namespace plumb {

// Of micro-batches of `seq` tokens.
TrainingMemory ToPublic(const TrainMemory& memory, const TrainSpec& spec, int64_t seq);

// Of a run from step 0 into `out`, which may be new; "" writes nothing.
TrainingDisk PlanDisk(const TrainMemory& memory, const TrainSpec& spec, const std::string& out);

// kResourceExhausted when the disk has no room for what the run keeps.
absl::Status CheckFits(const TrainingDisk& disk, const std::string& out);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_RUN_ROOM_H_
