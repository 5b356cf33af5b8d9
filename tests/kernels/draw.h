// SPDX-License-Identifier: Apache-2.0
// Random numbers for tests of kernels.
#ifndef PLUMB_TESTS_KERNELS_DRAW_H_
#define PLUMB_TESTS_KERNELS_DRAW_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/rng.h"

namespace plumb {

// Returns `n` standard normal numbers, which depend only on the name.
inline std::vector<float> Draw(int64_t n, absl::string_view name) {
  const RngStream draws(4, name);
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(draws.Normal(i)));
  return values;
}

}  // namespace plumb

#endif  // PLUMB_TESTS_KERNELS_DRAW_H_
