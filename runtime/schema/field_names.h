// SPDX-License-Identifier: Apache-2.0
// Suggestions for unknown field names, among them names that other programs use. Pure functions.
#ifndef PLUMB_RUNTIME_SCHEMA_FIELD_NAMES_H_
#define PLUMB_RUNTIME_SCHEMA_FIELD_NAMES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "runtime/schema/schema.h"

namespace plumb::textproto {

// Returns the setting, such as "train.learning_rate", for the name of a setting in nanoGPT or in a
// config.json of Hugging Face, such as "lr"; "" for other names.
std::string SettingNamedElsewhere(absl::string_view name);

// Returns the end of an error about a field that `type` does not have, such as
// `; did you mean "d_model"?`; "" if there is nothing to suggest.
std::string SuggestField(const MessageType& type, absl::string_view name);

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_SCHEMA_FIELD_NAMES_H_
