// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/strict_json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/utf8.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Builds the value from the parser's events. An event handler returns false to end the parse.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(int max_depth) : max_depth_(max_depth) {}

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return Fail("binary data"); }

  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    Json::object_t& object = open_.back()->get_ref<Json::object_t&>();
    const auto [member, is_new] = object.emplace(name, nullptr);
    if (!is_new) return Fail(absl::StrCat("the name ", QuoteName(name), " stands twice"));
    member_ = &member->second;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    // Drops the tag of "[json.exception.parse_error.101] parse error at line 1, column 2: ...".
    absl::string_view message = error.what();
    const size_t tag = message.find("] ");
    if (absl::StartsWith(message, "[json.exception") && tag != absl::string_view::npos) {
      message.remove_prefix(tag + 2);
    }
    return Fail(message);
  }

  absl::StatusOr<Json> Take(bool parsed) {
    if (parsed) return std::move(root_);
    return absl::InvalidArgumentError(error_.empty() ? "cannot be parsed" : error_);
  }

 private:
  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      Json::array_t& array = open_.back()->get_ref<Json::array_t&>();
      array.push_back(std::move(value));
      return &array.back();
    }
    *member_ = std::move(value);
    return member_;
  }

  bool Put(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json value) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      return Fail(absl::StrCat("values are nested deeper than ", max_depth_));
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  bool Fail(absl::string_view message) {
    if (error_.empty()) error_ = ShortMessage(message);
    return false;
  }

  const int max_depth_;
  Json root_;
  std::vector<Json*> open_;  // the objects and arrays that contain the next value
  Json* member_ = nullptr;   // destination of the next value of an object
  std::string error_;
};

}  // namespace

absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, int max_depth) {
  if (text.empty()) return absl::InvalidArgumentError("is empty");
  Builder builder(max_depth);
  const bool parsed = Json::sax_parse(text.data(), text.data() + text.size(), &builder);
  return builder.Take(parsed);
}

const nlohmann::json* FindMember(const nlohmann::json& value, absl::string_view name) {
  if (!value.is_object()) return nullptr;
  const auto it = value.find(std::string(name));
  return it == value.end() ? nullptr : &*it;
}

std::string TextMember(const Json& value, absl::string_view name) {
  const Json* found = FindMember(value, name);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

absl::optional<int64_t> AsInt64(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t n = value.get<uint64_t>();
    if (n > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return absl::nullopt;
    return static_cast<int64_t>(n);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return absl::nullopt;
}

std::string QuoteJson(absl::string_view text) {
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (is_plain) return absl::StrCat("\"", text, "\"");
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

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
