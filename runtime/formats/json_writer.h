// SPDX-License-Identifier: Apache-2.0
// JsonWriter: builds a JSON text incrementally. Members keep the order in which they are written.
// A value; thread-compatible.
#ifndef PLUMB_RUNTIME_FORMATS_JSON_WRITER_H_
#define PLUMB_RUNTIME_FORMATS_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace plumb {

class JsonWriter {
 public:
  // Requires: every Begin has its End, and in an object each value follows its name.
  void BeginObject() { Open('{'); }
  void EndObject() { Close('}'); }
  void BeginArray() { Open('['); }
  void EndArray() { Close(']'); }

  void Name(absl::string_view name);
  // Writes a string. Bytes that are not UTF-8 become U+FFFD.
  void Text(absl::string_view value);
  void Number(int64_t value);
  void Flag(bool value);

  // Writes a member of an object.
  void Text(absl::string_view name, absl::string_view value) { Name(name), Text(value); }
  void Number(absl::string_view name, int64_t value) { Name(name), Number(value); }
  void Flag(absl::string_view name, bool value) { Name(name), Flag(value); }
  template <class Texts>
  void TextList(absl::string_view name, const Texts& values) {
    Name(name);
    BeginArray();
    for (const auto& value : values) Text(value);
    EndArray();
  }
  template <class Numbers>
  void NumberList(absl::string_view name, const Numbers& values) {
    Name(name);
    BeginArray();
    for (const auto value : values) Number(static_cast<int64_t>(value));
    EndArray();
  }

  std::string Take() { return std::move(text_); }

 private:
  // Writes the comma between this value and the previous one.
  void Separate();
  void Open(char bracket);
  void Close(char bracket);

  std::string text_;
  bool follows_ = false;  // true if a value precedes in the same object or array
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_JSON_WRITER_H_
