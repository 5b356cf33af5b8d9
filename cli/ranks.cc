#include "cli/ranks.h"

#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/installation.h"
#include "cli/output.h"

namespace plumb::cli {
namespace {

absl::StatusOr<int> Call(
    Launch* launch, const Invocation& invocation,
    const std::function<absl::StatusOr<int>(Launch* launch, const Invocation& invocation)>& work) {
  try {
    return work(launch, invocation);
  } catch (const std::bad_alloc&) {
    if (launch->size() == 1) throw;
    const MemoryRoom memory = Memory();
    return absl::ResourceExhaustedError(absl::StrCat(
        "out of memory; this process may use ", Bytes(memory.limit), " (", memory.limited_by, ")"));
  }
}

}  // namespace

void AddRankOptions(CLI::App* app, RankFlags* flags) {
  app->add_option(
         "--rank-grace", flags->grace,
         "Under mpirun: seconds after which a rank that does not answer is taken for dead, "
         "and ends all; default 60; 0: never")
      ->check(CLI::NonNegativeNumber)
      ->type_name("SECONDS");
}

absl::StatusOr<int> RunRanks(
    const RankFlags& flags, const Invocation& invocation,
    const std::function<absl::StatusOr<int>(Launch* launch, const Invocation& invocation)>& work) {
  LaunchOptions options;
  // Where this program is not installed there is no such file, and an error under a launcher: ranks
  // that know nothing of each other would write into one directory.
  const std::string prefix = InstallPrefix();
  options.mpi_library =
      absl::StrCat(prefix.empty() ? OwnDirectory() : prefix, "/" PLUMB_MPI_LIBRARY_FILE);
  options.grace_seconds = flags.grace;
  options.print_error = [](const std::string& text) { PrintError(text); };
  options.print_note = [](const std::string& text) { PrintNote(text); };
  absl::StatusOr<std::unique_ptr<Launch>> launch = Launch::Find(options);
  if (!launch.ok()) {
    // All ranks have it.
    if (Launch::LaunchedRank() == 0) PrintError(launch.status().message());
    return kExitFailed;
  }
  if ((*launch)->size() == 1) return Call(launch->get(), invocation, work);
  Invocation mine = invocation;
  if (mine.threads == 0) mine.threads = (*launch)->default_threads();
  const absl::StatusOr<int> code = Call(launch->get(), mine, work);
  if (code.ok()) return (*launch)->End(absl::OkStatus(), *code);
  const int exit_code = ExitCodeOf(code.status());
  // That nobody reads what it prints is nothing to tell.
  const absl::Status told =
      IsReaderGone(code.status()) ? absl::Status(absl::StatusCode::kUnknown, "") : code.status();
  return (*launch)->End(told, exit_code);
}

}  // namespace plumb::cli
