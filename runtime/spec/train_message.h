// SPDX-License-Identifier: Apache-2.0
// Conversion of a recipe's rules between the schema's messages and plumb's values. Internal to
// runtime/spec.
#ifndef PLUMB_RUNTIME_SPEC_TRAIN_MESSAGE_H_
#define PLUMB_RUNTIME_SPEC_TRAIN_MESSAGE_H_

#include <vector>

#include "absl/status/status.h"
#include "plumb/v1/train.schema.h"
#include "runtime/schema/located.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

// Sets lets, rules and normalize from a recipe and its imports. Errors, with locations: a syntax
// error, a name that is taken, a rule without effect, an import that does not exist.
absl::Status ReadRules(const v1::Train& message, const Located& at, TrainSpec* spec);

absl::Status ReadMuon(const v1::Muon& message, const Located& at, MuonSpec* muon);

// Writes all of them to `message`; Muon only if the recipe uses it.
void WriteRules(const TrainSpec& spec, v1::Train* message);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_TRAIN_MESSAGE_H_
