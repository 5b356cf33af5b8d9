// SPDX-License-Identifier: Apache-2.0
// Cases of norm_benchmark: one norm pass over rows in memory, by plumb's plugins, by oneDNN, and as
// the memcpy that moves the same number of bytes. A case owns its operands; running it allocates
// nothing. Thread-compatible.
#ifndef PLUMB_BENCH_NORM_BENCHMARK_CASES_H_
#define PLUMB_BENCH_NORM_BENCHMARK_CASES_H_

#include <cstdint>
#include <functional>
#include <string>

namespace plumb {

struct NormCase {
  std::string by;    // "memcpy", "plumb", "onednn"
  std::string norm;  // a plugin's id; memcpy ignores it, oneDNN has "layer_norm" only
  std::string
      pass;  // "forward", "backward"; plumb also "add_forward" (one pass), "add_then_forward"
  std::string dtype;  // "f32", "bf16"
  int64_t rows = 0, dim = 0;
  int threads = 1;
};

// Returns the bytes that the pass must move: each operand once, without parameters and statistics.
int64_t GetBytes(const NormCase& c);

// Returns a function that runs the case once; empty if there is no such case.
std::function<void()> MakeNormCase(const NormCase& c);

}  // namespace plumb

#endif  // PLUMB_BENCH_NORM_BENCHMARK_CASES_H_
