// SPDX-License-Identifier: Apache-2.0
// Message: a value of a schema's type. The derived classes, one for each message of the schema, are
// generated (runtime/schema/compiler/schema_compiler.cc) and have accessors by name. The accessors
// here take a Field, for code that reads, prints or sets any message. A value; thread-compatible.
#ifndef PLUMB_RUNTIME_SCHEMA_MESSAGE_H_
#define PLUMB_RUNTIME_SCHEMA_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/schema/schema.h"

namespace plumb::textproto {

class Message {
 public:
  virtual ~Message() = default;
  // Returns the type. The capital letter avoids a clash with accessors of fields.
  virtual const MessageType& Type() const = 0;

  // Returns true if no field would be printed.
  bool IsEmpty() const;

  // Requires, for all functions below: `field` is one of Type().fields.

  // Returns true if a printer shows the field, which must not be repeated.
  bool Has(const Field& field) const;
  // Returns the number of elements of a repeated field; for others, 1 if it is present, else 0.
  int Size(const Field& field) const;

  // Returns the value, or an element of a repeated field; the default if there is none. Requires: T
  // is the type that FieldType names, and index < Size() for a repeated field.
  template <class T>
  const T& Get(const Field& field, int index) const {
    const void* member = field.access.member(const_cast<Message&>(*this));
    if constexpr (!std::is_same_v<T, bool>) {  // there are no repeated bools
      if (field.repeated()) return (*static_cast<const std::vector<T>*>(member))[Index(index)];
    }
    return *static_cast<const T*>(member);
  }
  const Message& GetMessage(const Field& field, int index) const {
    return *field.access.nested(const_cast<Message&>(*this), index);
  }

  // Sets the value, or appends an element to a repeated field.
  template <class T>
  void Put(const Field& field, T value) {
    void* member = field.access.member(*this);
    if (field.repeated()) {
      static_cast<std::vector<T>*>(member)->push_back(std::move(value));
    } else {
      MarkSet(field);
      *static_cast<T*>(member) = std::move(value);
    }
  }
  Message* PutMessage(const Field& field);

  // Resets a field to its default; a repeated field is then empty.
  void Clear(const Field& field);
  // Replaces an element. Requires: a repeated field, and index < Size().
  template <class T>
  void Replace(const Field& field, int index, T value) {
    (*static_cast<std::vector<T>*>(field.access.member(*this)))[Index(index)] = std::move(value);
  }
  // Returns a nested message and marks it as set. Requires: index < Size() for a repeated field.
  Message* MutableMessage(const Field& field, int index);

  // Returns the member of a oneof that is set; null if none is.
  const Field* SetInOneof(int oneof) const;

 protected:
  Message() = default;
  Message(const Message&) = default;
  Message& operator=(const Message&) = default;

  bool IsSet(int field) const { return Index(field) < set_.size() && set_[Index(field)]; }
  void MarkSet(int field) { MarkSet(Type().fields[Index(field)]); }
  // Returns the number of the field that is set; 0 if none is.
  int OneofCase(int oneof) const;

 private:
  static size_t Index(int index) { return static_cast<size_t>(index); }
  // Marks an optional field as set, and resets the others of its oneof.
  void MarkSet(const Field& field);

  std::vector<bool> set_;  // one bit per field, at Field::index; empty: no optional field is set
};

// Functions for the FieldAccess of a member. The accessors below are chosen by the member's kind:
// AccessToValue<&Model::n_layer_>().
template <auto member>
struct MemberAccess;

template <class Owner, class T, T Owner::*member>
struct MemberAccess<member> {
  static T& In(Message& message) { return static_cast<Owner&>(message).*member; }
  static void* Address(Message& message) { return &In(message); }
  static void Reset(Message& message) { In(message) = T(); }
  static int Size(const Message& message) {
    return static_cast<int>((static_cast<const Owner&>(message).*member).size());
  }
  static Message* Nested(Message& message, int) { return &In(message); }
  static Message* Element(Message& message, int index) {
    return &In(message)[static_cast<size_t>(index)];
  }
  static Message* Add(Message& message) { return &In(message).emplace_back(); }
};

template <auto member>
constexpr FieldAccess AccessToValue() {
  using Access = MemberAccess<member>;
  return {&Access::Address, &Access::Reset, nullptr, nullptr, nullptr};
}
template <auto member>
constexpr FieldAccess AccessToValues() {
  using Access = MemberAccess<member>;
  return {&Access::Address, &Access::Reset, &Access::Size, nullptr, nullptr};
}
template <auto member>
constexpr FieldAccess AccessToMessage() {
  using Access = MemberAccess<member>;
  return {&Access::Address, &Access::Reset, nullptr, &Access::Nested, nullptr};
}
template <auto member>
constexpr FieldAccess AccessToMessages() {
  using Access = MemberAccess<member>;
  return {&Access::Address, &Access::Reset, &Access::Size, &Access::Element, &Access::Add};
}

}  // namespace plumb::textproto

#endif  // PLUMB_RUNTIME_SCHEMA_MESSAGE_H_
