// SPDX-License-Identifier: Apache-2.0
#include "runtime/schema/reader.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/schema/field_names.h"

namespace plumb::textproto {
namespace {

absl::Status BadPath(absl::string_view path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::Status BadValue(absl::string_view path, absl::string_view value, absl::string_view wanted) {
  return BadPath(path, absl::StrCat("\"", value, "\" is not ", wanted));
}

// One step of a path: "norm[0]".
struct Step {
  absl::string_view name;
  int index = -1;  // -1: no index is given
};

absl::StatusOr<Step> ParseStep(absl::string_view path, absl::string_view part) {
  Step step{part};
  const size_t bracket = part.find('[');
  if (bracket == absl::string_view::npos) return step;
  absl::string_view digits = part.substr(bracket + 1);
  if (!absl::ConsumeSuffix(&digits, "]") || !absl::SimpleAtoi(digits, &step.index) ||
      step.index < 0) {
    return BadPath(path, absl::StrCat("bad index in \"", part, "\""));
  }
  step.name = part.substr(0, bracket);
  return step;
}

absl::StatusOr<const Field*> FindField(absl::string_view path, const Step& step,
                                       const Message& message) {
  const MessageType& type = message.Type();
  const Field* field = type.Find(step.name);
  if (field == nullptr) {
    return BadPath(path, absl::StrCat(type.name, " has no field \"", step.name, "\"",
                                      SuggestField(type, step.name)));
  }
  if (!field->repeated()) {
    if (step.index >= 0) return BadPath(path, absl::StrCat(step.name, " takes no index"));
    return field;
  }
  const int size = message.Size(*field);
  if (size == 0) return BadPath(path, absl::StrCat("there is no ", step.name, " to set"));
  if (step.index < 0 || step.index >= size) {
    return BadPath(path,
                   absl::StrCat(step.name, " needs an index below ", size, ": ", step.name, "[0]"));
  }
  return field;
}

template <class T>
absl::Status Set(Message* message, const Field& field, int index, T value) {
  if (field.repeated()) {
    message->Replace(field, index, std::move(value));
  } else {
    message->Put(field, std::move(value));
  }
  return absl::OkStatus();
}

absl::Status SetScalar(Message* message, const Field& field, int index, absl::string_view path,
                       absl::string_view value) {
  switch (field.type) {
    case FieldType::kInt32: {
      int32_t number;
      int64_t longer;
      if (absl::SimpleAtoi(value, &number)) return Set(message, field, index, number);
      return BadValue(path, value,
                      absl::SimpleAtoi(value, &longer) ? "a number of 32 bits" : "a whole number");
    }
    case FieldType::kUint64: {
      uint64_t number;
      if (!absl::SimpleAtoi(value, &number)) return BadValue(path, value, "a whole number >= 0");
      return Set(message, field, index, number);
    }
    case FieldType::kDouble: {
      double number;
      if (!absl::SimpleAtod(value, &number) || !std::isfinite(number)) {
        return BadValue(path, value, "a number");
      }
      return Set(message, field, index, number);
    }
    case FieldType::kBool: {
      bool flag;
      if (!absl::SimpleAtob(value, &flag)) return BadValue(path, value, "true or false");
      return Set(message, field, index, flag);
    }
    case FieldType::kEnum: {
      const EnumValue* named = field.enum_type->Find(absl::AsciiStrToUpper(value));
      if (named == nullptr) {
        return BadValue(path, value,
                        absl::StrCat("one of ", absl::StrJoin(field.enum_type->Names(), ", ")));
      }
      return Set(message, field, index, named->number);
    }
    case FieldType::kString:
      if (FindInvalidUtf8(value)) return BadValue(path, "...", "UTF-8 text");
      return Set(message, field, index, std::string(value));
    case FieldType::kMessage:
      break;
  }
  return BadPath(path, absl::StrCat("is a group of fields; set one of ",
                                    absl::StrJoin(field.message_type->FieldNames(), ", ")));
}

}  // namespace

absl::Status SetField(Message* message, absl::string_view path, absl::string_view value) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(const Step step, ParseStep(path, parts[i]));
    PLUMB_ASSIGN_OR_RETURN(const Field* field, FindField(path, step, *message));
    if (i + 1 == parts.size()) return SetScalar(message, *field, step.index, path, value);
    if (field->type != FieldType::kMessage) {
      return BadPath(path, absl::StrCat(step.name, " has no fields"));
    }
    message = message->MutableMessage(*field, step.index);
  }
  return absl::OkStatus();
}

}  // namespace plumb::textproto
