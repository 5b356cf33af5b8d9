// The paths of matmul that the cases of ops_test cannot tell apart.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"
#include "runtime/kernels/gemm/matmul_cut.h"
#include "runtime/kernels/gemm/epilogue.h"
#include "runtime/kernels/gemm/matmul_kernels.h"
#include "runtime/ops/matmul_product.h"
#include "runtime/kernels/gemm/small_gemm.h"
#include "tests/ops/draw.h"
#include "tests/ops/simd_targets.h"

namespace plumb {
namespace {

// A view into larger matrices, whose surroundings must stay as they are; every target, every form.
TEST(SmallGemmTest, HonoursLeadingDimensionsOnEveryTarget) {
  const int64_t m = 7, n = 27, k = 19, pad = 3;
  const std::vector<float> a = Draw(40 * 40, "a"), b = Draw(40 * 40, "b"), bias = Draw(n, "bias");
  ForEachSimdTarget([&](const std::string& target) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const int64_t lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad, ldc = n + pad;
        std::vector<float> c(static_cast<size_t>(m * ldc), -77.0f);
        std::vector<float> scratch(static_cast<size_t>(SmallGemmScratch(k)));
        SelectSmallGemm(ta, tb)(
            {m, n, k, a.data(), lda, b.data(), ldb, bias.data(), c.data(), ldc}, scratch.data());
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < ldc; ++j) {
            double expected = -77;
            if (j < n) {
              expected = bias[j];
              for (int64_t l = 0; l < k; ++l) {
                expected += static_cast<double>(a[ta ? l * lda + i : i * lda + l]) *
                            static_cast<double>(b[tb ? j * ldb + l : l * ldb + j]);
              }
            }
            ASSERT_NEAR(c[i * ldc + j], expected, 1e-5)
                << i << ", " << j << (ta ? " ta" : "") << (tb ? " tb" : "") << " on " << target;
          }
        }
      }
    }
  });
}

TEST(SmallGemmTest, RowsDoNotDependOnHowManyThereAre) {
  const int64_t m = 23, n = 31, k = 40;
  const std::vector<float> a = Draw(m * k, "a"), b = Draw(n * k, "b");
  ForEachSimdTarget([&](const std::string& target) {
    const SmallGemmFn multiply = SelectSmallGemm(false, true);
    std::vector<float> scratch(static_cast<size_t>(SmallGemmScratch(k)));
    std::vector<float> whole(m * n), row(n);
    multiply({m, n, k, a.data(), k, b.data(), k, nullptr, whole.data(), n}, scratch.data());
    for (int64_t i = 0; i < m; ++i) {
      multiply({1, n, k, a.data() + i * k, k, b.data(), k, nullptr, row.data(), n}, scratch.data());
      EXPECT_EQ(std::memcmp(row.data(), &whole[i * n], n * sizeof(float)), 0)
          << "row " << i << " on " << target;
    }
  });
}

// y = act(x W + bias) by one kernel.
std::vector<char> Multiply(const Kernel& kernel, const void* x, const void* w, const float* bias,
                           int64_t bytes, int threads) {
  std::vector<char> y(static_cast<size_t>(bytes));
  AlignedBuffer scratch(kernel.scratch_bytes());
  const void* const in[] = {x, w, bias};
  void* const out[] = {y.data()};
  EXPECT_TRUE(kernel.Run(KernelArgs{in, out, scratch.as<char>(), threads}).ok());
  return y;
}

// out = a^T b over terms [begin, end) of both, by one kernel.
std::vector<float> MultiplyTokens(std::unique_ptr<Kernel> (*make)(const ProductSpec&), DType dtype,
                                  const void* a, const void* b, int64_t m, int64_t n, Range terms,
                                  int threads) {
  ProductSpec spec{dtype, DType::kF32, true, false, m, FinishKind::kStore, {}, {}};
  ProductResult result;
  result.n = n;
  result.terms = {{0, 1, terms.end - terms.begin, m, n}};
  spec.results = {result};
  const std::unique_ptr<Kernel> kernel = make(spec);
  if (kernel == nullptr) return {};
  const int64_t element = SizeOf(dtype);
  const std::vector<char> bytes =
      Multiply(*kernel, static_cast<const char*>(a) + terms.begin * m * element,
               static_cast<const char*>(b) + terms.begin * n * element, nullptr,
               m * n * SizeOf(DType::kF32), threads);
  std::vector<float> out(static_cast<size_t>(m * n));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// Products over many tokens, whose panels are asked for before they are packed, have the very bits
// of blocked ones: those of one chain of terms or, where the result is small, of two.
TEST(ProductTest, TokensInPanelsHaveTheBitsOfBlocks) {
  const int64_t k = 1601;
  const auto blocked = [](const ProductSpec& spec) { return MakeBlockedProduct(spec); };
  struct Case {
    int64_t m, n;
    bool halves;
  };
  for (const Case& c : {Case{300, 530, false}, Case{530, 300, false}, Case{100, 650, true}}) {
    const std::vector<float> a = Draw(k * c.m, "a"), b = Draw(k * c.n, "b");
    std::vector<uint16_t> a16, b16;
    for (const float f : a) a16.push_back(Bf16FromFloat(f));
    for (const float f : b) b16.push_back(Bf16FromFloat(f));
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const bool f32 = dtype == DType::kF32;
      if (!f32 && c.m > c.n) continue;  // those are left to blocks
      const void* const left = f32 ? static_cast<const void*>(a.data()) : a16.data();
      const void* const right = f32 ? static_cast<const void*>(b.data()) : b16.data();
      const int64_t unit = SelectMatmulKernels(dtype).unit_terms;
      const int64_t half = CutTermsInHalves(k, unit)[0].terms;
      std::vector<float> expected =
          MultiplyTokens(blocked, dtype, left, right, c.m, c.n, {0, c.halves ? half : k}, 2);
      if (c.halves) {
        const std::vector<float> rest =
            MultiplyTokens(blocked, dtype, left, right, c.m, c.n, {half, k}, 2);
        for (size_t i = 0; i < rest.size(); ++i) expected[i] = rest[i] + expected[i];
      }
      for (const int threads : {1, 2, 3}) {
        const std::vector<float> out =
            MultiplyTokens(MakeTokensProduct, dtype, left, right, c.m, c.n, {0, k}, threads);
        ASSERT_EQ(out.size(), expected.size());
        EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0)
            << DTypeName(dtype) << " " << c.m << " x " << c.n << ", " << threads << " threads";
      }
    }
  }
}

// Many rows, for which the matrix is packed once or read where it is, or packed by each task, and
// the same rows some at a time, cut by columns: the very same bits. Sums of two blocks of terms,
// over several tasks' columns, made in the result's memory and beside it.
TEST(ProductTest, CutsDoNotChangeBits) {
  const int64_t m = 1300, some = 145, n = 530, k = 1600;
  const std::vector<float> x = Draw(m * k, "x"), w = Draw(n * k, "w"), bias = Draw(n, "bias");
  std::vector<uint16_t> x16, w16;
  for (const float f : x) x16.push_back(Bf16FromFloat(f));
  for (const float f : w) w16.push_back(Bf16FromFloat(f));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool transpose_b : {false, true}) {
      for (const FinishKind finish : {FinishKind::kStore, FinishKind::kAct}) {
        ProductSpec spec{dtype, dtype, false, transpose_b, m, finish, ActivationKind::kRelu, {}};
        ProductResult result;
        result.n = n;
        result.terms = {{0, 1, k, k, transpose_b ? k : n}};
        result.bias = 2;
        spec.results = {result};
        const std::unique_ptr<Kernel> blocked = MakeBlockedProduct(spec);
        const std::unique_ptr<Kernel> many_rows = MakeManyRowsProduct(spec);
        ASSERT_NE(many_rows, nullptr);
        ASSERT_EQ(MakeColumnsProduct(spec), nullptr);
        spec.m = some;
        const std::unique_ptr<Kernel> columns = MakeColumnsProduct(spec);
        ASSERT_NE(columns, nullptr);

        const bool f32 = dtype == DType::kF32;
        const char* const from = f32 ? reinterpret_cast<const char*>(x.data())
                                     : reinterpret_cast<const char*>(x16.data());
        const void* const matrix = f32 ? static_cast<const void*>(w.data()) : w16.data();
        const int64_t row_bytes = n * SizeOf(dtype);
        const std::vector<char> whole =
            Multiply(*blocked, from, matrix, bias.data(), m * row_bytes, 2);
        for (const int threads : {1, 2, 5}) {
          EXPECT_EQ(Multiply(*many_rows, from, matrix, bias.data(), m * row_bytes, threads), whole)
              << DTypeName(dtype) << (transpose_b ? " transpose_b" : "") << ", " << threads
              << " threads";
        }
        for (int64_t row = 0; row + some <= m; row += some) {
          const int threads = static_cast<int>(1 + row / some % 8);
          const std::vector<char> part = Multiply(*columns, from + row * k * SizeOf(dtype), matrix,
                                                  bias.data(), some * row_bytes, threads);
          ASSERT_EQ(
              std::memcmp(part.data(), &whole[static_cast<size_t>(row * row_bytes)], part.size()),
              0)
              << DTypeName(dtype) << (transpose_b ? " transpose_b" : "") << " rows from " << row
              << ", " << threads << " threads";
        }
      }
    }
  }
}

// Whether instructions of the processor round or ours: every finish that ends in bf16 rounds alike,
// in whole vectors and the last, partial one.
TEST(MatmulFinishTest, RoundsToBf16AsEverythingElse) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> sums = {0.0f,         -0.0f,           1.0f,     1.00390625f,   1.01171875f,
                             -1.00390625f, 3.3895e38f,      -3.4e38f, kInfinity,     -kInfinity,
                             NAN,          1.17549435e-38f, 65536.5f, 1.0039063692f, 1e-30f};
  const RngStream draws(9, "finish");
  while (sums.size() < 2 * 37) sums.push_back(static_cast<float>(draws.Normal(sums.size())));
  std::vector<uint16_t> ones(sums.size(), Bf16FromFloat(1.0f)), zeros(sums.size(), 0);
  ForEachSimdTarget([&](const std::string& target) {
    for (const FinishKind kind : {FinishKind::kStore, FinishKind::kAdd, FinishKind::kMul}) {
      std::vector<uint16_t> out(sums.size() + 1, 77);
      FinishArgs f{2, 37, 0, sums.data(), 37, nullptr, nullptr, out.data(), 37};
      f.operand = kind == FinishKind::kMul ? ones.data() : zeros.data();
      SelectFinish(kind, ActivationKind::kRelu, DType::kBF16)(f);
      EXPECT_EQ(out.back(), 77);
      for (size_t i = 0; i < sums.size(); ++i) {
        if (kind == FinishKind::kAdd && sums[i] == 0) continue;  // -0 + 0
        if (std::isnan(sums[i])) {
          EXPECT_TRUE(std::isnan(FloatFromBf16(out[i]))) << target;
        } else {
          EXPECT_EQ(out[i], Bf16FromFloat(sums[i])) << sums[i] << " on " << target;
        }
      }
    }
  });
}

}  // namespace
}  // namespace plumb
