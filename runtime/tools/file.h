// Files, as plumb reads and writes them.
#ifndef PLUMB_RUNTIME_TOOLS_FILE_H_
#define PLUMB_RUNTIME_TOOLS_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Writes `content` to a temporary beside `path`, syncs it, and renames it over `path`, which so
// holds the old content or the new, whole, whatever happens. Symbolic links are followed, and a
// file that exists keeps its mode. What is no regular file (a device, a pipe, /dev/stdout) is
// written through. Errors: a directory, or a place that does not exist or is not the caller's
// (kInvalidArgument), a full disk (kResourceExhausted), another failure of the system
// (kUnavailable).
absl::Status WriteFile(const std::string& path, absl::string_view content);

// The content of a file of at most `max_bytes`. Errors: not there (kNotFound), a directory or
// longer (kInvalidArgument), no memory for it (kResourceExhausted), another failure of the system.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);
// False where it is certain: where the system does not say, what opens the path says so.
bool FileExists(const std::string& path);

// mkdir -p, rm -rf, and the sorted names in a directory.
absl::Status MakeDirectories(const std::string& path);
absl::Status RemoveTree(const std::string& path);
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// Bytes that this user may still write where `path` is, or would be made; -1 where the system does
// not say.
int64_t FreeSpace(const std::string& path);

// Of what plumb writes, a result or the metrics of a run: ReadFile's limit.
inline constexpr int64_t kMaxResultBytes = int64_t{1} << 40;

// Whether both paths name one regular file, or would if it were made: writing one would lose the
// other.
bool IsSameOutput(const std::string& a, const std::string& b);

// Keeps other processes that ask out of a directory for as long as the result lives, or the
// process, however it ends. Errors: another process holds it (kAlreadyExists), no such directory
// (kNotFound).
absl::StatusOr<std::shared_ptr<void>> LockDirectory(const std::string& path);

// Keeps a file or directory that is being filled under a temporary name on the list of what
// RemoveUnfinishedPaths removes, for as long as the result lives. Files of WriteFile are on it.
std::shared_ptr<void> MarkUnfinished(const std::string& path);
// Removes what this process has not finished. Async-signal-safe, for a handler that ends it.
void RemoveUnfinishedPaths();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_FILE_H_
