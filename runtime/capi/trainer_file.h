// A trainer's state as a safetensors file: weights and norms' states as "weight.NAME", the moments
// of AdamW as "m.NAME" and "v.NAME", and in the metadata the steps done. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_TRAINER_FILE_H_
#define PLUMB_RUNTIME_CAPI_TRAINER_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "runtime/session/train_session.h"

namespace plumb::capi {

// Replaces the file at once.
absl::Status SaveTrainer(const TrainSession& session, const std::string& model_name,
                         const std::string& path);
// After an error nothing has changed.
absl::Status LoadTrainer(const std::string& path, TrainSession* session);

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_TRAINER_FILE_H_
