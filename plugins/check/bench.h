// SPDX-License-Identifier: Apache-2.0
// Speed of a norm's passes, for `plumb plugin bench`. All times are those of one thread on a
// processor, without waiting. Stateless.
#ifndef PLUMB_PLUGINS_CHECK_BENCH_H_
#define PLUMB_PLUGINS_CHECK_BENCH_H_

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace plumb::check {

// A norm by the file that has it and, unless that has one norm only, by its id.
struct NormOfFile {
  std::string path, id;
};

// Measures forward and backward of a norm at usual sizes, in rounds that interleave it with the
// norm that it is compared with and with a memcpy of the same bytes, each size in a process of its
// own. Calls `print` with the text of each size when it is measured. Errors: a file that is not a
// plugin or offers several norms, with their ids; a norm that ends its process or takes statistics
// over tokens.
absl::Status BenchNorms(const NormOfFile& norm, const NormOfFile& against, int rounds, bool json,
                        const std::function<bool(const std::string&)>& print);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_BENCH_H_
