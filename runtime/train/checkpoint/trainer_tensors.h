// SPDX-License-Identifier: Apache-2.0
// Conversion of a trainer's state, tensor by tensor, to and from safetensors files. Stateless.
#ifndef PLUMB_RUNTIME_TRAIN_CHECKPOINT_TRAINER_TENSORS_H_
#define PLUMB_RUNTIME_TRAIN_CHECKPOINT_TRAINER_TENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/client/plumb_api.h"
#include "runtime/formats/safetensors.h"

namespace plumb {

// Returns the tensors of a state. Data is not copied: `trainer` must outlive them.
std::vector<TensorToWrite> StateTensors(api::Trainer* trainer, api::State state);

// Copies all tensors of a state from a file that has no others. Errors: a list of all missing,
// surplus and misshapen tensors; nothing is copied in this case.
absl::Status ReadState(const SafetensorsFile& file, api::Trainer* trainer, api::State state);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_CHECKPOINT_TRAINER_TENSORS_H_
