// SPDX-License-Identifier: Apache-2.0
// A trainer's state, tensor by tensor, to and from safetensors files. Private to runtime/app.
#ifndef PLUMB_RUNTIME_APP_TRAIN_TRAINER_TENSORS_H_
#define PLUMB_RUNTIME_APP_TRAIN_TRAINER_TENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/app/plumb_api.h"
#include "runtime/formats/safetensors.h"

namespace plumb {

// Returns the tensors of a state. Nothing is copied: they are those of `trainer`, which must
// outlive them.
std::vector<TensorToWrite> StateTensors(api::Trainer* trainer, api::State state);

// Copies all of them from a file that has no others. What is missing, surplus or misshapen is
// listed whole in one error, and nothing is copied then.
absl::Status ReadState(const SafetensorsFile& file, api::Trainer* trainer, api::State state);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_TRAIN_TRAINER_TENSORS_H_
