#include "cli/output_files.h"

#include "absl/strings/str_cat.h"
#include "runtime/tools/file.h"

namespace plumb::cli {
namespace {

bool Collide(const NamedFile& a, const NamedFile& b) {
  return !a.path.empty() && !b.path.empty() && IsSameOutput(a.path, b.path);
}

}  // namespace

absl::Status CheckOutputFiles(const std::vector<NamedFile>& outputs,
                              const std::vector<NamedFile>& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& output = outputs[i];
    for (const NamedFile& input : inputs) {
      if (!Collide(output, input)) continue;
      return absl::InvalidArgumentError(absl::StrCat(output.option, " ", output.path,
                                                     ": is the file of ", input.option,
                                                     ", which would be lost; write to another"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (!Collide(output, outputs[j])) continue;
      return absl::InvalidArgumentError(absl::StrCat(output.option, " ", output.path,
                                                     ": is the file of ", outputs[j].option,
                                                     " too; write to two files"));
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb::cli
