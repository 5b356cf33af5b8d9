// Files that a command is asked to write.
#ifndef PLUMB_CLI_OUTPUT_FILES_H_
#define PLUMB_CLI_OUTPUT_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace plumb::cli {

struct NamedFile {
  std::string option;  // "--logits"
  std::string path;    // empty: not said
};

// Refuses an output that is an input too, and two outputs in one file. To be asked before anything
// is computed.
absl::Status CheckOutputFiles(const std::vector<NamedFile>& outputs,
                              const std::vector<NamedFile>& inputs);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_OUTPUT_FILES_H_
