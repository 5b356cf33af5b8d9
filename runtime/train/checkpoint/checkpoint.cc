// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/checkpoint/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/hash.h"
#include "runtime/formats/safetensors.h"
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr int64_t kVersion = 1;
constexpr int kMaxDepth = 32;
constexpr char kLatestFile[] = "latest";
constexpr char kLastGoodFile[] = "last_good";
constexpr char kCheckpointsDirectory[] = "checkpoints";
constexpr char kTemporaryPrefix[] = ".tmp-";
constexpr char kModelFile[] = "model.safetensors";
constexpr char kOptimizerFile[] = "optimizer.safetensors";
constexpr char kStateFile[] = "state.json";

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

// Returns the steps in the directory `checkpoints`, ascending. Errors: NotFound if it is no
// directory.
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

// Returns state.json of a checkpoint. Errors: InvalidArgument if `state` is no JSON object.
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

// Returns the checkpoint of a state.json, without its directory. Errors: DataLoss for anything that
// FormatState did not write.
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
    return absl::NotFoundError(
        absl::StrCat(checkpoint.directory, ": was written without ", name,
                     ", as the last checkpoint of a study's run is, unless plumb compare has "
                     "--keep-checkpoints"));
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

std::vector<api::TensorView<float>> GetTensors(api::Trainer* trainer, api::State state) {
  std::vector<api::TensorView<float>> tensors;
  for (;;) {  // until there are no more
    const auto tensor = trainer->StateTensor(state, tensors.size());
    if (!tensor.ok()) return tensors;
    tensors.push_back(*tensor);
  }
}

Shape GetShape(const api::TensorView<float>& tensor) {
  return Shape(absl::MakeConstSpan(tensor.shape.data(), static_cast<size_t>(tensor.rank)));
}

// Copies in blocks, since a tensor in the file need not be aligned.
absl::Status ReadInBlocks(const TensorEntry& from, api::Trainer* trainer, api::State state,
                          size_t i) {
  constexpr int64_t kBlock = int64_t{1} << 18;  // a megabyte of floats
  const int64_t all = from.shape.num_elements();
  std::vector<float> block(static_cast<size_t>(std::min(all, kBlock)));
  for (int64_t begin = 0; begin < all; begin += kBlock) {
    const auto n = static_cast<size_t>(std::min(kBlock, all - begin));
    std::memcpy(block.data(), from.data.data() + begin * SizeOf(DType::kF32), n * sizeof(float));
    PLUMB_RETURN_IF_ERROR(ToStatus(trainer->WriteState(state, i, begin, {block.data(), n})));
  }
  return absl::OkStatus();
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
          absl::StrCat(run_dir,
                       ": has no checkpoint; a run that trains has none yet, and of a study "
                       "only the runs of one seed keep their weights, unless plumb compare "
                       "has --keep-checkpoints"));
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

absl::Status RemoveCheckpoints(const std::string& run_dir) {
  for (const char* name : {kCheckpointsDirectory, kLatestFile, kLastGoodFile}) {
    PLUMB_RETURN_IF_ERROR(RemoveTree(JoinPath(run_dir, name)));
  }
  return absl::OkStatus();
}

std::string CheckpointPath(const std::string& run_dir, int64_t step) {
  return JoinPath(JoinPath(run_dir, kCheckpointsDirectory), StepName(step));
}

std::vector<TensorToWrite> StateTensors(api::Trainer* trainer, api::State state) {
  std::vector<TensorToWrite> tensors;
  for (const api::TensorView<float>& tensor : GetTensors(trainer, state)) {
    const size_t i = tensors.size();
    tensors.push_back({std::string(tensor.name), F32(GetShape(tensor)), tensor.data.data()});
    if (tensor.data.data() != nullptr) continue;
    tensors[i].copy = [trainer, state, i](int64_t begin, int64_t n, void* to) {
      const api::Span<float> block(static_cast<float*>(to), static_cast<size_t>(n));
      const bool is_read = trainer->ReadState(state, i, begin, block).ok();
      PLUMB_CHECK(is_read, "the elements of the trainer's tensors can be read");
    };
  }
  return tensors;
}

absl::Status ReadState(const SafetensorsFile& file, api::Trainer* trainer, api::State state) {
  const std::vector<api::TensorView<float>> tensors = GetTensors(trainer, state);
  std::vector<WantedTensor> wanted;
  for (const auto& tensor : tensors) wanted.push_back({std::string(tensor.name), GetShape(tensor)});
  PLUMB_RETURN_IF_ERROR(
      CheckTensorsFit(file, wanted, /*prefix=*/"",
                      state == api::State::kOptimizer ? kOptimizerOfTheRecipe : "the model"));
  for (size_t i = 0; i < tensors.size(); ++i) {
    PLUMB_RETURN_IF_ERROR(ReadInBlocks(*file.Find(wanted[i].name), trainer, state, i));
  }
  return absl::OkStatus();
}

}  // namespace plumb
