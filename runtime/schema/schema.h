// SPDX-License-Identifier: Apache-2.0
// What a schema says of a message: its fields, their types and numbers, and where a message of that
// type keeps them. Tables of constants, which runtime/schema/compiler/schema_compiler.cc writes.
// Immutable.
#ifndef PLUMB_RUNTIME_SCHEMA_SCHEMA_H_
#define PLUMB_RUNTIME_SCHEMA_SCHEMA_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace plumb::textproto {

class Message;
struct MessageType;

// What a member holds, or each element of a repeated one: int32_t, uint64_t, double, bool, int32_t
// (the number of an enum's value), std::string, a class derived from Message.
enum class FieldType : uint8_t { kInt32, kUint64, kDouble, kBool, kEnum, kString, kMessage };

enum class Label : uint8_t {
  kPlain,     // is there when it is not zero or empty
  kOptional,  // knows whether it was set; so do messages and the members of a oneof
  kRepeated,  // a std::vector
};

struct EnumValue {
  const char* name;
  int32_t number;
};

struct EnumType {
  absl::Span<const EnumValue> values;

  const EnumValue* Find(absl::string_view value_name) const;  // null: none
  const EnumValue* Find(int32_t number) const;
  std::vector<std::string> Names() const;  // but for that of 0, which means "not said"
};

// A member of a message, by a message of the type that it belongs to.
struct FieldAccess {
  void* (*member)(Message& message);
  void (*reset)(Message& message);
  int (*size)(const Message& message);              // of a repeated field, else null
  Message* (*nested)(Message& message, int index);  // of messages, else null
  Message* (*add)(Message& message);                // of repeated messages, else null
};

struct Field {
  const char* name;
  int number;
  int index;  // in MessageType::fields
  FieldType type;
  Label label;
  int oneof;                        // which of the message it is a member of; -1: of none
  const EnumType* enum_type;        // of kEnum, else null
  const MessageType* message_type;  // of kMessage, else null
  FieldAccess access;

  bool repeated() const { return label == Label::kRepeated; }
};

struct MessageType {
  const char* name;                // without those around it: "Normal"
  absl::Span<const Field> fields;  // in the schema's order

  const Field* Find(absl::string_view field_name) const;  // null: none
  std::vector<std::string> FieldNames() const;
};

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_SCHEMA_SCHEMA_H_
