// SPDX-License-Identifier: Apache-2.0
// TensorPlan: assignment of a checkpoint's tensors to a model's. Stateless; one error lists all
// mismatches.
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

// Returns the pieces of all tensors in `wanted`, in this order. Errors: tensors for which the
// family has no rule, or two.
absl::StatusOr<std::vector<TensorPiece>> ResolvePieces(const Family& family,
                                                       const ConfigValues& values,
                                                       absl::Span<const WantedTensor> wanted);

// Piece and its sources in a checkpoint.
struct PlannedTensor {
  TensorPiece piece;
  std::vector<const CheckpointTensor*> sources;  // empty: the tensor is filled
  std::string dtype;                             // "F32", "BF16", "F16"; "F32" if filled
};

struct TensorPlan {
  struct Ignored {
    const CheckpointTensor* tensor;
    std::string reason;
  };
  std::vector<PlannedTensor> tensors;  // in the order of `wanted`
  std::vector<Ignored> ignored;
};

// Returns the names and the numbers of the tensors without dimensions that export writes in
// addition to those of the model: the constants among the ignored ones (Ignored.value).
absl::StatusOr<std::vector<std::pair<std::string, double>>> ConstantTensors(
    const Family& family, const ConfigValues& values);

// Plans all tensors. The plan refers to `checkpoint`. Errors: kInvalidArgument with a list of all
// missing, surplus, misshapen and wrongly typed tensors.
absl::StatusOr<TensorPlan> PlanTensors(const Family& family, const ConfigValues& values,
                                       absl::Span<const WantedTensor> wanted,
                                       const CheckpointDirectory& checkpoint);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_TENSOR_PLAN_H_
