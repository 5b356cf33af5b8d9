// SPDX-License-Identifier: Apache-2.0
// plumb demo: compares pre-norm, post-norm and no norm, with all inputs built into the program.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/embedded_files.h"
#include "cli/output.h"
#include "cli/study_run.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/study/study.h"

namespace plumb::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultDirectory[] = "plumb-demo";
// Number of seeds that gives useful intervals and takes some seconds on two processors.
constexpr int64_t kDefaultSeeds = 10;
constexpr int64_t kProbeEvery = 100;
// Norm of the demo's models.
constexpr char kNorm[] = "rms_norm";
// File that marks the directory as a demo's; it is written first.
constexpr char kMarker[] = "README.md";
constexpr char kMarkerHead[] = "# plumb demo\n";

struct DemoFlags {
  std::string out = kDefaultDirectory;
  int64_t seeds = 0;  // 0: not given
  bool no_open = false;
};

// Returns a file's content, or nullopt if it cannot be read.
std::optional<std::string> ReadIfExists(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Fails unless `out` does not exist, is empty, or was made by a demo and has unmodified files.
// Writes nothing.
absl::Status CheckDirectory(const std::string& out) {
  std::error_code error;
  const fs::file_status there = fs::status(out, error);
  if (!fs::exists(there)) return absl::OkStatus();
  if (!fs::is_directory(there)) {
    return absl::InvalidArgumentError(absl::StrCat(
        out, ": is a file; name a directory with --out DIR, which plumb demo creates"));
  }
  const bool empty = fs::is_empty(out, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat(out, ": cannot read: ", error.message()));
  }
  if (empty) return absl::OkStatus();
  const std::optional<std::string> marker = ReadIfExists(absl::StrCat(out, "/", kMarker));
  if (!marker || !absl::StartsWith(*marker, kMarkerHead)) {
    return absl::AlreadyExistsError(
        absl::StrCat(out,
                     ": exists and was not made by plumb demo, so nothing in it is "
                     "changed; name another directory with --out DIR"));
  }
  for (const EmbeddedFile& file : DemoFiles()) {
    const std::string path = absl::StrCat(out, "/", file.name);
    if (file.name == kMarker || !fs::exists(path, error)) continue;
    if (ReadIfExists(path) == file.content) continue;
    return absl::AlreadyExistsError(
        absl::StrCat(path,
                     ": is no longer as plumb demo wrote it, so nothing is overwritten; plumb "
                     "compare trains with "
                     "it, and plumb demo --out DIR makes another demo"));
  }
  return absl::OkStatus();
}

// Writes the missing files. Each is written whole or not at all, so an interrupted demo can
// continue.
absl::Status WriteDemoFiles(const std::string& out) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat(out, ": cannot make the directory: ", error.message()));
  }
  for (const EmbeddedFile& file : DemoFiles()) {
    const std::string path = absl::StrCat(out, "/", file.name);
    if (fs::exists(path, error)) continue;
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(path, file.content));
  }
  return absl::OkStatus();
}

// Fails if the norm of the models is not available; to be called before anything is written.
absl::Status CheckNorm(HostRuntime* runtime) {
  const absl::Status found = ToStatus(runtime->api().DescribePlugin(kNorm)).status();
  if (found.ok()) return found;
  return absl::FailedPreconditionError(absl::StrCat(
      found.message(), "\nThe demo's models use ", kNorm,
      ", one of the norms that ship with plumb. In a clone of plumb, tools/build.sh release plumb "
      "plugins/all builds them; elsewhere PLUMB_PLUGIN_PATH names their directory."));
}

// Returns the number of seeds: the requested one, which must match a demo that already began in
// `out`.
absl::StatusOr<int64_t> NumberOfSeeds(const DemoFlags& options, const std::string& out) {
  const absl::StatusOr<Study> study = ReadStudy(absl::StrCat(out, "/study.pbtxt"));
  const int64_t begun = study.ok() ? static_cast<int64_t>(GetSeeds(study->fields).size()) : 0;
  if (begun == 0) return options.seeds > 0 ? options.seeds : kDefaultSeeds;
  if (options.seeds == 0 || options.seeds == begun) return begun;
  return absl::InvalidArgumentError(
      absl::StrCat("--seeds ", options.seeds, ": the demo in ", out, " has ", Count(begun, "seed"),
                   "; drop --seeds, or name another directory with --out DIR"));
}

absl::StatusOr<Study> DemoStudy(const std::string& out, int64_t seeds) {
  const auto in = [&out](const char* name) { return absl::StrCat(out, "/", name); };
  return MakeStudy({in("pre.pbtxt"), in("post.pbtxt"), in("no_norm.pbtxt")},
                   {{"", "data", in("names.txt")},
                    {"", "train", in("train.pbtxt")},
                    {"", "probe_every", absl::StrCat(kProbeEvery)},
                    {"--seeds", "seeds", absl::StrCat(seeds)}});
}

constexpr char kReading[] =
    "\n\"last 100\" is the loss at the end, in nats a token; a collapsed run learned letter counts "
    "only.\n"
    "\"post − pre\" pairs runs by seed: an interval that holds 0 shows no difference.\n";

std::string NextText(const std::string& out) {
  const auto in = [&out](const char* name) { return Quoted(absl::StrCat(out, "/", name)); };
  return absl::StrCat("\nnext\n  plumb describe ", in("pre.pbtxt"), "\n  cp ", in("pre.pbtxt"),
                      " mine.pbtxt    # and change its placement: plumb docs first-placement\n",
                      "  plumb compare ", in("pre.pbtxt"), " mine.pbtxt --data ", in("names.txt"),
                      " \\\n", "    --train ", in("train.pbtxt"), " --seeds 10 --out mine\n",
                      "plumb docs report explains the report.\n");
}

absl::StatusOr<int> Demo(const DemoFlags& options, const Invocation& invocation) {
  const StudyTimer timer;
  std::string out = options.out;
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  if (out.empty()) return absl::InvalidArgumentError("--out: is empty; name a directory");
  PLUMB_RETURN_IF_ERROR(CheckDirectory(out));
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_RETURN_IF_ERROR(CheckNorm(runtime.get()));
  PLUMB_ASSIGN_OR_RETURN(const int64_t seeds, NumberOfSeeds(options, out));
  PLUMB_RETURN_IF_ERROR(WriteDemoFiles(out));

  PrintNote(absl::StrCat("pre-norm, post-norm and no norm learn to spell names, ",
                         Count(seeds, "seed"), " each; into ", out));
  const std::string command = absl::StrCat("plumb demo --out ", Quoted(out), " --seeds ", seeds);
  StudyRequest request;
  PLUMB_ASSIGN_OR_RETURN(request.study, DemoStudy(out, seeds));
  request.out = out;
  request.command = command;
  StudyConsole console(&request, /*quiet=*/false, &invocation);
  const absl::StatusOr<StudyOutcome> outcome = RunStudy(request, timer, &console, runtime.get());
  if (!outcome.ok()) return console.ExitCode(outcome.status());
  PLUMB_RETURN_IF_ERROR(PrintResult(absl::StrCat(OutcomeText(*outcome), kReading, NextText(out))));
  if (!options.no_open && CanOpenFiles() && OpenFile(absl::StrCat(out, "/report.html"))) {
    PrintNote("opening the report (--no-open: do not)");
  }
  return kExitOk;
}

}  // namespace

void AddDemoCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<DemoFlags>();
  CLI::App* app = program->add_subcommand(
      "demo",
      "Train pre-norm, post-norm and no norm on names, and open a report that compares them");
  AddText(app, "--out", "DIR", &options->out,
          absl::StrCat("Directory of the demo. Default: ", kDefaultDirectory));
  AddInt(app, "--seeds", &options->seeds, 1, 10000,
         absl::StrCat("Train with the seeds 1 to N. Default: ", kDefaultSeeds));
  app->add_flag("--no-open", options->no_open, "Do not open the report");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Example:\n"
      "  plumb demo\n"
      "  plumb demo --seeds 20 --out /tmp/demo --no-open\n\n"
      "Needs no files: models, recipe and names are part of the program, which writes them into "
      "DIR\n"
      "for further use. The report is DIR/report.html; it is opened if stdout is a terminal and "
      "there\n"
      "is a display. The same command resumes an interrupted demo, and writes the report of a\n"
      "finished one again.");
  RunWhenSelected(app, options, Demo, invocation);
}

}  // namespace plumb::cli
