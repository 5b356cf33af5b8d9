// The rules of a recipe between the schema's message and their values. Internal to runtime/spec.
#ifndef PLUMB_RUNTIME_SPEC_TRAIN_MESSAGE_H_
#define PLUMB_RUNTIME_SPEC_TRAIN_MESSAGE_H_

#include <vector>

#include "absl/status/status.h"
#include "plumb/v1/train.schema.h"
#include "runtime/spec/located.h"
#include "runtime/spec/train_spec.h"

namespace plumb {

// Appends the message's lets and rules. A let takes the place of one of its name. Errors: what does
// not parse, a name that is taken, a rule that says nothing, with places.
absl::Status ReadLets(const v1::Train& message, const Located& at, std::vector<Statement>* lets);
absl::Status ReadRules(const v1::Train& message, const Located& at, std::vector<TrainRule>* rules);

absl::Status ReadMuon(const v1::Muon& message, const Located& at, MuonSpec* muon);

absl::Status ReadNormalize(const v1::Train& message, const Located& at,
                           std::vector<NormalizeRule>* rules);

// The reverse, of all of them; Muon where the recipe uses it.
void WriteRules(const TrainSpec& spec, v1::Train* message);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_TRAIN_MESSAGE_H_
