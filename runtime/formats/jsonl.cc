// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/jsonl.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

constexpr char kForms[] =
    "a line is {\"prompt\": \"..\", \"completion\": \"..\"} or {\"text\": \"..\"}";

// Makes the error of a line, at an offset in it.
using LineError = absl::FunctionRef<absl::Status(size_t offset, absl::string_view what)>;

// Returns the offset of a key in the line of an object; 0 if the line escapes its characters.
size_t KeyOffset(absl::string_view line, absl::string_view key) {
  const std::string quoted = QuoteJson(key);
  for (size_t at = line.find(quoted); at != absl::string_view::npos; at = line.find(quoted, ++at)) {
    const absl::string_view rest = line.substr(at + quoted.size());
    if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(rest), ":")) return at;
  }
  return 0;
}

// Moves the place in a message of ParseStrictJson, "parse error at line 1, column 7: ..".
absl::Status SyntaxError(absl::string_view message, LineError error) {
  size_t column = 1;
  if (absl::ConsumePrefix(&message, "parse error at line 1, column ")) {
    const size_t end = std::min(message.find(':'), message.size());
    if (!absl::SimpleAtoi(message.substr(0, end), &column)) column = 1;
    message.remove_prefix(std::min(end + 2, message.size()));
  }
  return error(std::max<size_t>(column, 1) - 1, absl::StrCat(message, "; ", kForms));
}

// Appends the document of the line that begins at `begin`.
absl::Status AppendDocument(absl::string_view line, size_t begin, LineError error, Jsonl* to) {
  constexpr int kMaxDepth = 16;  // deep enough to name the key of a value that is no string
  const absl::StatusOr<nlohmann::json> json = ParseStrictJson(line, kMaxDepth);
  if (!json.ok()) return SyntaxError(json.status().message(), error);
  if (!json->is_object()) return error(0, absl::StrCat(kForms, ", not ", json->type_name()));
  if (FindMember(*json, "messages") != nullptr) {
    return error(KeyOffset(line, "messages"),
                 "\"messages\" need the chat template of a model, which plumb does not apply; "
                 "apply it and write the texts as \"prompt\" and \"completion\"");
  }
  for (const auto& [key, value] : json->items()) {
    const size_t at = KeyOffset(line, key);
    if (key != "prompt" && key != "completion" && key != "text") {
      return error(at,
                   absl::StrCat("unknown key ", QuoteName(key),
                                DidYouMean(key, {"prompt", "completion", "text"}), "; ", kForms));
    }
    if (!value.is_string()) {
      return error(at, absl::StrCat("\"", key, "\" must be a string, is ", value.type_name()));
    }
  }
  const std::string target = json->contains("text") ? "text" : "completion";
  if (json->size() != (target == "text" ? 1 : 2)) {
    return error(0, absl::StrCat("keys are missing, or too many; ", kForms));
  }
  for (const std::string& key : {std::string("prompt"), target}) {
    const nlohmann::json* const value = FindMember(*json, key);
    to->texts.push_back(value == nullptr ? "" : value->get_ref<const std::string&>());
    to->places.push_back(begin + KeyOffset(line, key));
  }
  if (!to->texts.back().empty()) return absl::OkStatus();
  return error(KeyOffset(line, target),
               absl::StrCat("\"", target, "\" is empty; drop the line, or write what to learn"));
}

}  // namespace

absl::StatusOr<Jsonl> ParseJsonl(absl::string_view content, const std::string& name) {
  const auto error_at = [&](size_t offset, absl::string_view what) {
    const TextPlace place = GetPlace(content, std::min(offset, content.size()));
    return absl::InvalidArgumentError(
        absl::StrCat(name, ":", place.line, ":", place.column, ": ", what));
  };
  if (const auto invalid = FindInvalidUtf8(content)) {
    return error_at(*invalid, absl::StrFormat("byte 0x%02x is not valid UTF-8; convert the file",
                                              static_cast<unsigned char>(content[*invalid])));
  }
  Jsonl documents;
  for (size_t at = 0; at < content.size();) {
    const absl::string_view line = content.substr(at, content.find('\n', at) - at);
    const auto error = [&](size_t offset, absl::string_view what) {
      return error_at(at + std::min(offset, line.size()), what);
    };
    if (!absl::StripAsciiWhitespace(line).empty()) {
      PLUMB_RETURN_IF_ERROR(AppendDocument(line, at, error, &documents));
    }
    at += line.size() + 1;
  }
  return documents;
}

}  // namespace plumb
