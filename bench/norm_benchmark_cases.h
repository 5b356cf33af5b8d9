// SPDX-License-Identifier: Apache-2.0
// What norm_benchmark measures: one norm pass over rows in memory, by plumb's plugins, by oneDNN,
// and as the memcpy that moves the same number of bytes. A case owns its operands; running it
// allocates nothing. Thread-compatible.
#ifndef PLUMB_BENCH_NORM_BENCHMARK_CASES_H_
#define PLUMB_BENCH_NORM_BENCHMARK_CASES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plumb/norm_plugin.h"

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

// Bytes that the pass must move: each operand once. Parameters and statistics are left out.
int64_t BytesOf(const NormCase& c);

// Runs the case once. Empty when there is no such case.
std::function<void()> MakeNormCase(const NormCase& c);

// What a pass of plumb's leaves: y or dx, what forward saves, and the parameters' gradients of each
// range of rows.
struct NormResults {
  std::vector<float> rows, saved, gradients;
};
NormResults ResultsOf(const NormCase& c);

// A norm of the build's plugin directory, or of the benchmark's own, by the name of its file, with
// its default attributes: what a call through the ABI costs. Ends the process when the plugin
// cannot be loaded.
struct OneNorm {
  const plumb_norm_plugin* plugin;
  plumb_norm_instance* instance;
  plumb_norm_layout layout;
};
OneNorm LoadNorm(const std::string& id, int64_t dim);

}  // namespace plumb

#endif  // PLUMB_BENCH_NORM_BENCHMARK_CASES_H_
