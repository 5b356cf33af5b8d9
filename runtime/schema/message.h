// SPDX-License-Identifier: Apache-2.0
// Message: a value of a schema's type. The classes that are derived from it, one for each message
// of the schema, are generated (runtime/schema/compiler/schema_compiler.cc) and have accessors by
// name; here are those by Field, for what reads, prints and sets any message. A value;
// thread-compatible.
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
  // With a capital: accessors of fields begin with a small letter.
  virtual const MessageType& Type() const = 0;

  // Whether it has no field that would be printed.
  bool IsEmpty() const;

  // REQUIRES, of all below: `field` is one of Type().fields.

  // Whether a printer shows a field that is not repeated.
  bool Has(const Field& field) const;
  // Elements of a repeated field; of others, 1 if there is one, else 0.
  int Size(const Field& field) const;

  // The value, or the element of a repeated field; its default if there is none. REQUIRES: the type
  // that FieldType names, index < Size() of a repeated field.
  template <class T>
  const T& Get(const Field& field, int index) const {
    const void* member = field.access.member(const_cast<Message&>(*this));
    if constexpr (!std::is_same_v<T, bool>) {  // of which there are no repeated fields
      if (field.repeated()) return (*static_cast<const std::vector<T>*>(member))[Index(index)];
    }
    return *static_cast<const T*>(member);
  }
  const Message& GetMessage(const Field& field, int index) const {
    return *field.access.nested(const_cast<Message&>(*this), index);
  }

  // Sets the value, or adds an element to a repeated field.
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

  // Replaces an element. REQUIRES: a repeated field, index < Size().
  template <class T>
  void Replace(const Field& field, int index, T value) {
    (*static_cast<std::vector<T>*>(field.access.member(*this)))[Index(index)] = std::move(value);
  }
  // Sets a message if it is not there. REQUIRES: index < Size() of a repeated field.
  Message* MutableMessage(const Field& field, int index);

  // The member of a oneof that is set; null: none.
  const Field* SetInOneof(int oneof) const;

 protected:
  Message() = default;
  Message(const Message&) = default;
  Message& operator=(const Message&) = default;

  bool IsSet(int field) const { return (set_ >> field & 1) != 0; }
  void MarkSet(int field) { MarkSet(Type().fields[Index(field)]); }
  // The number of the field that is set, 0: none.
  int OneofCase(int oneof) const;

 private:
  static size_t Index(int index) { return static_cast<size_t>(index); }
  // Remembers that an optional field is there, and resets the others of its oneof.
  void MarkSet(const Field& field);

  uint64_t set_ = 0;  // of optional fields, a bit by Field::index
};

// FieldAccess of a member, by what it holds: AccessToValue<&Model::n_layer_>().
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
