// SPDX-License-Identifier: Apache-2.0
// Integer division and rounding, both upwards.
#ifndef PLUMB_RUNTIME_BASE_DIVIDE_H_
#define PLUMB_RUNTIME_BASE_DIVIDE_H_

#include <cstdint>

namespace plumb {

// Returns the number of parts of size `part` that hold `n`. Requires: n >= 0, part > 0.
constexpr int64_t CeilDiv(int64_t n, int64_t part) { return (n + part - 1) / part; }

// Returns the smallest multiple of `unit` that is at least n. Requires: n >= 0, unit > 0.
constexpr int64_t RoundUp(int64_t n, int64_t unit) { return CeilDiv(n, unit) * unit; }

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_DIVIDE_H_
