// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/uniform_draws.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/simd_targets.h"

namespace plumb {
namespace {

TEST(UniformDrawsTest, TheyAreTheDrawsOfTheStream) {
  // Counters cross 32 bits, and steps have more than that.
  for (const uint64_t begin : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 32) - 7}) {
    for (const uint64_t step : {uint64_t{0}, uint64_t{3} << 33 | 1}) {
      const RngStream stream(begin + 11, "draws", step);
      ForEachSimdTarget([&](const std::string& target) {
        for (const int64_t n : {1, 2, 7, 8, 9, 300}) {
          std::vector<double> draws(static_cast<size_t>(n) + 1, -1);
          DrawUniforms(stream, begin, n, draws.data());
          for (size_t i = 0; i + 1 < draws.size(); ++i) {
            ASSERT_EQ(draws[i], stream.Uniform(begin + i)) << target << " " << i << " of " << n;
          }
          ASSERT_EQ(draws.back(), -1) << target;  // nothing is written beyond the end
        }
      });
    }
  }
}

}  // namespace
}  // namespace plumb
