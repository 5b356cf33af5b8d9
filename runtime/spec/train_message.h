// SPDX-License-Identifier: Apache-2.0
// The rules of a recipe between the schema's message and their values. Internal to runtime/spec.
#ifndef PLUMB_RUNTIME_SPEC_TRAIN_MESSAGE_H_
#define PLUMB_RUNTIME_SPEC_TRAIN_MESSAGE_H_

#include <vector>

#include "absl/status/status.h"
#include "plumb/v1/train.schema.h"
#include "runtime/schema/located.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

// Sets lets, rules and normalize from a recipe and what it imports. Errors: what does not parse, a
// name that is taken, a rule that says nothing, an import that is not there, with places.
absl::Status ReadRules(const v1::Train& message, const Located& at, TrainSpec* spec);

absl::Status ReadMuon(const v1::Muon& message, const Located& at, MuonSpec* muon);

// The reverse, of all of them; Muon where the recipe uses it.
void WriteRules(const TrainSpec& spec, v1::Train* message);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_TRAIN_MESSAGE_H_
