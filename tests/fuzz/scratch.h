// SPDX-License-Identifier: Apache-2.0
// A directory in memory, where there is one, for a fuzzer's files; gone with the process that ends
// well.
#ifndef PLUMB_TESTS_FUZZ_SCRATCH_H_
#define PLUMB_TESTS_FUZZ_SCRATCH_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

class FuzzScratch {
 public:
  explicit FuzzScratch(absl::string_view name);

  const std::string& path() const { return path_; }
  // Plain and without a sync.
  std::string Write(absl::string_view name, absl::string_view content) const;
  void Clear() const;

 private:
  std::string path_;
};

}  // namespace plumb

#endif  // PLUMB_TESTS_FUZZ_SCRATCH_H_
