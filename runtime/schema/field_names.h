// SPDX-License-Identifier: Apache-2.0
// Suggestions for unknown names of fields and values, among them names that other programs use and
// names that were removed. Pure functions.
#ifndef PLUMB_RUNTIME_SCHEMA_FIELD_NAMES_H_
#define PLUMB_RUNTIME_SCHEMA_FIELD_NAMES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "runtime/schema/schema.h"

namespace plumb::textproto {

// Returns the setting, such as "train.learning_rate", for the name of a setting in nanoGPT or in a
// config.json of Hugging Face, such as "lr"; "" for other names.
std::string SettingNamedElsewhere(absl::string_view name);

// Name that a former version of the schema had.
struct RemovedName {
  absl::string_view owner, name;  // message and field, or field and value of its enum
  // Value that had no effect, with which a field is skipped: former versions wrote all fields into
  // the recipes of runs. "": none.
  absl::string_view no_effect;
  absl::string_view advice;
};

// Returns null for other names. A name is of `owner`, which is a message or a field.
const RemovedName* FindRemoved(absl::string_view owner, absl::string_view name);
// Returns the end of an error about a removed name, such as "; it was removed: use SKIP"; "" for
// other names.
std::string RemovedAdvice(absl::string_view owner, absl::string_view name);

// Returns the end of an error about a field that `type` does not have, such as
// `; did you mean "d_model"?`; "" if there is nothing to suggest.
std::string SuggestField(const MessageType& type, absl::string_view name);

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_SCHEMA_FIELD_NAMES_H_
