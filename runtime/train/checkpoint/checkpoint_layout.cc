// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/checkpoint/checkpoint_layout.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/hash.h"
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr int64_t kVersion = 1;
constexpr int kMaxDepth = 32;

// Returns the text that the hash of state.json covers.
std::string Canonical(const Json& root) {
  return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("is damaged: ", what));
}

absl::optional<uint64_t> ParseHash(const Json* value) {
  uint64_t hash;
  if (value == nullptr || !value->is_string()) return absl::nullopt;
  const std::string& text = value->get_ref<const std::string&>();
  if (text.size() != 16 || !absl::SimpleHexAtoi(text, &hash)) return absl::nullopt;
  return hash;
}

absl::StatusOr<std::map<std::string, Checkpoint::File>> ParseFiles(const Json* value) {
  if (value == nullptr || !value->is_object()) return Damaged("\"files\" is missing");
  std::map<std::string, Checkpoint::File> files;
  for (const auto& [name, description] : value->get_ref<const Json::object_t&>()) {
    // A checkpoint has no other files; in particular, a path must not lead out of it.
    if (name != kModelFile && name != kOptimizerFile) return Damaged("\"files\" has unknown names");
    const Json* bytes = FindMember(description, "bytes");
    const absl::optional<int64_t> size = bytes == nullptr ? absl::nullopt : AsInt64(*bytes);
    const absl::optional<uint64_t> hash = ParseHash(FindMember(description, "hash"));
    if (!size || !hash) return Damaged(absl::StrCat("no size and hash of ", name));
    files[name] = {*size, *hash};
  }
  return files;
}

}  // namespace

std::string StepName(int64_t step) { return absl::StrFormat("step-%06d", step); }

absl::optional<int64_t> ParseStepName(absl::string_view name) {
  absl::string_view digits = name;
  int64_t step;
  if (!absl::ConsumePrefix(&digits, "step-") || !absl::SimpleAtoi(digits, &step) || step < 0 ||
      StepName(step) != name) {
    return absl::nullopt;
  }
  return step;
}

absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& checkpoints) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(checkpoints));
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    const absl::optional<int64_t> step = ParseStepName(name);
    if (step && IsDirectory(JoinPath(checkpoints, name))) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::StatusOr<std::string> FormatState(const Checkpoint& checkpoint) {
  absl::StatusOr<Json> state = ParseStrictJson(checkpoint.state, kMaxDepth - 1);
  if (!state.ok()) return Annotate(state.status(), "the state of a checkpoint is not valid JSON: ");
  if (!state->is_object()) {
    return absl::InvalidArgumentError("the state of a checkpoint is not a JSON object");
  }
  Json root = Json::object();
  root["format"] = "plumb-checkpoint";
  root["version"] = kVersion;
  root["step"] = checkpoint.step;
  root["files"] = Json::object();
  for (const auto& [name, file] : checkpoint.files) {
    root["files"][name] = {{"bytes", file.bytes}, {"hash", HexDigits(file.hash)}};
  }
  root["state"] = *std::move(state);
  root["hash"] = HexDigits(ContentHash(Canonical(root)));
  return absl::StrCat(root.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

absl::StatusOr<Checkpoint> ParseState(absl::string_view text) {
  absl::StatusOr<Json> parsed = ParseStrictJson(text, kMaxDepth);
  if (!parsed.ok()) return Damaged(parsed.status().message());
  Json& root = *parsed;
  const Json* format = FindMember(root, "format");
  if (format == nullptr || *format != "plumb-checkpoint") {
    return Damaged("\"format\" is not \"plumb-checkpoint\"");
  }
  const Json* version = FindMember(root, "version");
  const absl::optional<int64_t> number = version == nullptr ? absl::nullopt : AsInt64(*version);
  if (!number) return Damaged("\"version\" is missing");
  if (*number != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("has version ", *number, "; this plumb reads version ", kVersion));
  }
  const absl::optional<uint64_t> hash = ParseHash(FindMember(root, "hash"));
  if (!hash) return Damaged("\"hash\" is missing");
  root.erase("hash");
  const uint64_t actual = ContentHash(Canonical(root));
  if (actual != *hash) {
    return Damaged(absl::StrCat("its content has the hash ", HexDigits(actual), ", but it records ",
                                HexDigits(*hash)));
  }

  Checkpoint checkpoint;
  const Json* step = FindMember(root, "step");
  const absl::optional<int64_t> steps = step == nullptr ? absl::nullopt : AsInt64(*step);
  if (!steps || *steps < 0) return Damaged("\"step\" is missing");
  checkpoint.step = *steps;
  const Json* state = FindMember(root, "state");
  if (state == nullptr || !state->is_object()) return Damaged("\"state\" is missing");
  checkpoint.state = Canonical(*state);
  PLUMB_ASSIGN_OR_RETURN(checkpoint.files, ParseFiles(FindMember(root, "files")));
  return checkpoint;
}

}  // namespace plumb
