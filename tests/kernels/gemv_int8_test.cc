// SPDX-License-Identifier: Apache-2.0
// Products of a few rows with an int8 matrix: properties that the cases of ops_test do not show.
#include "runtime/kernels/gemv/gemv_int8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/kernels/gemv/gemv_job.h"
#include "runtime/kernels/simd/cpu_features.h"
#include "tests/kernels/draw.h"
#include "tests/kernels/simd_targets.h"

namespace plumb {
namespace {

struct Int8Matrix {
  std::vector<int8_t> values;
  std::vector<float> scales;

  Int8Matrix(int64_t n, int64_t k)
      : values(static_cast<size_t>(Int8Elements({n, k}).num_elements())),
        scales(static_cast<size_t>(Int8Scales({n, k}).num_elements())) {
    QuantizeInt8(Draw(n * k, "w").data(), n, k, 1, values.data(), scales.data());
  }
};

struct Int16Rows {
  std::vector<int16_t> values;
  std::vector<int16_t> split;  // for AMX, and padded
  std::vector<float> scales;
  int64_t rows = 0;

  Int16Rows(const std::vector<float>& from, int64_t k) {
    const int64_t m = static_cast<int64_t>(from.size()) / k, groups = Int8Groups(k);
    values.resize(static_cast<size_t>(m * groups * kInt8Group));
    scales.resize(static_cast<size_t>(m * groups));
    QuantizeInt16(from.data(), m, k, values.data(), scales.data(), m);
    rows = m;
    if (!HasAmx()) return;
    split = values;
    split.resize(static_cast<size_t>((m + 15) * groups * kInt8Group));
    SplitInt16(split.data(), m * groups);
  }
};

struct Function {
  const char* name;
  Int8GemvFn multiply;
  bool splits = false;
};

struct Product {
  int64_t n, k;
  Int8Matrix w;
  std::vector<float> bias;

  Product(int64_t rows, int64_t width) : n(rows), k(width), w(rows, width), bias(Draw(n, "bias")) {}

  // Returns the arguments for rows [i, i + m) of x.
  Int8GemvArgs Args(const Function& function, const Int16Rows& x, int64_t i, int64_t m,
                    float* y) const {
    const int64_t groups = Int8Groups(k);
    return {m,
            n,
            groups,
            (function.splits ? x.split : x.values).data() + i * groups * kInt8Group,
            x.scales.data() + i,
            x.rows,
            w.values.data(),
            w.scales.data(),
            bias.data(),
            y};
  }
};

const std::vector<std::pair<int64_t, int64_t>> kShapes = {{37, 192}, {9, 77}, {16, 64}, {1, 5}};

// Returns the functions for the current target.
std::vector<Function> Functions() {
  std::vector<Function> functions = {{"portable", SelectInt8Gemv(false)}};
  if (UsesVnni()) functions.push_back({"VNNI", SelectInt8Gemv(true)});
  if (UsesAmx()) functions.push_back({"AMX", AmxInt8Gemv(), true});
  return functions;
}

// Integers are summed exactly within a group, and the sums of the groups are added in order.
TEST(GemvInt8Test, AgreesWithSumsInDouble) {
  for (const auto& [n, k] : kShapes) {
    const Product product(n, k);
    const int64_t m = 3, groups = Int8Groups(k);
    const Int16Rows x(Draw(m * k, "x"), k);
    std::vector<double> expected;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = product.bias[j];
        for (int64_t l = 0; l < k; ++l) {
          sum += x.values[i * groups * kInt8Group + l] *
                 static_cast<double>(x.scales[l / kInt8Group * m + i]) *
                 product.w.values[Int8ElementAt(j, l, groups)] *
                 product.w.scales[Int8ScaleAt(j, l, groups)];
        }
        expected.push_back(sum);
      }
    }
    ForEachSimdTarget([&](const std::string& target) {
      for (const Function& f : Functions()) {
        std::vector<float> y(expected.size());
        f.multiply(product.Args(f, x, 0, m, y.data()), 0, Int8Blocks(product.n));
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_NEAR(y[i], expected[i], 2e-6 * std::sqrt(product.k))
              << i << " by " << f.name << " on " << target;
        }
      }
    });
  }
}

// The sums of the largest products fit in 32 bits.
TEST(GemvInt8Test, TheLargestOperandsDoNotOverflow) {
  const int64_t k = 128, n = 16;
  Product product(n, k);
  std::fill(product.w.values.begin(), product.w.values.end(), int8_t{-127});
  std::fill(product.w.scales.begin(), product.w.scales.end(), 1.0f);
  std::fill(product.bias.begin(), product.bias.end(), 0.0f);
  for (const float sign : {1.0f, -1.0f}) {
    const Int16Rows x(std::vector<float>(static_cast<size_t>(k), sign * 32767), k);
    ForEachSimdTarget([&](const std::string& target) {
      for (const Function& f : Functions()) {
        std::vector<float> y(static_cast<size_t>(n));
        f.multiply(product.Args(f, x, 0, 1, y.data()), 0, 1);
        for (const float each : y) {
          EXPECT_EQ(each, sign * -128.0f * 127 * 32767) << f.name << " on " << target;
        }
      }
    });
  }
}

// Sequences that are decoded together get the same results as alone, and results with VNNI and AMX
// equal those without.
TEST(GemvInt8Test, RowsDoNotDependOnTheirNumber) {
  for (const auto& [n, k] : kShapes) {
    const Product product(n, k);
    constexpr int64_t kRows = 300;
    const Int16Rows x(Draw(kRows * k, "x"), k);
    ForEachSimdTarget([&, n = n](const std::string& target) {
      std::vector<float> alone(static_cast<size_t>(kRows * n));
      for (int64_t i = 0; i < kRows; ++i) {
        const Function f = Functions()[0];
        f.multiply(product.Args(f, x, i, 1, alone.data() + i * n), 0, Int8Blocks(n));
      }
      for (const Function& f : Functions()) {
        for (int64_t m = 1; m <= kRows; m += m < 50 ? 1 : 50) {
          std::vector<float> y(static_cast<size_t>(m * n));
          f.multiply(product.Args(f, x, 0, m, y.data()), 0, Int8Blocks(n));
          EXPECT_EQ(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)), 0)
              << m << " rows by " << f.name << " on " << target;
        }
      }
    });
  }
}

// A non-finite value in one group of x or w is visible in the result, and only in its row.
TEST(GemvInt8Test, PropagatesNonFiniteValues) {
  const int64_t n = 20, k = 128, groups = 2;
  Product product(n, k);
  product.w.scales[static_cast<size_t>(Int8ScaleAt(17, 70, groups))] =
      std::numeric_limits<float>::quiet_NaN();
  std::vector<float> rows = Draw(2 * k, "x");
  rows[k + 5] = std::numeric_limits<float>::infinity();
  const Int16Rows x(rows, k);
  ForEachSimdTarget([&](const std::string& target) {
    for (const Function& f : Functions()) {
      std::vector<float> y(static_cast<size_t>(2 * n));
      f.multiply(product.Args(f, x, 0, 2, y.data()), 0, Int8Blocks(n));
      for (int64_t j = 0; j < n; ++j) {
        EXPECT_EQ(std::isnan(y[static_cast<size_t>(j)]), j == 17) << j << " on " << target;
        EXPECT_TRUE(std::isnan(y[static_cast<size_t>(n + j)])) << j << " on " << target;
      }
    }
  });
}

// Two products form one job, whose tasks run on several threads.
TEST(GemvInt8Test, ThreadsChangeNoBitOfAJob) {
  const int64_t m = 3, k = 700;
  const std::array<Product, 2> products = {Product(1900, k), Product(70, k)};
  const std::vector<float> x = Draw(m * k, "x");
  const Int8Rows rows(m, k);
  GemvJob<Int8Gemv> job;
  for (const Product& product : products) job.Add(Int8Gemv(m, product.n, k));
  const auto run = [&](int threads) {
    const AlignedBuffer scratch(rows.scratch_bytes());
    char* const quantized = reinterpret_cast<char*>(scratch.data());
    rows.Quantize(x.data(), threads, quantized);
    std::array<std::vector<float>, 2> y;
    for (size_t r = 0; r < 2; ++r) y[r].resize(static_cast<size_t>(m * products[r].n));
    job.Run(
        [&](size_t r) -> Int8Gemv::Operands {
          const Product& p = products[r];
          return {rows.elements(quantized), rows.scales(quantized), m,          p.w.values.data(),
                  p.w.scales.data(),        p.bias.data(),          y[r].data()};
        },
        nullptr, threads);
    return y;
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(4));
  EXPECT_NE(one[0].back(), 0);
  EXPECT_NE(one[1].back(), 0);
}

}  // namespace
}  // namespace plumb
