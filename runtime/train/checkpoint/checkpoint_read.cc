// SPDX-License-Identifier: Apache-2.0
// Finds and reads checkpoints; the layout is specified in checkpoint.h.
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/hash.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/checkpoint/checkpoint_layout.h"

namespace plumb {
namespace {

std::string ListNames(const std::vector<int64_t>& steps) {
  if (steps.empty()) return "there is no other checkpoint";
  return absl::StrCat("there are ", absl::StrJoin(steps, ", ", [](std::string* out, int64_t step) {
                        absl::StrAppend(out, StepName(step));
                      }));
}

absl::StatusOr<SafetensorsFile> OpenChecked(const Checkpoint& checkpoint, const char* name) {
  const std::string path = JoinPath(checkpoint.directory, name);
  const auto it = checkpoint.files.find(name);
  if (it == checkpoint.files.end()) {
    return absl::NotFoundError(absl::StrCat(checkpoint.directory, ": was written without ", name));
  }
  const Checkpoint::File& expected = it->second;
  if (!FileExists(path)) {
    return absl::DataLossError(absl::StrCat(path, ": is missing, but ", kStateFile, " lists it"));
  }
  PLUMB_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const int64_t bytes = static_cast<int64_t>(file.content().size());
  if (bytes != expected.bytes) {
    return absl::DataLossError(absl::StrCat(path, ": has ", bytes, " bytes, but ", kStateFile,
                                            " records ", expected.bytes,
                                            "; was it cut or replaced?"));
  }
  const uint64_t hash = ContentHash(file.content());
  if (hash != expected.hash) {
    return absl::DataLossError(absl::StrCat(path, ": its content was altered: it has the hash ",
                                            HexDigits(hash), ", but ", kStateFile, " records ",
                                            HexDigits(expected.hash)));
  }
  return SafetensorsFile::FromMapped(std::move(file), path);
}

}  // namespace

absl::StatusOr<std::string> FindLatestCheckpoint(const std::string& run_dir) {
  const std::string checkpoints = JoinPath(run_dir, kCheckpointsDirectory);
  const std::string latest = JoinPath(run_dir, kLatestFile);
  std::vector<int64_t> steps;
  if (IsDirectory(checkpoints)) {
    PLUMB_ASSIGN_OR_RETURN(steps, ListSteps(checkpoints));
  }
  if (!FileExists(latest)) {
    if (steps.empty()) {
      return absl::NotFoundError(
          absl::StrCat(run_dir, ": has no checkpoint; is it the directory of a training run?"));
    }
    return JoinPath(checkpoints, StepName(steps.back()));
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string content, ReadFile(latest, kMaxTextBytes));
  const absl::string_view name = absl::StripAsciiWhitespace(content);
  const std::string directory = JoinPath(checkpoints, name);
  if (!ParseStepName(name) || !IsDirectory(directory)) {
    return absl::DataLossError(absl::StrCat(latest, ": names ", QuoteName(name),
                                            ", which is not in ", checkpoints, "; ",
                                            ListNames(steps)));
  }
  return directory;
}

absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& directory) {
  const std::string path = JoinPath(directory, kStateFile);
  if (!FileExists(path)) {
    return absl::DataLossError(
        absl::StrCat(path, ": is missing; ", directory, " is not a whole checkpoint"));
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxStateBytes));
  absl::StatusOr<Checkpoint> checkpoint = ParseState(text);
  if (!checkpoint.ok()) return Annotate(checkpoint.status(), absl::StrCat(path, ": "));
  checkpoint->directory = directory;
  return checkpoint;
}

absl::StatusOr<SafetensorsFile> OpenCheckpointModel(const Checkpoint& checkpoint) {
  return OpenChecked(checkpoint, kModelFile);
}

absl::StatusOr<SafetensorsFile> OpenCheckpointOptimizer(const Checkpoint& checkpoint) {
  return OpenChecked(checkpoint, kOptimizerFile);
}

}  // namespace plumb
