// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/json_writer.h"

#include "absl/strings/str_cat.h"
#include "runtime/formats/strict_json.h"

namespace plumb {

void JsonWriter::Separate() {
  if (follows_) text_ += ',';
  follows_ = true;
}

void JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
  follows_ = false;
}

void JsonWriter::Close(char bracket) {
  text_ += bracket;
  follows_ = true;
}

void JsonWriter::Name(absl::string_view name) {
  Text(name);
  text_ += ':';
  follows_ = false;
}

void JsonWriter::Text(absl::string_view value) {
  Separate();
  text_ += QuoteJson(value);
}

void JsonWriter::Number(int64_t value) {
  Separate();
  absl::StrAppend(&text_, value);
}

void JsonWriter::Flag(bool value) {
  Separate();
  text_ += value ? "true" : "false";
}

}  // namespace plumb
