// SPDX-License-Identifier: Apache-2.0
// Compares Gemm with a naive product in double, for every engine and epilogue.
#include "runtime/kernels/gemm/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"

namespace plumb {
namespace {

constexpr GemmChoice kChoices[] = {GemmChoice::kAuto, GemmChoice::kOneDnn, GemmChoice::kSmall,
                                   GemmChoice::kPairs, GemmChoice::kWiden};

// Tensor in f32 or bf16, and its values as floats.
struct Tensor {
  DType dtype = DType::kF32;
  AlignedBuffer bytes;
  std::vector<float> values;

  Tensor() = default;
  Tensor(DType type, int64_t n, uint64_t seed, const char* name)
      : dtype(type), bytes(n * SizeOf(type)), values(static_cast<size_t>(n)) {
    const RngStream draws(seed, name);
    for (int64_t i = 0; i < n; ++i) Set(i, static_cast<float>(draws.Normal(i)));
  }
  void Set(int64_t i, float x) {
    if (dtype == DType::kBF16) {
      bytes.as<uint16_t>()[i] = Bf16FromFloat(x);
      x = FloatFromBf16(bytes.as<uint16_t>()[i]);
    } else {
      bytes.as<float>()[i] = x;
    }
    values[static_cast<size_t>(i)] = x;
  }
  float Get(int64_t i) const {
    return dtype == DType::kBF16 ? FloatFromBf16(bytes.as<uint16_t>()[i]) : bytes.as<float>()[i];
  }
};

// Point of the parameter space.
struct Point {
  uint64_t seed;
  int64_t m, n, k, terms, results;
  bool ta, tb, bias;
  DType operands, out;
  Epilogue epilogue;
  bool in_place;  // the result aliases its operand

  std::string ToString() const {
    return absl::StrCat("seed ", seed, ": ", results, " of ", terms, " x ", m, "x", n, "x", k,
                        ta ? " ta" : "", tb ? " tb" : "", bias ? " bias" : "", " ",
                        DTypeName(operands), " to ", DTypeName(out), ", epilogue ",
                        static_cast<int>(epilogue), in_place ? ", in place" : "");
  }
};

Point DrawPoint(uint64_t seed) {
  const RngStream draws(seed, "gemm point");
  int64_t at = 0;
  const auto pick = [&](int n) { return static_cast<int>(draws.Uniform(at++) * n); };
  // Sizes are around the crossover of the engines, and some are 1.
  const auto size = [&](double max) {
    return pick(8) == 0 ? 1
                        : 1 + static_cast<int64_t>(std::exp(draws.Uniform(at++) * std::log(max)));
  };
  Point p{};
  p.seed = seed;
  p.m = size(400);
  p.n = size(400);
  p.k = size(900);
  p.ta = pick(2) == 1;
  p.tb = pick(2) == 1;
  p.operands = pick(2) == 1 ? DType::kBF16 : DType::kF32;
  p.out = p.operands == DType::kBF16 && pick(3) > 0 ? DType::kBF16 : DType::kF32;
  p.epilogue = static_cast<Epilogue>(pick(4));
  p.bias = pick(2) == 1;
  p.terms = 1 + pick(2);
  p.results = 1 + pick(3);
  p.in_place = pick(2) == 1 && (p.epilogue == Epilogue::kAdd || p.epilogue == Epilogue::kMul);
  return p;
}

// Operands of one point, its expected results, and a function that runs it.
class Trial {
 public:
  explicit Trial(const Point& p) : p_(p) {
    spec_ = {p.operands, p.out, p.ta, p.tb, p.m, p.epilogue, ActivationKind::kSilu, {}};
    int next_in = 0, next_out = 0;
    const auto add = [&](DType dtype, int64_t n, const char* name) {
      in_.emplace_back(dtype, n, p.seed, absl::StrCat(name, next_in).c_str());
      return next_in++;
    };
    for (int64_t r = 0; r < p.results; ++r) {
      GemmResult result;
      result.n = p.n + r;  // results of different widths
      for (int64_t t = 0; t < p.terms; ++t) {
        const int64_t k = p.k + t;
        result.terms.push_back({add(p.operands, p.m * k, "a"), add(p.operands, result.n * k, "b"),
                                k, p.ta ? p.m : k, p.tb ? k : result.n});
      }
      if (p.bias) result.bias = add(DType::kF32, result.n, "bias");
      if (p.epilogue == Epilogue::kAdd || p.epilogue == Epilogue::kMul) {
        result.operand = add(p.out, p.m * result.n, "operand");
      }
      result.out = next_out++;
      if (p.epilogue == Epilogue::kActivation) result.derivative = next_out++;
      spec_.results.push_back(result);
    }
    outputs_ = next_out;
  }

  // Returns the outputs as bytes, in order.
  std::vector<std::string> Run(const GemmPolicy& policy, int threads) const {
    const Gemm gemm(spec_, policy);
    std::vector<const void*> in;
    for (const Tensor& tensor : in_) in.push_back(tensor.bytes.data());
    std::vector<AlignedBuffer> outs(static_cast<size_t>(outputs_));
    std::vector<void*> out(static_cast<size_t>(outputs_));
    std::vector<int64_t> bytes(static_cast<size_t>(outputs_));
    for (const GemmResult& result : spec_.results) {
      const size_t at = static_cast<size_t>(result.out);
      bytes[at] = p_.m * result.n * SizeOf(p_.out);
      outs[at] = AlignedBuffer(bytes[at]);
      std::memset(outs[at].data(), 0x7f, static_cast<size_t>(bytes[at]));
      if (p_.in_place) {
        std::memcpy(outs[at].data(), in[static_cast<size_t>(result.operand)],
                    static_cast<size_t>(bytes[at]));
        in[static_cast<size_t>(result.operand)] = outs[at].data();
      }
      out[at] = outs[at].data();
      if (result.derivative >= 0) {
        const size_t d = static_cast<size_t>(result.derivative);
        bytes[d] = bytes[at];
        outs[d] = AlignedBuffer(bytes[d]);
        out[d] = outs[d].data();
      }
    }
    AlignedBuffer scratch(gemm.scratch_bytes());
    std::fill_n(scratch.as<uint8_t>(), gemm.scratch_bytes(), uint8_t{0x7f});
    const absl::Status status = gemm.Run(in.data(), out.data(), scratch.data(), threads);
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::string> texts;
    for (size_t i = 0; i < outs.size(); ++i) {
      texts.emplace_back(outs[i].as<char>(), static_cast<size_t>(bytes[i]));
    }
    return texts;
  }

  void ExpectNear(const std::vector<std::string>& got) const {
    for (const GemmResult& result : spec_.results) ExpectNear(result, got);
  }

 private:
  void ExpectNear(const GemmResult& result, const std::vector<std::string>& got) const {
    const auto value = [&](int output, int64_t i) -> double {
      const char* bytes = got[static_cast<size_t>(output)].data();
      if (p_.out == DType::kF32) return reinterpret_cast<const float*>(bytes)[i];
      return FloatFromBf16(reinterpret_cast<const uint16_t*>(bytes)[i]);
    };
    for (int64_t i = 0; i < p_.m; i += std::max<int64_t>(1, p_.m / 17)) {
      for (int64_t j = 0; j < result.n; j += std::max<int64_t>(1, result.n / 19)) {
        double sum = result.bias < 0 ? 0 : In(result.bias).values[static_cast<size_t>(j)];
        double magnitude = std::abs(sum);
        for (const GemmTerm& term : result.terms) {
          for (int64_t l = 0; l < term.k; ++l) {
            const double x =
                In(term.a)
                    .values[static_cast<size_t>(p_.ta ? l * term.lda + i : i * term.lda + l)] *
                static_cast<double>(
                    In(term.b)
                        .values[static_cast<size_t>(p_.tb ? j * term.ldb + l : l * term.ldb + j)]);
            sum += x;
            magnitude += std::abs(x);
          }
        }
        const int64_t at = i * result.n + j;
        double y = sum, derivative = 0;
        const double operand =
            result.operand < 0 ? 0 : In(result.operand).values[static_cast<size_t>(at)];
        if (p_.epilogue == Epilogue::kAdd) y += operand;
        if (p_.epilogue == Epilogue::kMul) y *= operand;
        if (p_.epilogue == Epilogue::kActivation) {
          y = ReferenceActivation(spec_.activation, sum);
          derivative = ReferenceActivationDerivative(spec_.activation, sum);
        }
        const double rounding = p_.out == DType::kBF16 ? 1.0 / 256 : 0;
        const double tolerance = 3e-6 * (magnitude + 1) * std::max(1.0, std::abs(operand));
        ASSERT_NEAR(value(result.out, at), y, tolerance + rounding * std::abs(y))
            << i << ", " << j << " of result " << result.out;
        if (result.derivative < 0) continue;
        ASSERT_NEAR(value(result.derivative, at), derivative,
                    tolerance + rounding * std::abs(derivative));
      }
    }
  }
  const Tensor& In(int i) const { return in_[static_cast<size_t>(i)]; }

  const Point p_;
  GemmSpec spec_;
  std::vector<Tensor> in_;
  int outputs_ = 0;
};

TEST(GemmTest, EqualsTheNaiveProductByEveryEngine) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const Point p = DrawPoint(seed);
    SCOPED_TRACE(p.ToString());
    const Trial trial(p);
    for (const GemmChoice choice : kChoices) {
      SCOPED_TRACE(std::string(GemmChoiceName(choice)));
      const GemmPolicy policy = HostGemmPolicy(choice);
      const std::vector<std::string> one = trial.Run(policy, 1);
      trial.ExpectNear(one);
      for (const int threads : {2, 3, 8}) EXPECT_EQ(trial.Run(policy, threads), one) << threads;
      if (HasFailure()) return;
    }
  }
}

// In these shapes of GPT-2, oneDNN itself blocks every dimension.
TEST(GemmTest, LargeProductsHaveTheSameBitsOnAnyNumberOfThreads) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool gradient : {false, true}) {
      Point p{};
      p.seed = 7;
      p.m = gradient ? 768 : 300;
      p.n = 1536;
      p.k = gradient ? 300 : 768;
      p.ta = gradient;
      p.tb = !gradient;
      p.terms = p.results = 1;
      p.operands = dtype;
      p.out = gradient ? DType::kF32 : dtype;
      p.epilogue = gradient ? Epilogue::kAdd : Epilogue::kActivation;
      p.bias = !gradient;
      p.in_place = gradient;
      SCOPED_TRACE(p.ToString());
      const Trial trial(p);
      for (const GemmChoice choice : {GemmChoice::kAuto, GemmChoice::kWiden, GemmChoice::kSmall}) {
        const GemmPolicy policy = HostGemmPolicy(choice);
        const std::vector<std::string> one = trial.Run(policy, 1);
        trial.ExpectNear(one);
        for (const int threads : {2, 3, 8}) EXPECT_EQ(trial.Run(policy, threads), one) << threads;
      }
    }
  }
}

}  // namespace
}  // namespace plumb
