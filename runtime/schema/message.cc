// SPDX-License-Identifier: Apache-2.0
#include "runtime/schema/message.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace plumb::textproto {
namespace {

// Returns true if a field without presence differs from its default. A double is compared by its
// bits, as in protobuf, so -0 counts as set.
bool HasContent(const Message& message, const Field& field) {
  switch (field.type) {
    case FieldType::kInt32:
    case FieldType::kEnum:
      return message.Get<int32_t>(field, 0) != 0;
    case FieldType::kUint64:
      return message.Get<uint64_t>(field, 0) != 0;
    case FieldType::kDouble: {
      uint64_t bits;
      std::memcpy(&bits, &message.Get<double>(field, 0), sizeof(bits));
      return bits != 0;
    }
    case FieldType::kBool:
      return message.Get<bool>(field, 0);
    case FieldType::kString:
      return !message.Get<std::string>(field, 0).empty();
    case FieldType::kMessage:
      break;  // messages track their presence
  }
  return false;
}

}  // namespace

const EnumValue* EnumType::Find(absl::string_view value_name) const {
  for (const EnumValue& value : values) {
    if (value_name == value.name) return &value;
  }
  return nullptr;
}

const EnumValue* EnumType::Find(int32_t number) const {
  for (const EnumValue& value : values) {
    if (value.number == number) return &value;
  }
  return nullptr;
}

std::vector<std::string> EnumType::Names() const {
  std::vector<std::string> names;
  for (const EnumValue& value : values) {
    if (value.number != 0) names.emplace_back(value.name);
  }
  return names;
}

const Field* MessageType::Find(absl::string_view field_name) const {
  for (const Field& field : fields) {
    if (field_name == field.name) return &field;
  }
  return nullptr;
}

std::vector<std::string> MessageType::FieldNames() const {
  std::vector<std::string> names;
  for (const Field& field : fields) names.emplace_back(field.name);
  return names;
}

bool Message::IsEmpty() const {
  const absl::Span<const Field> fields = Type().fields;
  return std::all_of(fields.begin(), fields.end(),
                     [this](const Field& field) { return Size(field) == 0; });
}

bool Message::Has(const Field& field) const {
  return field.label == Label::kOptional ? IsSet(field.index) : HasContent(*this, field);
}

int Message::Size(const Field& field) const {
  return field.repeated() ? field.access.size(*this) : Has(field) ? 1 : 0;
}

Message* Message::PutMessage(const Field& field) {
  return field.repeated() ? field.access.add(*this) : MutableMessage(field, 0);
}

Message* Message::MutableMessage(const Field& field, int index) {
  if (!field.repeated()) MarkSet(field);
  return field.access.nested(*this, index);
}

const Field* Message::SetInOneof(int oneof) const {
  for (const Field& field : Type().fields) {
    if (field.oneof == oneof && IsSet(field.index)) return &field;
  }
  return nullptr;
}

int Message::OneofCase(int oneof) const {
  const Field* field = SetInOneof(oneof);
  return field == nullptr ? 0 : field->number;
}

void Message::Clear(const Field& field) {
  field.access.reset(*this);
  if (IsSet(field.index)) set_[Index(field.index)] = false;
}

void Message::MarkSet(const Field& field) {
  if (field.label != Label::kOptional || IsSet(field.index)) return;
  const Field* other = field.oneof < 0 ? nullptr : SetInOneof(field.oneof);
  if (other != nullptr) Clear(*other);
  if (set_.empty()) set_.resize(Type().fields.size());
  set_[Index(field.index)] = true;
}

}  // namespace plumb::textproto
