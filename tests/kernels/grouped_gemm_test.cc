// SPDX-License-Identifier: Apache-2.0
// Compares products of groups of rows with naive ones in double, for every engine.
#include "runtime/kernels/gemm/grouped_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "tests/kernels/draw.h"

namespace plumb {
namespace {

constexpr GemmChoice kEngines[] = {GemmChoice::kAuto, GemmChoice::kOneDnn, GemmChoice::kSmall,
                                   GemmChoice::kPairs, GemmChoice::kWiden};

// Standard normal numbers, rounded to a type, and their memory in that type.
struct Numbers {
  std::vector<float> values;
  AlignedBuffer bytes;

  Numbers(DType dtype, int64_t n, const std::string& name)
      : values(Draw(n, name)), bytes(n * SizeOf(dtype)) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kBF16) {
        bytes.as<uint16_t>()[i] = Bf16FromFloat(values[i]);
        values[i] = FloatFromBf16(bytes.as<uint16_t>()[i]);
      } else {
        bytes.as<float>()[i] = values[i];
      }
    }
  }
};

std::vector<float> Read(const AlignedBuffer& bytes, DType dtype, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] =
        dtype == DType::kBF16 ? FloatFromBf16(bytes.as<uint16_t>()[i]) : bytes.as<float>()[i];
  }
  return values;
}

struct Case {
  std::vector<int32_t> sizes;
  int64_t n, k;

  GroupedShape groups() const { return {static_cast<int64_t>(sizes.size()), starts().back()}; }
  std::vector<int32_t> starts() const {
    std::vector<int32_t> starts = {0};
    for (const int32_t size : sizes) starts.push_back(starts.back() + size);
    return starts;
  }
  std::string ToString() const { return absl::StrCat(starts().back(), " rows ", n, "x", k); }
};

// Returns cases with empty groups, groups of one row, groups that are GEMVs, and groups of several
// blocks.
const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {{0, 1, 0}, 1, 1},          {{3, 0, 2, 5}, 7, 9},      {{16, 1, 17, 0}, 96, 64},
      {{600, 3, 0}, 40, 33},      {{100, 130, 90}, 160, 70}, {{2, 1, 0, 0, 1, 3}, 900, 128},
      {{20, 40, 25, 30}, 800, 48}};
  return *cases;
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& want, DType out) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 1;
  for (const double x : want) largest = std::max(largest, std::fabs(x));
  for (size_t i = 0; i < want.size(); ++i) {
    const double rounding = out == DType::kBF16 ? std::ldexp(std::fabs(want[i]), -8) : 0;
    ASSERT_TRUE(std::fabs(static_cast<double>(got[i]) - want[i]) <= 4e-6 * largest + rounding)
        << "element " << i << ": " << got[i] << ", should be " << want[i];
  }
}

TEST(GroupedGemmTest, MultipliesRowsByTheMatrixOfTheirGroup) {
  for (const Case& c : Cases()) {
    const auto [groups, rows] = c.groups();
    const std::vector<int32_t> starts = c.starts();
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Numbers a(dtype, rows * c.k, "a"), b(dtype, groups * c.n * c.k, "b"),
          bias(DType::kF32, groups * c.n, "bias");
      for (const bool transposed : {false, true}) {
        std::vector<double> want;
        for (int64_t g = 0; g < groups; ++g) {
          for (int64_t i = starts[static_cast<size_t>(g)]; i < starts[static_cast<size_t>(g + 1)];
               ++i) {
            for (int64_t j = 0; j < c.n; ++j) {
              double sum = static_cast<double>(bias.values[static_cast<size_t>(g * c.n + j)]);
              for (int64_t l = 0; l < c.k; ++l) {
                const int64_t at = g * c.n * c.k + (transposed ? j * c.k + l : l * c.n + j);
                sum += static_cast<double>(a.values[static_cast<size_t>(i * c.k + l)]) *
                       static_cast<double>(b.values[static_cast<size_t>(at)]);
              }
              want.push_back(sum);
            }
          }
        }
        for (const GemmChoice choice : kEngines) {
          const GroupedGemm gemm({groups, rows}, c.n, c.k, transposed, dtype, dtype,
                                 HostGemmPolicy(choice));
          SCOPED_TRACE(
              absl::StrCat(c.ToString(), transposed ? " transposed " : " ", gemm.ToString()));
          const AlignedBuffer y(rows * c.n * SizeOf(dtype)), scratch(gemm.scratch_bytes());
          std::vector<float> first;
          for (const int threads : {1, 2, 4}) {
            std::memset(y.data(), 0xff, static_cast<size_t>(y.size()));
            ASSERT_TRUE(gemm.Run({a.bytes.data(), b.bytes.data(), bias.bytes.as<float>(),
                                  starts.data(), y.data()},
                                 scratch.data(), threads)
                            .ok());
            const std::vector<float> got = Read(y, dtype, rows * c.n);
            if (first.empty()) first = got;
            EXPECT_EQ(got, first) << threads << " threads";
          }
          ExpectNear(first, want, dtype);
        }
      }
    }
  }
}

TEST(GroupedGemmTest, SumsOuterProductsOfEachGroup) {
  for (const Case& c : Cases()) {
    const auto [groups, rows] = c.groups();
    const std::vector<int32_t> starts = c.starts();
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Numbers a(dtype, rows * c.n, "a"), b(dtype, rows * c.k, "b");
      std::vector<double> want(static_cast<size_t>(groups * c.n * c.k));
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t i = starts[static_cast<size_t>(g)]; i < starts[static_cast<size_t>(g + 1)];
             ++i) {
          for (int64_t at = 0; at < c.n * c.k; ++at) {
            want[static_cast<size_t>(g * c.n * c.k + at)] +=
                static_cast<double>(a.values[static_cast<size_t>(i * c.n + at / c.k)]) *
                static_cast<double>(b.values[static_cast<size_t>(i * c.k + at % c.k)]);
          }
        }
      }
      for (const GemmChoice choice : kEngines) {
        const GroupedOuterGemm gemm({groups, rows}, c.n, c.k, dtype, HostGemmPolicy(choice));
        SCOPED_TRACE(absl::StrCat(c.ToString(), " ", gemm.ToString()));
        const AlignedBuffer y(groups * c.n * c.k * SizeOf(DType::kF32)),
            scratch(gemm.scratch_bytes());
        std::vector<float> first;
        for (const int threads : {1, 2, 4}) {
          std::memset(y.data(), 0xff, static_cast<size_t>(y.size()));
          ASSERT_TRUE(gemm.Run(a.bytes.data(), b.bytes.data(), starts.data(), y.as<float>(),
                               scratch.data(), threads)
                          .ok());
          const std::vector<float> got = Read(y, DType::kF32, groups * c.n * c.k);
          if (first.empty()) first = got;
          EXPECT_EQ(got, first) << threads << " threads";
        }
        ExpectNear(first, want, DType::kF32);
      }
    }
  }
}

// A sequence decodes to the same bits alone and in a batch.
TEST(GroupedGemmTest, FewRowsAreIndependent) {
  constexpr int64_t kN = 100, kK = 96;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Numbers a(dtype, kMaxGemvRows * kK, "a"), b(dtype, 2 * kN * kK, "b");
    const auto last_row = [&](int32_t before, int32_t rows) {
      const GroupedGemm gemm({2, rows}, kN, kK, true, dtype, dtype, HostGemmPolicy());
      const std::vector<int32_t> starts = {0, before, rows};
      const AlignedBuffer y(rows * kN * SizeOf(dtype)), scratch(gemm.scratch_bytes());
      const char* const from = reinterpret_cast<const char*>(a.bytes.data()) +
                               (kMaxGemvRows - rows) * kK * SizeOf(dtype);
      EXPECT_TRUE(
          gemm.Run({from, b.bytes.data(), nullptr, starts.data(), y.data()}, scratch.data(), 1)
              .ok());
      const std::vector<float> all = Read(y, dtype, rows * kN);
      return std::vector<float>(all.end() - kN, all.end());
    };
    const std::vector<float> alone = last_row(0, 1);
    EXPECT_EQ(last_row(0, 2), alone);
    EXPECT_EQ(last_row(3, 9), alone);
    EXPECT_EQ(last_row(0, kMaxGemvRows), alone);
  }
}

}  // namespace
}  // namespace plumb
