// SPDX-License-Identifier: Apache-2.0
// Implements WriteCheckpoint; the protocol is specified in checkpoint.h.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/formats/hash.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/checkpoint/checkpoint_layout.h"

namespace plumb {
namespace {

absl::Status Rename(const std::string& from, const std::string& to) {
  if (Files().Rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(from, ": cannot rename to ", to, ": ", ErrnoText(errno)));
}

absl::Status RemoveLeftovers(const std::string& checkpoints) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(checkpoints));
  for (const std::string& name : names) {
    if (absl::StartsWith(name, kTemporaryPrefix)) {
      PLUMB_RETURN_IF_ERROR(RemoveTree(JoinPath(checkpoints, name)));
    }
  }
  return absl::OkStatus();
}

// Writes one safetensors file. Records the size and hash of the intended bytes, not those of the
// file.
absl::Status WriteTensors(const std::string& directory, const char* name,
                          absl::Span<const TensorToWrite> tensors,
                          const std::map<std::string, std::string>& metadata,
                          Checkpoint* checkpoint) {
  const std::string path = JoinPath(directory, name);
  absl::StatusOr<SafetensorsImage> image = SafetensorsImage::Create(tensors, metadata);
  if (!image.ok()) return Annotate(image.status(), absl::StrCat(path, ": "));
  ContentHasher hasher;
  PLUMB_RETURN_IF_ERROR(WriteFileAtomically(path, [&](PieceSink sink) {
    return image->Produce([&](absl::string_view piece) {
      hasher.Update(piece);
      return sink(piece);
    });
  }));
  checkpoint->files[name] = {image->bytes(), hasher.Finish()};
  return absl::OkStatus();
}

absl::Status WriteFiles(const std::string& directory, const CheckpointContents& contents) {
  Checkpoint checkpoint;
  checkpoint.step = contents.step;
  checkpoint.state = contents.state;
  PLUMB_RETURN_IF_ERROR(
      WriteTensors(directory, kModelFile, contents.model, contents.metadata, &checkpoint));
  if (!contents.optimizer.empty()) {
    PLUMB_RETURN_IF_ERROR(WriteTensors(directory, kOptimizerFile, contents.optimizer,
                                       contents.metadata, &checkpoint));
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string state, FormatState(checkpoint));
  return WriteFileAtomically(JoinPath(directory, kStateFile), state);
}

// Renames the finished `temporary`. An existing checkpoint of that name is exchanged with it, so
// that one exists at any time, and becomes a leftover.
absl::Status Publish(const std::string& temporary, const std::string& directory) {
  if (!FileExists(directory)) return Rename(temporary, directory);
  if (Files().Exchange(temporary.c_str(), directory.c_str()) == 0) return absl::OkStatus();
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    return absl::UnavailableError(absl::StrCat(
        temporary, ": cannot replace the checkpoint of the same name: ", ErrnoText(errno)));
  }
  // The file system does not support exchange.
  PLUMB_RETURN_IF_ERROR(Rename(directory, absl::StrCat(temporary, "-old")));
  return Rename(temporary, directory);
}

// Deletes leftovers and the checkpoints of `steps`. Each directory is renamed durably first, since
// a partly deleted one must not look like a checkpoint.
absl::Status RemoveSteps(const std::string& checkpoints, absl::Span<const int64_t> steps) {
  for (const int64_t step : steps) {
    const std::string name = StepName(step);
    PLUMB_RETURN_IF_ERROR(
        Rename(JoinPath(checkpoints, name),
               JoinPath(checkpoints, absl::StrCat(kTemporaryPrefix, "delete-", name))));
  }
  PLUMB_RETURN_IF_ERROR(SyncDirectory(checkpoints));
  return RemoveLeftovers(checkpoints);
}

// Deletes leftovers, and all checkpoints up to `step` except the newest `keep` and `last_good`.
absl::Status CleanUp(const std::string& checkpoints, int64_t step, int64_t last_good, int keep) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<int64_t> steps, ListSteps(checkpoints));
  // Checkpoints of later steps are from before `latest` was set back; the run overwrites them.
  steps.erase(std::upper_bound(steps.begin(), steps.end(), step), steps.end());
  const size_t kept = keep > 0 ? static_cast<size_t>(keep) : steps.size();
  steps.resize(steps.size() - std::min(kept, steps.size()));
  steps.erase(std::remove(steps.begin(), steps.end(), last_good), steps.end());
  return RemoveSteps(checkpoints, steps);
}

}  // namespace

absl::Status WriteCheckpoint(const std::string& run_dir, const CheckpointContents& contents,
                             int keep) {
  const std::string name = StepName(contents.step);
  const std::string checkpoints = JoinPath(run_dir, kCheckpointsDirectory);
  const std::string temporary = JoinPath(checkpoints, absl::StrCat(kTemporaryPrefix, name));
  const std::string directory = JoinPath(checkpoints, name);
  if (contents.step < 0) {
    return absl::InvalidArgumentError(absl::StrCat("step must be >= 0, is ", contents.step));
  }

  PLUMB_RETURN_IF_ERROR(MakeDirectories(checkpoints));
  PLUMB_RETURN_IF_ERROR(RemoveLeftovers(checkpoints));
  PLUMB_RETURN_IF_ERROR(MakeDirectories(temporary));
  if (const absl::Status written = WriteFiles(temporary, contents); !written.ok()) {
    RemoveTree(temporary).IgnoreError();  // report the first error
    return written;
  }
  PLUMB_RETURN_IF_ERROR(Publish(temporary, directory));
  PLUMB_RETURN_IF_ERROR(SyncDirectory(checkpoints));
  PLUMB_RETURN_IF_ERROR(SyncDirectory(run_dir));
  PLUMB_RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(run_dir, kLatestFile), absl::StrCat(name, "\n")));
  if (contents.last_good >= 0) {
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(run_dir, kLastGoodFile),
                                              absl::StrCat(StepName(contents.last_good), "\n")));
  }

  return Annotate(CleanUp(checkpoints, contents.step, contents.last_good, keep),
                  absl::StrCat(directory, " is written, but not everything old is deleted: "));
}

std::string CheckpointPath(const std::string& run_dir, int64_t step) {
  return JoinPath(JoinPath(run_dir, kCheckpointsDirectory), StepName(step));
}

}  // namespace plumb
