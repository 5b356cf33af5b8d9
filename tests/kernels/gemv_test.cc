// SPDX-License-Identifier: Apache-2.0
// Products of a few rows with a weight matrix: properties that the cases of ops_test do not show.
#include "runtime/kernels/gemv/gemv.h"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/kernels/gemv/gemv_job.h"
#include "runtime/kernels/simd/cpu_features.h"
#include "runtime/kernels/simd/split_f32.h"
#include "tests/kernels/draw.h"
#include "tests/kernels/simd_targets.h"

namespace plumb {
namespace {

// A matrix [n, k] in each format.
struct Weights {
  std::vector<float> f32;
  std::vector<uint16_t> bf16;
  int64_t n, k;

  Weights(int64_t rows, int64_t width)
      : f32(Draw(rows * width, "w")), bf16(f32.size()), n(rows), k(width) {
    HighBf16(f32.data(), n * k, 1, bf16.data());
  }
  const void* data(DType dtype) const {
    if (dtype == DType::kF32) return f32.data();
    return bf16.data();
  }
  double At(DType dtype, int64_t j, int64_t l) const {
    const size_t i = static_cast<size_t>(j * k + l);
    return dtype == DType::kF32 ? f32[i] : FloatFromBf16(bf16[i]);
  }
};

constexpr DType kFormats[] = {DType::kF32, DType::kBF16};

// Sequences that are decoded together get the same results as alone.
TEST(GemvTest, RowsDoNotDependOnTheirNumber) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{37, 192}, {9, 77}}) {
    const Weights w(n, k);
    const std::vector<float> x = Draw(kMaxGemvRows * k, "x"), bias = Draw(n, "bias");
    ForEachSimdTarget([&, n = n, k = k](const std::string& target) {
      for (const DType dtype : kFormats) {
        const GemvFn multiply = SelectGemv(dtype);
        std::vector<float> alone(static_cast<size_t>(kMaxGemvRows * n));
        for (int64_t i = 0; i < kMaxGemvRows; ++i) {
          multiply({1, n, k, x.data() + i * k, w.data(dtype), bias.data(), alone.data() + i * n}, 0,
                   n / kGemvStreams);
        }
        for (int64_t m = 2; m <= kMaxGemvRows; ++m) {
          std::vector<float> y(static_cast<size_t>(m * n));
          multiply({m, n, k, x.data(), w.data(dtype), bias.data(), y.data()}, 0, n / kGemvStreams);
          EXPECT_EQ(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)), 0)
              << m << " rows, " << DTypeName(dtype) << " on " << target;
        }
      }
    });
  }
}

TEST(GemvTest, ColumnsDoNotDependOnThePartition) {
  const int64_t m = 5, n = 41, k = 130;
  const Weights w(n, k);
  const std::vector<float> x = Draw(m * k, "x");
  ForEachSimdTarget([&](const std::string& target) {
    for (const DType dtype : kFormats) {
      const GemvFn multiply = SelectGemv(dtype);
      std::vector<float> whole(m * n), cut(m * n);
      const auto args = [&](std::vector<float>* y) {
        return GemvArgs{m, n, k, x.data(), w.data(dtype), nullptr, y->data()};
      };
      multiply(args(&whole), 0, n / kGemvStreams);
      int64_t begin = 0;
      for (const int64_t end : {1, 2, 4, 7, 10}) {
        multiply(args(&cut), begin, end);
        begin = end;
      }
      EXPECT_EQ(std::memcmp(whole.data(), cut.data(), cut.size() * sizeof(float)), 0)
          << DTypeName(dtype) << " on " << target;
    }
  });
}

TEST(GemvTest, AgreesWithSumsInDoubleForEveryFormat) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 70, 768}, {3, 9, 33}, {11, 6, 1}}) {
    const Weights w(n, k);
    const std::vector<float> x = Draw(m * k, "x"), bias = Draw(n, "bias");
    ForEachSimdTarget([&, m = m, n = n, k = k](const std::string& target) {
      for (const DType dtype : kFormats) {
        std::vector<float> y(static_cast<size_t>(m * n));
        std::vector<uint16_t> half(y.size());
        GemvArgs args{m, n, k, x.data(), w.data(dtype), bias.data(), y.data()};
        SelectGemv(dtype)(args, 0, n / kGemvStreams);
        args.y = half.data();
        args.out = DType::kBF16;
        SelectGemv(dtype)(args, 0, n / kGemvStreams);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = bias[j];
            for (int64_t l = 0; l < k; ++l) sum += x[i * k + l] * w.At(dtype, j, l);
            const size_t at = static_cast<size_t>(i * n + j);
            ASSERT_NEAR(y[at], sum, 2e-5 * std::sqrt(k))
                << i << ", " << j << " " << DTypeName(dtype) << " on " << target;
            ASSERT_EQ(half[at], Bf16FromFloat(y[at]));
          }
        }
      }
    });
  }
}

// Both operands are bf16 and multiplied in pairs, or in tiles. Rows equal those alone, for odd
// lengths and all remainders of columns.
TEST(GemvTest, Bf16ProductsAgreeWithSumsInDoubleForAnyNumberOfRows) {
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{37, 192}, {1003, 192}, {10, 77}, {7, 31}, {3, 64}}) {
    const Weights w(n, k);
    const std::vector<float> x = Draw(kMaxGemvRows * k, "x"), bias = Draw(n, "bias");
    std::vector<uint16_t> half(x.size());
    HighBf16(x.data(), kMaxGemvRows * k, 1, half.data());
    ForEachSimdTarget([&, n = n, k = k](const std::string& target) {
      // Returns rows [i, i + m) of the product.
      const auto multiply = [&](int64_t i, int64_t m, DType out, void* y) {
        const Gemv gemv(m, n, k, DType::kBF16, DType::kBF16, out, true);
        const AlignedBuffer scratch(gemv.scratch_bytes());
        const GemvArgs args =
            gemv.Prepare({half.data() + i * k, w.bf16.data(), bias.data(), y}, 1, scratch.data());
        for (int64_t task = 0; task < gemv.tasks(); ++task) gemv.RunTask(args, task);
      };
      std::vector<float> alone(static_cast<size_t>(kMaxGemvRows * n));
      for (int64_t i = 0; i < kMaxGemvRows; ++i) {
        multiply(i, 1, DType::kF32, alone.data() + i * n);
        for (int64_t j = 0; j < n; ++j) {
          double sum = bias[j];
          for (int64_t l = 0; l < k; ++l) {
            sum += FloatFromBf16(half[i * k + l]) * w.At(DType::kBF16, j, l);
          }
          ASSERT_NEAR(alone[i * n + j], sum, 2e-5 * std::sqrt(k)) << i << ", " << j << target;
        }
      }
      for (int64_t m = 2; m <= kMaxGemvRows; ++m) {
        std::vector<float> y(static_cast<size_t>(m * n));
        std::vector<uint16_t> y_half(y.size());
        multiply(0, m, DType::kF32, y.data());
        EXPECT_EQ(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)), 0) << m << target;
        multiply(0, m, DType::kBF16, y_half.data());
        for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y_half[i], Bf16FromFloat(y[i]));
      }
    });
  }
}

// Intel's processors have these instructions too, although plumb does not choose them there.
TEST(GemvTest, PairsAgreeWithSumsInDoubleForAnyNumberOfRows) {
  if (!UsesBf16Instructions()) GTEST_SKIP() << "this processor has no AVX512_BF16";
  const GemvFn multiply = SelectGemv(DType::kBF16, /*pairs=*/true);
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{37, 192}, {1003, 192}, {10, 77}, {7, 31}}) {
    const Weights w(n, k);
    const std::vector<float> x = Draw(kMaxGemvRows * k, "x"), bias = Draw(n, "bias");
    std::vector<uint16_t> half(x.size());
    HighBf16(x.data(), kMaxGemvRows * k, 1, half.data());
    std::vector<float> alone(static_cast<size_t>(kMaxGemvRows * n));
    for (int64_t i = 0; i < kMaxGemvRows; ++i) {
      multiply({1, n, k, half.data() + i * k, w.bf16.data(), bias.data(), alone.data() + i * n}, 0,
               n / kGemvStreams);
      for (int64_t j = 0; j < n; ++j) {
        double sum = bias[j];
        for (int64_t l = 0; l < k; ++l) {
          sum += FloatFromBf16(half[i * k + l]) * w.At(DType::kBF16, j, l);
        }
        ASSERT_NEAR(alone[i * n + j], sum, 2e-5 * std::sqrt(k)) << i << ", " << j;
      }
    }
    for (int64_t m = 2; m <= kMaxGemvRows; ++m) {
      std::vector<float> y(static_cast<size_t>(m * n));
      multiply({m, n, k, half.data(), w.bf16.data(), bias.data(), y.data()}, 0, n / kGemvStreams);
      EXPECT_EQ(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)), 0) << m;
    }
  }
}

// Two products form one job, whose tasks run on several threads. bf16 operands are widened if
// necessary.
TEST(GemvTest, ThreadsChangeNoBitOfAJob) {
  const int64_t m = 3, k = 257;
  const std::array<int64_t, 2> n = {900, 70};
  const std::array<Weights, 2> w = {Weights(n[0], k), Weights(n[1], k)};
  const std::vector<float> x = Draw(m * k, "x");
  std::vector<uint16_t> half(x.size());
  HighBf16(x.data(), m * k, 1, half.data());
  for (const DType dtype : kFormats) {
    const bool bf16 = dtype == DType::kBF16;
    const DType x_dtype = bf16 ? DType::kBF16 : DType::kF32;
    const void* const operand = bf16 ? static_cast<const void*>(half.data()) : x.data();
    GemvJob<Gemv> job;
    for (const int64_t width : n) job.Add(Gemv(m, width, k, x_dtype, dtype, DType::kF32, true));
    AlignedBuffer scratch(job.scratch_bytes());
    const auto run = [&](int threads) {
      std::array<std::vector<float>, 2> y;
      for (size_t r = 0; r < 2; ++r) y[r].resize(static_cast<size_t>(m * n[r]));
      job.Run(
          [&](size_t r) -> Gemv::Operands {
            return {operand, w[r].data(dtype), nullptr, y[r].data()};
          },
          scratch.data(), threads);
      return y;
    };
    const auto one = run(1);
    EXPECT_EQ(one, run(4));
    EXPECT_NE(one[0].back(), 0);
    EXPECT_NE(one[1].back(), 0);
  }
}

}  // namespace
}  // namespace plumb
