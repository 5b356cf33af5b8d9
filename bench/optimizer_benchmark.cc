// SPDX-License-Identifier: Apache-2.0
// Measures AdamW over flat buffers, compared with a loop that moves the same bytes and computes
// almost nothing: the share of the memory bandwidth that the optimizer reaches, with weights as
// floats and as split f32, and the cost of the gradient norm and of accumulating micro-batches. All
// cases are interleaved in one process.
//
//   optimizer_benchmark [PARAMETERS [ROUNDS]]      default: 32 million, far beyond any cache; 15
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/kernels/simd/optimizer.h"
#include "runtime/kernels/simd/split_f32.h"

namespace plumb {
namespace {

using Vector = float __attribute__((vector_size(32)));
constexpr int64_t kLanes = sizeof(Vector) / sizeof(float);
constexpr int64_t kStretch = 32768;

struct Case {
  std::string name;
  double bytes;  // bytes per parameter, each operand once
  std::function<void()> run;
  std::vector<double> seconds;
};

// Reads four arrays and writes three of them, like AdamW.
void Move(const AdamWBuffers& b, int64_t n, int threads) {
  ParallelFor(n / kStretch, threads, [&](int64_t task) {
    const auto* g = reinterpret_cast<const Vector*>(b.grad + task * kStretch);
    auto* p = reinterpret_cast<Vector*>(b.param + task * kStretch);
    auto* m = reinterpret_cast<Vector*>(b.m + task * kStretch);
    auto* v = reinterpret_cast<Vector*>(b.v + task * kStretch);
    for (int64_t i = 0; i < kStretch / kLanes; ++i) {
      p[i] += g[i];
      m[i] += g[i];
      v[i] += g[i];
    }
  });
}

double Median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

int Run(int64_t n, int rounds) {
  n = n / kStretch * kStretch;
  const int64_t bytes = n * static_cast<int64_t>(sizeof(float));
  const AlignedBuffer grad(bytes), param(bytes), m(bytes), v(bytes), split_param(bytes);
  for (int64_t i = 0; i < n; ++i) {
    grad.as<float>()[i] = 1e-3f * static_cast<float>(i % 17 - 8);
    param.as<float>()[i] = 1e-2f * static_cast<float>(i % 13 - 6);
  }
  SplitFloats(param.as<float>(), n, 1, SplitF32In(split_param.as<float>(), n));
  const std::vector<AdamWSegment> segments = {{0, n, 0.1f, 1.0f}};
  const std::vector<AdamWSegment> split_segments = {{0, n, 0.1f, 1.0f, true}};
  const AdamWGroup group{0.9f, 0.95f, 1e-8f, 1.0f};
  AdamWStep step{1e-3f, 10, {&group, 1}};
  const AdamWBuffers plain{grad.as<float>(), param.as<float>(), m.as<float>(), v.as<float>()};
  AdamWBuffers split = plain;
  split.param = split_param.as<float>();
  double sum = 0;  // keeps the compiler from eliminating results

  std::vector<Case> cases;
  for (const int threads : {1, 2}) {
    const std::string suffix = threads == 1 ? ", 1 thread" : ", 2 threads";
    cases.push_back({"move" + suffix, 28, [=] { Move(plain, n, threads); }, {}});
    cases.push_back(
        {"adamw" + suffix, 28, [=] { AdamWUpdate(segments, step, plain, threads); }, {}});
    cases.push_back({"adamw, split f32" + suffix,
                     28,
                     [=] { AdamWUpdate(split_segments, step, split, threads); },
                     {}});
    cases.push_back({"sum of squares" + suffix,
                     4,
                     [&sum, plain, n, threads] { sum += SumOfSquares(plain.grad, n, threads); },
                     {}});
    cases.push_back(
        {"accumulate, with squares" + suffix,
         12,
         [&sum, plain, n, threads] { sum += Accumulate(plain.grad, plain.m, n, threads); },
         {}});
  }
  for (int round = 0; round <= rounds; ++round) {
    for (Case& c : cases) {
      const auto start = std::chrono::steady_clock::now();
      c.run();
      const auto end = std::chrono::steady_clock::now();
      if (round > 0) c.seconds.push_back(std::chrono::duration<double>(end - start).count());
    }
  }
  std::printf("%lld parameters, medians of %d rounds\n", static_cast<long long>(n), rounds);
  double moved = 0;
  for (const Case& c : cases) {
    const double rate = c.bytes * static_cast<double>(n) / Median(c.seconds) / 1e9;
    if (c.name.rfind("move", 0) == 0) moved = rate;
    std::printf("  %-38s %8.2f ms %7.2f GB/s %6.1f %% of move\n", c.name.c_str(),
                Median(c.seconds) * 1e3, rate, 100 * rate / moved);
  }
  return sum < 0 ? 1 : 0;
}

}  // namespace
}  // namespace plumb

int main(int argc, char** argv) {
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : int64_t{32} << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  if (n < 32768 || rounds < 1) {
    std::fprintf(stderr, "optimizer_benchmark [PARAMETERS >= 32768 [ROUNDS >= 1]]\n");
    return 2;
  }
  return plumb::Run(n, rounds);
}
