// SPDX-License-Identifier: Apache-2.0
// A trainer's state as a safetensors file: weights and norms' states as "weight.NAME", the moments
// of AdamW as "m.NAME" and "v.NAME", and in the metadata the steps done. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_TRAINER_FILE_H_
#define PLUMB_RUNTIME_CAPI_TRAINER_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/formats/safetensors.h"
#include "runtime/session/train_session.h"

namespace plumb::capi {

// The prefix of weights in the file: that of a trainer's; that of an average of weights in a file
// of a trainer's state without its weights; or "".
absl::string_view WeightPrefix(const SafetensorsFile& file);

// `model`: the text of the whole description. Replaces the file at once.
absl::Status SaveTrainer(const TrainSession& session, const std::string& model,
                         const std::string& path);
// `*difference` becomes where the model of the file is described otherwise, or "". After an error
// nothing has changed.
absl::Status LoadTrainer(const std::string& path, const std::string& model, TrainSession* session,
                         std::string* difference);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_TRAINER_FILE_H_
