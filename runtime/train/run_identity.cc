// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/run_identity.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status.h"
#include "runtime/formats/file_hash.h"
#include "runtime/formats/hash.h"
#include "runtime/tokenizer/tokenizer_file.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/import_json.h"
#include "runtime/train/run_model.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr char kIdentity[] = "identity";
constexpr char kBefore[] = "before";

std::string ShortHash(absl::string_view text) { return Sha256(text).substr(0, 16); }

// Returns the lines of a recipe that do not begin with one of `heads`.
std::string WithoutLines(const std::string& text, const std::vector<absl::string_view>& heads) {
  std::string kept;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const bool is_dropped = std::any_of(heads.begin(), heads.end(), [line](absl::string_view head) {
      return absl::StartsWith(line, head);
    });
    if (!is_dropped) absl::StrAppend(&kept, line, "\n");
  }
  return kept;
}

const std::string& Part(const std::map<std::string, std::string>& parts, const std::string& name) {
  static const std::string& absent = *new std::string("absent");
  const auto found = parts.find(name);
  return found == parts.end() ? absent : found->second;
}

}  // namespace

RunIdentity RunIdentity::Of(const RunInputs& inputs) {
  RunIdentity identity;
  std::map<std::string, std::string>& parts = identity.parts_;
  parts["plumb"] = absl::StrCat(api::Version(), " build ", BuildId());
  parts["model"] = ShortHash(inputs.model);
  // The tokenizer is identified by its contents, not by its path.
  parts["recipe"] = ShortHash(WithoutLines(WithoutStorage(inputs.recipe), {"  tokenizer:"}));
  parts["data"] = inputs.data;
  parts["tokenizer"] = inputs.tokenizer;
  for (const auto& [id, norm] : inputs.norms) parts[absl::StrCat("norm ", id)] = norm;
  if (!inputs.init.empty()) parts["init"] = inputs.init;
  parts["seed"] = absl::StrCat(inputs.seed);
  if (inputs.probe.every > 0) {
    parts["probes"] =
        absl::StrCat(inputs.probe.every, " ", absl::StrJoin(inputs.probe.points, " "));
  }
  if (inputs.samples > 0) parts["samples"] = absl::StrCat(inputs.samples);
  return identity;
}

absl::StatusOr<std::optional<RunIdentity>> RunIdentity::FromRunJson(const std::string& json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains(kIdentity)) return std::nullopt;
  RunIdentity identity;
  const Json& parts = object[kIdentity];
  for (const auto& [name, part] : parts.items()) {
    if (!parts.is_object() || !part.is_string()) {
      return absl::DataLossError("\"identity\" must be an object of texts");
    }
    identity.parts_[name] = part.get<std::string>();
  }
  return identity;
}

std::string RunIdentity::InRunJson(const std::string& json) const {
  Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return json;
  object[kIdentity] = parts_;
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string RunIdentity::UnknownPart() const {
  for (const auto& [name, part] : parts_) {
    if (part.empty()) return name;
  }
  return "";
}

std::string RunIdentity::Hash() const { return Sha256(Json(parts_).dump()); }

std::vector<std::string> RunIdentity::Differences(const RunIdentity& now,
                                                  const std::vector<std::string>& except) const {
  std::map<std::string, std::string> all = parts_;
  all.insert(now.parts_.begin(), now.parts_.end());
  std::vector<std::string> lines;
  for (const auto& each : all) {
    const std::string& name = each.first;
    if (std::count(except.begin(), except.end(), name) > 0) continue;
    const std::string &before = Part(parts_, name), &after = Part(now.parts_, name);
    if (before == after && !before.empty()) continue;
    lines.push_back(before.empty() || after.empty()
                        ? absl::StrCat(name, ": has no version, so that changes cannot be seen")
                        : absl::StrCat(name, ": ", before, ", now ", after));
  }
  return lines;
}

std::string RunIdentity::Get(const std::string& name) const {
  const auto found = parts_.find(name);
  return found == parts_.end() ? "" : found->second;
}

void RunIdentity::Keep(const RunIdentity& other, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    parts_.erase(name);
    if (other.parts_.count(name) > 0) parts_[name] = other.Get(name);
  }
}

void RunIdentity::ContinueAs(const RunIdentity& now, int64_t step) {
  std::string before = parts_.count(kBefore) > 0 ? parts_[kBefore] : "";
  const std::vector<std::string> changes = Differences(now, {kBefore});
  if (!changes.empty() && step > 0) {
    absl::StrAppend(&before, before.empty() ? "" : "; ", "step ", step, ": ",
                    absl::StrJoin(changes, ", "));
  }
  parts_ = now.parts_;
  if (!before.empty()) parts_[kBefore] = before;
}

std::string WithoutStorage(const std::string& recipe) {
  return WithoutLines(
      recipe,
      {"seed:", "checkpoint_interval:", "checkpoint_seconds:", "keep_checkpoints:", "recompute:"});
}

std::string HashOfTokenizer(const Tokenizer& tokenizer) {
  return ShortHash(
      absl::StrCat(tokenizer.ToJson(), GenerationConfigJson(tokenizer.special_tokens())));
}

absl::StatusOr<std::map<std::string, std::string>> IdentifyNorms(HostRuntime* runtime,
                                                                 const api::Model& model) {
  PLUMB_ASSIGN_OR_RETURN(const std::string norms, ToStatus(model.Norms()));
  std::map<std::string, std::string> identities;
  const Json versions = Json::parse(norms);
  for (const auto& [id, version] : versions.items()) {
    PLUMB_ASSIGN_OR_RETURN(const std::string text, ToStatus(runtime->api().DescribePlugin(id)));
    const Json plugin = Json::parse(text);
    // A norm that is linked into a program has no file of its own, but its code is in a file, too.
    const std::string hash = plugin["sha256"], code = plugin["code"];
    identities[id] = hash.substr(0, 16);
    if (!hash.empty()) continue;
    identities[id] = version.get<std::string>();
    if (!code.empty()) {
      PLUMB_ASSIGN_OR_RETURN(identities[id], HashOfFile(code));
    }
  }
  return identities;
}

absl::StatusOr<std::string> IdentifyWeights(const std::string& run) {
  if (run.empty()) return run;
  PLUMB_ASSIGN_OR_RETURN(const RunAndCheckpoint where, LocateRun(run));
  if (where.checkpoint.empty()) {
    // import.json has the hashes of the files that stay in the checkpoint.
    PLUMB_ASSIGN_OR_RETURN(const std::string import,
                           ReadFile(JoinPath(where.run, kImportFile), kMaxStateBytes));
    const std::string weights = JoinPath(where.run, kImportedWeights);
    std::string hash;
    if (FileExists(weights)) {
      PLUMB_ASSIGN_OR_RETURN(hash, HashOfFile(weights));
    }
    return ShortHash(absl::StrCat(import, hash));
  }
  PLUMB_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(where.checkpoint));
  const auto model = checkpoint.files.find("model.safetensors");
  if (model == checkpoint.files.end()) {
    return absl::DataLossError(absl::StrCat(where.checkpoint, ": names no model.safetensors"));
  }
  return HexDigits(model->second.hash);
}

}  // namespace plumb
