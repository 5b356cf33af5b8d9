// SPDX-License-Identifier: Apache-2.0
// File names of run directories, and the format of state.json. Stateless. Internal to this module.
#ifndef PLUMB_RUNTIME_TRAIN_CHECKPOINT_CHECKPOINT_LAYOUT_H_
#define PLUMB_RUNTIME_TRAIN_CHECKPOINT_CHECKPOINT_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "runtime/train/checkpoint/checkpoint.h"

namespace plumb {

inline constexpr char kLatestFile[] = "latest";
inline constexpr char kLastGoodFile[] = "last_good";
inline constexpr char kCheckpointsDirectory[] = "checkpoints";
inline constexpr char kTemporaryPrefix[] = ".tmp-";
inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";
inline constexpr char kStateFile[] = "state.json";

std::string StepName(int64_t step);                             // 500 -> "step-000500"
absl::optional<int64_t> ParseStepName(absl::string_view name);  // nullopt for other names

// Returns the steps in the directory `checkpoints`, ascending. Errors: NotFound if it is no
// directory.
absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& checkpoints);

// Convert a checkpoint (without its directory) to state.json and back. Errors of FormatState:
// InvalidArgument if `state` is no JSON object. Errors of ParseState: DataLoss for anything that
// FormatState did not write.
absl::StatusOr<std::string> FormatState(const Checkpoint& checkpoint);
absl::StatusOr<Checkpoint> ParseState(absl::string_view text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_CHECKPOINT_CHECKPOINT_LAYOUT_H_
