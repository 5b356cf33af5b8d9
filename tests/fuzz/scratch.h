// SPDX-License-Identifier: Apache-2.0
// A directory for a fuzzer's files, in memory if possible. It is removed when the process ends
// normally.
#ifndef PLUMB_TESTS_FUZZ_SCRATCH_H_
#define PLUMB_TESTS_FUZZ_SCRATCH_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

class FuzzScratch {
 public:
  explicit FuzzScratch(absl::string_view name);

  const std::string& path() const { return path_; }
  // Writes a file without atomicity and without a sync. Returns its path.
  std::string Write(absl::string_view name, absl::string_view content) const;
  void Clear() const;

 private:
  std::string path_;
};

}  // namespace plumb

#endif  // PLUMB_TESTS_FUZZ_SCRATCH_H_
