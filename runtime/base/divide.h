// SPDX-License-Identifier: Apache-2.0
// Whole numbers of parts.
#ifndef PLUMB_RUNTIME_BASE_DIVIDE_H_
#define PLUMB_RUNTIME_BASE_DIVIDE_H_

#include <cstdint>

namespace plumb {

// How many parts of `part` hold `n`, n >= 0.
constexpr int64_t CeilDiv(int64_t n, int64_t part) { return (n + part - 1) / part; }

// The least multiple of `unit` that is not below n, n >= 0.
constexpr int64_t RoundUp(int64_t n, int64_t unit) { return CeilDiv(n, unit) * unit; }

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_DIVIDE_H_
