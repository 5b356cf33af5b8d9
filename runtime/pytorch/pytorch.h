// SPDX-License-Identifier: Apache-2.0
// A model as a Python module that needs PyTorch only. Stateless.
#ifndef PLUMB_RUNTIME_PYTORCH_PYTORCH_H_
#define PLUMB_RUNTIME_PYTORCH_PYTORCH_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/model/parameters.h"
#include "runtime/model/update_plan.h"
#include "runtime/spec/resolved_model.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

// Returns the text of model.py: a class for each kind of norm, sublayer and layer, and class Model
// with initial values and parameter groups. Parameters have plumb's names and shapes. Errors:
// kUnimplemented, with the name, for a part of the model that is not covered.
absl::StatusOr<std::string> WritePyTorch(const ResolvedModel& model, const ModelTensors& tensors,
                                         const TrainSpec& recipe, const UpdatePlan& updates);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PYTORCH_PYTORCH_H_
