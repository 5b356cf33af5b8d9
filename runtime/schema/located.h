// SPDX-License-Identifier: Apache-2.0
// Located: a message of the schema with its locations in a file, for error messages. A value; it
// borrows the message and the locations, which must outlive it.
#ifndef PLUMB_RUNTIME_SCHEMA_LOCATED_H_
#define PLUMB_RUNTIME_SCHEMA_LOCATED_H_

#include <string>
#include <utility>

#include "runtime/base/diagnostics.h"
#include "runtime/schema/message.h"
#include "runtime/schema/reader.h"

namespace plumb {

class Located {
 public:
  Located(std::string file, const textproto::Message& message,
          const textproto::Locations* locations)
      : file_(std::move(file)), message_(&message), locations_(locations) {}

  // Returns the location of a field; `index` is for repeated fields. Without locations, it has only
  // the file.
  SourceLocation At(const char* field, int index = -1) const;
  // Returns a string field with its location.
  SourceText GetText(const char* field, int index = -1) const;
  // Returns a nested message.
  Located Nested(const char* field, int index = -1) const;

  const std::string& file() const { return file_; }

 private:
  const textproto::Field& GetField(const char* name) const;

  std::string file_;
  const textproto::Message* message_;
  const textproto::Locations* locations_;  // null: the message was made by the program
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SCHEMA_LOCATED_H_
