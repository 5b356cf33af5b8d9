// SPDX-License-Identifier: Apache-2.0
// Fuzzes damaged run directories. They are opened and resumed to the end, or refused with an error.
// The process never crashes, and no complete checkpoint is lost in an error.
//
// The bytes are a list of damages to a run that is created once. Each consists of the number of a
// file, a kind of damage, and its parameters.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/train/train_run.h"
#include "runtime/train/trained_model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scratch.h"

namespace plumb {
namespace {

using Files = std::map<std::string, std::string>;  // content by path in the run

constexpr char kModel[] =
    "n_layer: 1 n_head: 1 d_model: 4 d_ff: \"4\" context_length: 4\n"
    "block { placement: \"pre\" norm: \"rms_norm\" }\n";
constexpr char kTraining[] =
    "max_steps: 4 batch_size: 1 checkpoint_interval: 2 checkpoint_seconds: 0\n"
    "data { format: DOCUMENTS val_fraction: 0.3 }\n";

const FuzzScratch& Scratch() {
  static const FuzzScratch* const scratch = new FuzzScratch("run");
  return *scratch;
}
std::string RunPath() { return JoinPath(Scratch().path(), "run"); }
std::string DataPath() { return JoinPath(Scratch().path(), "data.txt"); }

Files ReadAll(const std::string& root) {
  Files files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().string().substr(root.size() + 1)] =
        std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

// Returns the files of a run of four steps that stopped after three, with checkpoints of steps 2
// and 3.
Files MakeRun() {
  Scratch().Write("model.pbtxt", kModel);
  Scratch().Write("train.pbtxt", kTraining);
  Scratch().Write("data.txt", "ab\nba\naab\nbb\nabba\nb\na\nbab\n");
  TrainRequest request;
  request.model_path = JoinPath(Scratch().path(), "model.pbtxt");
  request.train_path = JoinPath(Scratch().path(), "train.pbtxt");
  request.data_path = DataPath();
  request.out = RunPath();
  request.probe.every = 2;
  auto run = TrainRun::Open(FuzzRuntime(), request);
  PLUMB_CHECK(run.ok(), "the run that is to be damaged does not begin");
  for (int i = 0; i < 3; ++i) PLUMB_CHECK((*run)->Step().ok(), "a step fails");
  PLUMB_CHECK((*run)->SaveCheckpoint().ok(), "no checkpoint");
  run->reset();
  return ReadAll(RunPath());
}

void Damage(const Files& whole, FuzzBytes* bytes, Files* files) {
  auto file = std::next(whole.begin(), bytes->Below(static_cast<uint32_t>(whole.size())));
  std::string& content = (*files)[file->first];
  const uint32_t at = content.empty() ? 0 : bytes->Below(static_cast<uint32_t>(content.size()));
  switch (bytes->Below(8)) {
    case 0:
      content.resize(at);
      break;
    case 1:
      if (!content.empty()) content[at] = static_cast<char>(content[at] ^ (1 << bytes->Below(8)));
      break;
    case 2:
      content.insert(at, bytes->Text(bytes->Below(64)));
      break;
    case 3: {
      const std::string text = bytes->Text(bytes->Below(64));
      content.replace(at, text.size(), text);
      break;
    }
    case 4:
      content = bytes->Text(bytes->Below(512));
      break;
    case 5:
      files->erase(file->first);
      break;
    case 6:
      content = std::next(whole.begin(), bytes->Below(static_cast<uint32_t>(whole.size())))->second;
      break;
    default:
      content.erase(at, 1 + bytes->Below(64));
  }
}

// Returns the files of those checkpoints that are undamaged.
Files WholeCheckpoints(const Files& whole, const Files& files) {
  Files kept;
  for (const char* name : {"checkpoints/step-000002/", "checkpoints/step-000003/"}) {
    bool is_whole = true;
    Files checkpoint;
    for (const auto& [path, content] : whole) {
      if (!absl::StartsWith(path, name)) continue;
      const auto found = files.find(path);
      is_whole = is_whole && found != files.end() && found->second == content;
      checkpoint[path] = content;
    }
    if (is_whole) kept.insert(checkpoint.begin(), checkpoint.end());
  }
  return kept;
}

void Resume(const Files& whole_checkpoints) {
  TrainRequest request;
  request.data_path = DataPath();
  request.out = RunPath();
  request.resume = true;
  auto run = TrainRun::Open(FuzzRuntime(), request);
  FuzzRuntime()->TakeWarnings();
  if (run.ok()) {
    // A damaged recipe may have any number of steps.
    for (int i = 0; i < 3 && !(*run)->done(); ++i) {
      if (!(*run)->Step().ok()) return;
    }
    PLUMB_CHECK((*run)->SaveCheckpoint().ok(), "no checkpoint");
    return;
  }
  PLUMB_CHECK(!run.status().message().empty(), "an error without words");
  const Files left = ReadAll(RunPath());
  for (const auto& [path, content] : whole_checkpoints) {
    const auto found = left.find(path);
    PLUMB_CHECK(found != left.end() && found->second == content, "a whole checkpoint is lost");
  }
}

PLUMB_FUZZER(run_directory) {
  static const Files* const whole = new Files(MakeRun());
  FuzzBytes bytes(data, size);
  Files files = *whole;
  for (int i = 0; i < 4 && !bytes.empty(); ++i) Damage(*whole, &bytes, &files);
  std::filesystem::remove_all(RunPath());
  for (const auto& [path, content] : files) Scratch().Write(absl::StrCat("run/", path), content);
  if (const auto trained = TrainedModel::Open(FuzzRuntime(), RunPath()); trained.ok()) {
    GenerateOptions options;
    options.max_tokens = 3;
    static_cast<void>((*trained)->Generate(options).ok());
  }
  Resume(WholeCheckpoints(*whole, files));
}

}  // namespace
}  // namespace plumb
