// SPDX-License-Identifier: Apache-2.0
// Located: a message of the schema and where it was read, for errors that point there. A value;
// what it points to must outlive it.
#ifndef PLUMB_RUNTIME_SCHEMA_LOCATED_H_
#define PLUMB_RUNTIME_SCHEMA_LOCATED_H_

#include <string>
#include <utility>

#include "runtime/base/mistakes.h"
#include "runtime/schema/message.h"
#include "runtime/schema/reader.h"

namespace plumb {

class Located {
 public:
  Located(std::string file, const textproto::Message& message,
          const textproto::Locations* locations)
      : file_(std::move(file)), message_(&message), locations_(locations) {}

  // Of this message's field; `index` for repeated ones. Without a record: the file alone.
  Place At(const char* field, int index = -1) const;
  // A string field with its place.
  Text TextOf(const char* field, int index = -1) const;
  // A nested message.
  Located Nested(const char* field, int index = -1) const;

  const std::string& file() const { return file_; }

 private:
  const textproto::Field& FieldOf(const char* name) const;

  std::string file_;
  const textproto::Message* message_;
  const textproto::Locations* locations_;  // null: made by the program
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SCHEMA_LOCATED_H_
