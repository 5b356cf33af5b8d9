// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/run_directory.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/formats/strict_json.h"
#include "runtime/tokenizer/tokenizer_file.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/import_json.h"

namespace plumb {
namespace {

// Files of a run. A new run writes run.json first and model.pbtxt last.
constexpr absl::string_view kRunNames[] = {
    "run.json",    "tokenizer.json",  "train.pbtxt", "model.pbtxt",
    "metrics.csv", "probes.jsonl",    "checkpoints", "latest",
    "last_good",   "incidents.jsonl", "import.json", kGenerationConfigFile};

std::string TokenizerPath(const std::string& run) { return JoinPath(run, "tokenizer.json"); }

// Reads the special tokens of a run and sets them in its tokenizer.
absl::Status ReadSpecial(const std::string& run, RunFiles* files) {
  absl::optional<ImportedFamily> imported;
  if (IsImportedRun(run)) {
    PLUMB_ASSIGN_OR_RETURN(imported, ReadImportedFamily(run));
  }
  const Tokenizer* const tokenizer = files->tokenizer.ok() ? &*files->tokenizer : nullptr;
  PLUMB_ASSIGN_OR_RETURN(files->special,
                         ReadSpecialTokens(run, imported ? &imported->config : nullptr, tokenizer,
                                           GetVocabSize(files->model)));
  // Runs written before plumb had this file began documents with the token that ends them.
  if (!imported && !FileExists(JoinPath(run, kGenerationConfigFile)) &&
      !files->special.end.empty()) {
    files->special.begin = files->special.end.front();
  }
  if (tokenizer != nullptr) files->tokenizer->set_special_tokens(files->special);
  return absl::OkStatus();
}

// Returns true if run.json was written by plumb.
bool HoldsRunJson(const std::string& run) {
  constexpr int kDepth = 16;
  const absl::StatusOr<std::string> text = ReadFile(RunJsonPath(run), kMaxStateBytes);
  if (!text.ok()) return false;
  const absl::StatusOr<nlohmann::json> json = ParseStrictJson(*text, kDepth);
  return json.ok() && FindMember(*json, "data_hash") != nullptr;
}

}  // namespace

std::string RunModelPath(const std::string& run) { return JoinPath(run, "model.pbtxt"); }
std::string RunTrainPath(const std::string& run) { return JoinPath(run, "train.pbtxt"); }
std::string RunJsonPath(const std::string& run) { return JoinPath(run, "run.json"); }
std::string RunMetricsPath(const std::string& run) { return JoinPath(run, "metrics.csv"); }
std::string RunProbesPath(const std::string& run) { return JoinPath(run, "probes.jsonl"); }
std::string RunIncidentsPath(const std::string& run) { return JoinPath(run, "incidents.jsonl"); }
std::string RunResultPath(const std::string& run) { return JoinPath(run, "result.json"); }

absl::StatusOr<DirectoryLock> LockRun(const std::string& run) {
  PLUMB_RETURN_IF_ERROR(MakeDirectories(run));
  absl::StatusOr<DirectoryLock> lock = DirectoryLock::Acquire(run);
  if (!absl::IsAlreadyExists(lock.status())) return lock;
  return absl::AlreadyExistsError(absl::StrCat(
      run, ": another process is training into it; wait for it, or choose another --out"));
}

absl::Status RemoveRunTemporaries(const std::string& run) {
  return RemoveTemporaries(run, kRunNames);
}

absl::Status CheckMayBegin(const std::string& run) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(run, error);
  if (!error && whole == whole.root_path()) {
    return absl::InvalidArgumentError(
        absl::StrCat(run, ": is the root of the file system; choose another --out"));
  }
  if (IsImportedRun(run)) {
    return absl::AlreadyExistsError(
        absl::StrCat(run, ": holds an imported model; choose another --out, and --init ", run,
                     " to begin with its weights"));
  }
  const bool ours = HoldsRunJson(run);
  if (IsRunDirectory(run) && ours) {
    return absl::AlreadyExistsError(absl::StrCat(
        run, ": already holds a run; --resume continues it, another --out starts a new one"));
  }
  // Without model.pbtxt and without a checkpoint, the run was stopped while it began.
  if (ours && absl::IsNotFound(FindLatestCheckpoint(run).status())) return absl::OkStatus();
  for (const absl::string_view name : kRunNames) {
    if (!FileExists(JoinPath(run, name))) continue;
    return absl::AlreadyExistsError(
        absl::StrCat(JoinPath(run, name), ": a run would overwrite it; choose another --out"));
  }
  return absl::OkStatus();
}

bool IsRunDirectory(const std::string& run) { return FileExists(RunModelPath(run)); }

absl::Status NoRun(const std::string& run, absl::string_view text) {
  const absl::Status why = ReadFile(RunModelPath(run), kMaxTextBytes).status();
  return absl::IsPermissionDenied(why) ? why : absl::NotFoundError(text);
}

absl::Status WriteRunFiles(const std::string& run, const std::string& model_text,
                           const Recipe& recipe, const Tokenizer& tokenizer,
                           const std::string& initial_state) {
  return WriteFilesAtomically(
      {{RunJsonPath(run), absl::StrCat(initial_state, "\n")},
       {TokenizerPath(run), tokenizer.ToJson()},
       {JoinPath(run, kGenerationConfigFile), GenerationConfigJson(tokenizer.special_tokens())},
       {RunTrainPath(run), recipe.text},
       {RunModelPath(run), model_text}});
}

absl::StatusOr<RunFiles> ReadRunFiles(const std::string& run, const Overrides& train_overrides) {
  if (!IsRunDirectory(run)) {
    return NoRun(run, absl::StrCat(run, ": holds no run (there is no ", RunModelPath(run),
                                   "); plumb train makes one"));
  }
  PLUMB_ASSIGN_OR_RETURN(api::Spec model, ReadSpec(RunModelPath(run)));
  if (IsImportedRun(run)) {
    PLUMB_ASSIGN_OR_RETURN(Recipe defaults, ReadRecipe("", train_overrides));
    RunFiles files{std::move(model), std::move(defaults), ReadTokenizer(run), "{}", {}};
    PLUMB_RETURN_IF_ERROR(ReadSpecial(run, &files));
    return files;
  }
  PLUMB_ASSIGN_OR_RETURN(Recipe recipe, ReadRecipe(RunTrainPath(run), train_overrides));
  PLUMB_ASSIGN_OR_RETURN(const std::string json, ReadFile(TokenizerPath(run), kMaxStateBytes));
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(json);
  if (!tokenizer.ok()) {
    return Annotate(tokenizer.status(), absl::StrCat(TokenizerPath(run), ": "));
  }
  PLUMB_ASSIGN_OR_RETURN(std::string initial_state, ReadFile(RunJsonPath(run), kMaxStateBytes));
  RunFiles files{
      std::move(model), std::move(recipe), *std::move(tokenizer), std::move(initial_state), {}};
  PLUMB_RETURN_IF_ERROR(ReadSpecial(run, &files));
  return files;
}

}  // namespace plumb
