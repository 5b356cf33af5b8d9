// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/optimizer.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/rng.h"
#include "tests/kernels/simd_targets.h"

namespace plumb {
namespace {

TEST(AverageTest, SplitAndFloatAveragesHaveTheSameBits) {
  ForEachSimdTarget([](const std::string& target) {
    for (const int64_t n : {1, 7, 16, 33, 70001}) {
      const RngStream stream(7, "average");
      std::vector<float> x(static_cast<size_t>(n)), start(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<float>(stream.Normal(i));
        start[i] = static_cast<float>(stream.Normal(i + x.size()));
      }
      const AlignedBuffer storage(AlignUp(n * 4) + kAlignment);
      const SplitF32 split = SplitF32In(storage.as<float>(), n);
      SplitFloats(x.data(), n, 1, split);
      for (const int threads : {1, 4}) {
        std::vector<float> got = start, of_split = start;
        MoveTowards(x.data(), 0.125f, n, threads, got.data());
        MoveTowards(split, 0.125f, n, threads, of_split.data());
        EXPECT_EQ(got, of_split) << target;
        for (size_t i = 0; i < x.size(); ++i) {
          const double want =
              0.875 * static_cast<double>(start[i]) + 0.125 * static_cast<double>(x[i]);
          ASSERT_NEAR(got[i], want, 1e-6 * (1 + std::fabs(want))) << target;
        }
      }
    }
  });
}

}  // namespace
}  // namespace plumb
