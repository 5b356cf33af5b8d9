// SPDX-License-Identifier: Apache-2.0
#include "runtime/schema/reader.h"

#include <cmath>
#include <cstdint>
#include <optional>
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

// One step of a path: "norm[0]" or "norm[ln]".
struct Step {
  absl::string_view name;
  std::optional<absl::string_view> element;  // text between brackets
};

absl::StatusOr<Step> ParseStep(absl::string_view path, absl::string_view part) {
  Step step{part, std::nullopt};
  const size_t bracket = part.find('[');
  if (bracket == absl::string_view::npos) return step;
  absl::string_view element = part.substr(bracket + 1);
  if (!absl::ConsumeSuffix(&element, "]") || element.empty() || element.front() == '-') {
    return BadPath(path, absl::StrCat("bad index in \"", part, "\""));
  }
  step.name = part.substr(0, bracket);
  step.element = element;
  return step;
}

// Returns the names of a repeated message's elements; "" for one without a name.
std::vector<std::string> NamesOfElements(const Message& message, const Field& field) {
  std::vector<std::string> names;
  const Field* name =
      field.type == FieldType::kMessage ? field.message_type->Find("name") : nullptr;
  if (name == nullptr || name->type != FieldType::kString) return names;
  for (int i = 0; i < message.Size(field); ++i) {
    names.push_back(message.GetMessage(field, i).Get<std::string>(*name, 0));
  }
  return names;
}

// Returns the index of the element that the step names. That of a text may be the next one.
absl::StatusOr<int> FindElement(absl::string_view path, const Step& step, const Message& message,
                                const Field& field) {
  const int size = message.Size(field);
  const bool is_text = field.type == FieldType::kString;
  if (size == 0 && !is_text)
    return BadPath(path, absl::StrCat("there is no ", step.name, " to set"));
  int index = size == 0 ? 0 : -1;
  if (!step.element.has_value() || absl::SimpleAtoi(*step.element, &index)) {
    if (index >= 0 && index < size + (is_text ? 1 : 0)) return index;
    return BadPath(path,
                   absl::StrCat(step.name, " needs an index below ", size, ": ", step.name, "[0]"));
  }
  const std::vector<std::string> names = NamesOfElements(message, field);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == *step.element) return static_cast<int>(i);
  }
  const std::string name(*step.element);
  return BadPath(
      path, absl::StrCat("there is no ", step.name, " \"", name, "\"", DidYouMean(name, names)));
}

// A field of a message, and the index of an element; -1: the field is not repeated, or all of it.
struct Found {
  const Field* field;
  int index;
};

absl::StatusOr<Found> FindStep(absl::string_view path, absl::string_view part, bool is_last,
                               const Message& message) {
  PLUMB_ASSIGN_OR_RETURN(const Step step, ParseStep(path, part));
  const MessageType& type = message.Type();
  const Field* field = type.Find(step.name);
  if (field == nullptr) {
    return BadPath(path, absl::StrCat(type.name, " has no field \"", step.name, "\"",
                                      SuggestField(type, step.name)));
  }
  int index = -1;
  const bool is_list = is_last && field->type == FieldType::kDouble && !step.element.has_value();
  if (field->repeated() && !is_list) {
    PLUMB_ASSIGN_OR_RETURN(index, FindElement(path, step, message, *field));
  } else if (step.element.has_value()) {
    return BadPath(path, absl::StrCat(step.name, " takes no index"));
  }
  if (is_last && field->type == FieldType::kMessage) {
    return BadPath(path, absl::StrCat("is a group of fields; set one of ",
                                      absl::StrJoin(field->message_type->FieldNames(), ", ")));
  }
  if (!is_last && field->type != FieldType::kMessage) {
    return BadPath(path, absl::StrCat(step.name, " has no fields"));
  }
  return Found{field, index};
}

template <class T>
absl::Status Set(Message* message, const Field& field, int index, T value) {
  if (field.repeated() && index < message->Size(field)) {
    message->Replace(field, index, std::move(value));
  } else {
    message->Put(field, std::move(value));
  }
  return absl::OkStatus();
}

// Replaces all elements by the numbers of a list.
absl::Status SetNumbers(Message* message, const Field& field, absl::string_view path,
                        absl::string_view value) {
  std::vector<double> numbers;
  for (const absl::string_view text : absl::StrSplit(value, ',')) {
    double number;
    if (!absl::SimpleAtod(text, &number) || !std::isfinite(number)) {
      return BadValue(path, value, "a list of numbers with commas between them");
    }
    numbers.push_back(number);
  }
  field.access.reset(*message);
  for (const double number : numbers) message->Put(field, number);
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
      if (field.repeated() && index < 0) return SetNumbers(message, field, path, value);
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
      const std::string name = absl::AsciiStrToUpper(value);
      const EnumValue* named = field.enum_type->Find(name);
      if (named == nullptr) {
        return BadValue(path, value,
                        absl::StrCat("one of ", absl::StrJoin(field.enum_type->Names(), ", "),
                                     RemovedAdvice(field.name, name)));
      }
      return Set(message, field, index, named->number);
    }
    case FieldType::kString:
      if (FindInvalidUtf8(value)) return BadValue(path, "...", "UTF-8 text");
      return Set(message, field, index, std::string(value));
    case FieldType::kMessage:
      break;  // refused by FindStep
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FieldAtPath> FindField(const Message& message, absl::string_view path) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '.');
  const Message* at = &message;
  for (size_t i = 0;; ++i) {
    const bool is_last = i + 1 == parts.size();
    PLUMB_ASSIGN_OR_RETURN(const Found found, FindStep(path, parts[i], is_last, *at));
    if (found.index >= at->Size(*found.field)) {
      return BadPath(path, absl::StrCat("there is no ", parts[i]));
    }
    if (is_last) return FieldAtPath{at, found.field, found.index};
    at = &at->GetMessage(*found.field, found.index);
  }
}

absl::Status SetField(Message* message, absl::string_view path, absl::string_view value) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_last = i + 1 == parts.size();
    PLUMB_ASSIGN_OR_RETURN(const Found found, FindStep(path, parts[i], is_last, *message));
    if (is_last) return SetScalar(message, *found.field, found.index, path, value);
    message = message->MutableMessage(*found.field, found.index);
  }
  return absl::OkStatus();
}

}  // namespace plumb::textproto
