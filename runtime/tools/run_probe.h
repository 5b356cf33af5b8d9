// The probes of a run: the user's options, as recorded in run.json, and the conversion of a
// session's figures to probes.jsonl and the public headers. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_RUN_PROBE_H_
#define PLUMB_RUNTIME_TOOLS_RUN_PROBE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/session/probe.h"
#include "runtime/session/probe_log.h"
#include "runtime/tools/probe.h"

namespace plumb {

// run.json with and out of it: `json` is a JSON object. kDataLoss for probes that are none.
std::string WithProbe(const std::string& json, const ProbeOptions& options);
absl::StatusOr<ProbeOptions> ProbeOf(const std::string& json);

// Figures with the same points as the last time allocate nothing.
void ToPublic(const ProbeResult& result, ProbeFigures* figures);

// Thread-compatible.
class RunProbe {
 public:
  // `path`: of probes.jsonl; "": no file is written. A file is made when there is a first line.
  explicit RunProbe(std::string path) : path_(std::move(path)) {}

  // Writes the figures of a step, and gives them as they are public, until the next call.
  absl::StatusOr<const ProbeFigures*> Take(const ProbeResult& result);
  absl::Status Sync();

 private:
  std::string path_;
  std::optional<ProbeWriter> writer_;
  ProbeFigures figures_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_RUN_PROBE_H_
