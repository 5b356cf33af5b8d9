// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/model_fields.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/text_format.h"
#include "runtime/schema/reader.h"

namespace plumb {
namespace {

using textproto::Field;
using textproto::FieldType;
using textproto::Message;

// Returns the one of the first `count` elements that has this name, or a new one.
Message* ElementNamed(const std::string& name, const Field& field, int count, Message* message) {
  for (int i = 0; i < count && !name.empty(); ++i) {
    Message* const element = message->MutableMessage(field, i);
    if (GetName(*element) == name) return element;
  }
  return message->PutMessage(field);
}

void MergeMessages(const Message& from, const Field& field, Message* to) {
  const int count = to->Size(field);  // two elements of `from` are never merged with each other
  for (int i = 0; i < from.Size(field); ++i) {
    const Message& message = from.GetMessage(field, i);
    MergeFields(message, field.repeated() ? ElementNamed(GetName(message), field, count, to)
                                          : to->MutableMessage(field, 0));
  }
}

void MergeScalar(const Message& from, const Field& field, int index, Message* to) {
  switch (field.type) {
    case FieldType::kInt32:
    case FieldType::kEnum:
      return to->Put(field, from.Get<int32_t>(field, index));
    case FieldType::kUint64:
      return to->Put(field, from.Get<uint64_t>(field, index));
    case FieldType::kDouble:
      return to->Put(field, from.Get<double>(field, index));
    case FieldType::kBool:
      return to->Put(field, from.Get<bool>(field, index));
    case FieldType::kString:
      return to->Put(field, from.Get<std::string>(field, index));
    case FieldType::kMessage:
      break;  // MergeMessages
  }
}

void CollectStrings(Message* message, const Located& at, std::vector<StringField>* strings) {
  for (const Field& field : message->Type().fields) {
    for (int i = 0; i < message->Size(field); ++i) {
      if (field.type == FieldType::kMessage) {
        CollectStrings(message->MutableMessage(field, i), at.Nested(field.name, i), strings);
      } else if (field.type == FieldType::kString &&
                 absl::StrContains(message->Get<std::string>(field, i), "${")) {
        strings->push_back({message, &field, i, at.GetText(field.name, i)});
      }
    }
  }
}

}  // namespace

std::string GetName(const Message& message) {
  const Field* name = message.Type().Find("name");
  if (name == nullptr || name->type != FieldType::kString || name->repeated()) return "";
  return message.Get<std::string>(*name, 0);
}

std::string PlainNumber(double value) {
  // Integers have no exponent, because integer fields do not accept one.
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const bool is_whole = value == std::floor(value) && std::abs(value) < kExact;
  return is_whole ? absl::StrCat(static_cast<int64_t>(value)) : ShortestNumber(value);
}

std::optional<std::string> FieldText(const Message& message, absl::string_view path) {
  const absl::StatusOr<textproto::FieldAtPath> found = textproto::FindField(message, path);
  if (!found.ok()) return std::nullopt;
  const Message& at = *found->message;
  const Field& field = *found->field;
  if (field.repeated() && found->index < 0) {
    if (field.type != FieldType::kDouble || at.Size(field) == 0) return std::nullopt;
    std::vector<std::string> numbers;
    for (int i = 0; i < at.Size(field); ++i)
      numbers.push_back(PlainNumber(at.Get<double>(field, i)));
    return absl::StrJoin(numbers, ", ");
  }
  if (field.type == FieldType::kBool) return at.Get<bool>(field, 0) ? "1" : "0";
  if (!field.repeated() && !at.Has(field)) return std::nullopt;
  switch (field.type) {
    case FieldType::kInt32:
      return absl::StrCat(at.Get<int32_t>(field, found->index));
    case FieldType::kUint64:
      return absl::StrCat(at.Get<uint64_t>(field, found->index));
    case FieldType::kDouble:
      return PlainNumber(at.Get<double>(field, found->index));
    case FieldType::kEnum: {
      const textproto::EnumValue* value =
          field.enum_type->Find(at.Get<int32_t>(field, found->index));
      return value == nullptr ? std::nullopt : std::optional<std::string>(value->name);
    }
    case FieldType::kString:
      return at.Get<std::string>(field, found->index);
    case FieldType::kBool:
    case FieldType::kMessage:
      break;  // FindField finds no messages
  }
  return std::nullopt;
}

std::vector<StringField> StringFields(Message* message, const Located& at) {
  std::vector<StringField> strings;
  CollectStrings(message, at, &strings);
  return strings;
}

void ReplaceString(const StringField& string, std::string text) {
  if (string.field->repeated()) {
    string.message->Replace(*string.field, string.index, std::move(text));
  } else {
    string.message->Put(*string.field, std::move(text));
  }
}

void MergeFields(const Message& from, Message* to) {
  for (const Field& field : from.Type().fields) {
    if (field.type == FieldType::kMessage) {
      MergeMessages(from, field, to);
      continue;
    }
    for (int i = 0; i < from.Size(field); ++i) MergeScalar(from, field, i, to);
  }
}

}  // namespace plumb
