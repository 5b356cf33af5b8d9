// The files of a run on their way into a study's directory: from a shard, or from another rank.
// There is never half a run in its place: files gather beside it, and are put there at once.
#ifndef PLUMB_CLI_COMPARE_RUN_FILES_H_
#define PLUMB_CLI_COMPARE_RUN_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb::cli {

// The regular files below `directory`, as paths relative to it, sorted.
absl::StatusOr<std::vector<std::string>> ListRunFiles(const std::string& directory);

// Thread-compatible.
class IncomingRun {
 public:
  // What gathered for the same run before is removed.
  static absl::StatusOr<IncomingRun> Begin(const std::string& directory);

  // kInvalidArgument for a path that leads out of the run.
  absl::Status Add(const std::string& path, absl::string_view content);
  // Takes the place of what the run had.
  absl::Status Finish();

 private:
  explicit IncomingRun(std::string directory);
  std::string directory_, gathering_;
};

absl::Status CopyRun(const std::string& from, const std::string& to);

// Removes what gathered in `out`/runs for a process that was ended.
absl::Status RemoveIncomingRuns(const std::string& out);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_RUN_FILES_H_
