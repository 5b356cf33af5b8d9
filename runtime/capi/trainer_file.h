// SPDX-License-Identifier: Apache-2.0
// A trainer's state as a safetensors file: weights and norm states are named "weight.NAME", the
// moments of AdamW "m.NAME" and "v.NAME", averages "ema.NAME"; the metadata have the number of
// steps. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_TRAINER_FILE_H_
#define PLUMB_RUNTIME_CAPI_TRAINER_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/formats/safetensors.h"
#include "runtime/session/train_session.h"

namespace plumb::capi {

// Returns the prefix of weights in the file: "weight." in a trainer's file; "ema." in a file with a
// trainer's optimizer state alone, which has the averages; else "".
absl::string_view WeightPrefix(const SafetensorsFile& file);

// Saves the state, replacing the file atomically. `model`: the model's self-contained description.
absl::Status SaveTrainer(const TrainSession& session, const std::string& model,
                         const std::string& path);
// Loads a saved state. `*difference` becomes the first difference between the file's description of
// the model and `model`, or "". Changes nothing on failure.
absl::Status LoadTrainer(const std::string& path, const std::string& model, TrainSession* session,
                         std::string* difference);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_TRAINER_FILE_H_
