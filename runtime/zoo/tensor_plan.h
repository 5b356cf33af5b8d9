// SPDX-License-Identifier: Apache-2.0
// TensorPlan: which tensors of a checkpoint become which of a model's. Pure functions; everything
// that does not fit is listed in one error.
#ifndef PLUMB_RUNTIME_ZOO_TENSOR_PLAN_H_
#define PLUMB_RUNTIME_ZOO_TENSOR_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/formats/safetensors.h"
#include "runtime/zoo/checkpoint_directory.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family.h"
#include "runtime/zoo/tensor_pieces.h"

namespace plumb {

// The pieces of all of a model's tensors, in their order. Errors: tensors that the family does not
// have, or has twice.
absl::StatusOr<std::vector<TensorPiece>> ResolvePieces(const Family& family,
                                                       const ConfigValues& values,
                                                       absl::Span<const WantedTensor> wanted);

// A piece and its sources in a checkpoint.
struct PlannedTensor {
  TensorPiece piece;
  std::vector<const CheckpointTensor*> sources;  // none: filled
  std::string dtype;                             // "F32", "BF16", "F16"; filled: "F32"
};

struct TensorPlan {
  struct Ignored {
    const CheckpointTensor* tensor;
    std::string reason;
  };
  std::vector<PlannedTensor> tensors;  // in the model's order
  std::vector<Ignored> ignored;
};

// Errors: kInvalidArgument that lists whole what is missing, surplus, misshapen or of another type.
// The plan refers to `checkpoint`.
absl::StatusOr<TensorPlan> PlanTensors(const Family& family, const ConfigValues& values,
                                       absl::Span<const WantedTensor> wanted,
                                       const CheckpointDirectory& checkpoint);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_TENSOR_PLAN_H_
