// SPDX-License-Identifier: Apache-2.0
// Measures the matrix products of training steps and prompts with every engine that supports them,
// in f32 and bf16: GFLOP/s of each, and the time of the plan's choice relative to the best. Engines
// are interleaved call by call. With one thread the median of the CPU time counts, with several the
// minimum of the wall time, since other processes may use the machine.
//
//   gemm_benchmark [THREADS [SECONDS A SHAPE [PART OF A NAME]]]
//
// The last line has the worst choice. ONEDNN_MAX_CPU_ISA (SSE41, AVX2, AVX512_CORE,
// AVX512_CORE_BF16) emulates older processors.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"
#include "runtime/kernels/gemm/gemm.h"

namespace {

using plumb::AlignedBuffer;
using plumb::DType;
using plumb::GemmChoice;

struct Case {
  std::string name;
  int64_t m, n, k;
  bool ta, tb;
  bool f32_out;  // f32 results of bf16 operands: gradients of weights

  double Flops() const { return 2.0 * static_cast<double>(m * n) * static_cast<double>(k); }
};

// A linear layer [T, in] -> [T, out]: forward, gradient of its input, gradient of its weight.
struct Layer {
  const char* name;
  int64_t tokens, in, out;
};
constexpr Layer kLayers[] = {
    {"gpt2 T=1024 qkv", 1024, 768, 2304},
    {"gpt2 T=1024 proj", 1024, 768, 768},
    {"gpt2 T=1024 up", 1024, 768, 3072},
    {"gpt2 T=1024 down", 1024, 3072, 768},
    {"gpt2 T=256 qkv", 256, 768, 2304},
    {"gpt2 T=256 proj", 256, 768, 768},
    {"gpt2 T=256 up", 256, 768, 3072},
    {"gpt2 T=256 down", 256, 3072, 768},
    {"gpt2 T=256 head", 256, 768, 50304},
    {"baby T=2048 qkv", 2048, 384, 1152},
    {"baby T=2048 proj", 2048, 384, 384},
    {"baby T=2048 up", 2048, 384, 1536},
    {"baby T=2048 down", 2048, 1536, 384},
    {"baby T=2048 head", 2048, 384, 65},
    {"shakespeare T=768 q", 768, 128, 128},
    {"shakespeare T=768 up", 768, 128, 512},
    {"shakespeare T=768 down", 768, 512, 128},
    {"shakespeare T=768 head", 768, 128, 65},
    {"narrow T=128 up", 128, 64, 256},
    {"narrow T=64 up", 64, 64, 256},
    {"narrow T=64 q", 64, 64, 64},
    {"narrow T=16 up", 16, 16, 64},
    {"narrow T=16 q", 16, 16, 16},
};

double Seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

AlignedBuffer Random(DType dtype, int64_t n, const char* name) {
  AlignedBuffer buffer(n * plumb::SizeOf(dtype));
  const plumb::RngStream draws(1, name);
  for (int64_t i = 0; i < n; ++i) {
    const float x = static_cast<float>(draws.Uniform(i % 4096)) - 0.5f;
    if (dtype == DType::kBF16) {
      buffer.as<uint16_t>()[i] = plumb::Bf16FromFloat(x);
    } else {
      buffer.as<float>()[i] = x;
    }
  }
  return buffer;
}

struct Contender {
  GemmChoice choice;
  std::unique_ptr<plumb::Gemm> gemm;
  AlignedBuffer scratch;
  std::vector<double> seconds;
};

class Comparison {
 public:
  Comparison(const Case& c, DType dtype)
      : case_(c), a_(Random(dtype, c.m * c.k, "a")), b_(Random(dtype, c.n * c.k, "b")) {
    plumb::GemmSpec spec{dtype,
                         c.f32_out ? DType::kF32 : dtype,
                         c.ta,
                         c.tb,
                         c.m,
                         plumb::Epilogue::kStore,
                         plumb::ActivationKind::kRelu,
                         {}};
    plumb::GemmResult result;
    result.n = c.n;
    result.terms = {{0, 1, c.k, c.ta ? c.m : c.k, c.tb ? c.k : c.n}};
    spec.results = {result};
    out_ = AlignedBuffer(c.m * c.n * plumb::SizeOf(spec.out));
    std::vector<GemmChoice> choices = {GemmChoice::kAuto, GemmChoice::kOneDnn};
    // Above this size, plumb's own engine is known to be slower.
    if (c.Flops() < 6e9) choices.push_back(GemmChoice::kSmall);
    if (dtype == DType::kBF16)
      choices.insert(choices.end(), {GemmChoice::kPairs, GemmChoice::kWiden});
    for (const GemmChoice choice : choices) {
      Contender contender;
      contender.choice = choice;
      contender.gemm = std::make_unique<plumb::Gemm>(spec, plumb::HostGemmPolicy(choice));
      // A second contender with the same plan would only measure noise.
      const bool is_known =
          std::any_of(contenders_.begin(), contenders_.end(), [&](const Contender& other) {
            return other.gemm->ToString() == contender.gemm->ToString();
          });
      if (is_known) continue;
      contender.scratch = AlignedBuffer(std::max<int64_t>(64, contender.gemm->scratch_bytes()));
      contenders_.push_back(std::move(contender));
    }
  }

  void Measure(int threads, double seconds) {
    const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    // Several calls are timed together, so that the cost of reading the clock does not matter.
    const int calls = static_cast<int>(std::clamp(2e6 / case_.Flops(), 1.0, 200.0));
    for (Contender& contender : contenders_) Run(contender, threads, 1);
    const double begin = Seconds(clock);
    for (size_t round = 0; round < 7 || (Seconds(clock) - begin < seconds && round < 2000);
         ++round) {
      for (size_t i = 0; i < contenders_.size(); ++i) {
        Contender& contender = contenders_[(i + round) % contenders_.size()];
        const double t0 = Seconds(clock);
        Run(contender, threads, calls);
        contender.seconds.push_back((Seconds(clock) - t0) / calls);
      }
    }
  }

  // Prints the case and returns the time of the plan's choice over that of the best.
  double Print(int threads) {
    const auto typical = [&](Contender& contender) {
      std::vector<double>& t = contender.seconds;
      std::sort(t.begin(), t.end());
      return threads == 1 ? t[t.size() / 2] : t[0];
    };
    double best = 0;
    std::string text = absl::StrCat("  ", case_.name);
    text.resize(32, ' ');
    for (Contender& contender : contenders_) {
      const double t = typical(contender);
      if (best == 0 || t < best) best = t;
      char figure[64];
      std::snprintf(figure, sizeof(figure), " %s %6.1f",
                    std::string(plumb::GemmChoiceName(contender.choice)).c_str(),
                    case_.Flops() / t * 1e-9);
      text += figure;
    }
    const double ratio = typical(contenders_[0]) / best;
    std::printf("%-96s auto/best %.2f\n", text.c_str(), ratio);
    std::fflush(stdout);
    return ratio;
  }

 private:
  void Run(Contender& contender, int threads, int calls) {
    const void* const in[] = {a_.data(), b_.data()};
    void* const out[] = {out_.data()};
    for (int i = 0; i < calls; ++i) {
      if (!contender.gemm->Run(in, out, contender.scratch.data(), threads).ok()) std::abort();
    }
  }

  const Case case_;
  AlignedBuffer a_, b_, out_;
  std::vector<Contender> contenders_;
};

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.4;
  const std::string part = argc > 3 ? argv[3] : "";
  if (threads < 1) {
    std::fprintf(stderr, "gemm_benchmark [THREADS [SECONDS A SHAPE [PART OF A NAME]]]\n");
    return 2;
  }
  std::printf("%s\n", plumb::HostGemmPolicy().ToString().c_str());
  double worst = 0;
  std::string worst_name;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::printf("%s, %d thread%s: GFLOP/s\n", plumb::DTypeName(dtype), threads,
                threads == 1 ? "" : "s");
    for (const Layer& layer : kLayers) {
      const int64_t t = layer.tokens;
      const std::string name = layer.name;
      const Case forms[] = {
          {name + " fwd", t, layer.out, layer.in, false, true, false},
          {name + " dX", t, layer.in, layer.out, false, false, false},
          {name + " dW", layer.out, layer.in, t, true, false, true},
      };
      for (const Case& form : forms) {
        if (form.name.find(part) == std::string::npos) continue;
        Comparison comparison(form, dtype);
        comparison.Measure(threads, seconds);
        const double ratio = comparison.Print(threads);
        if (ratio <= worst) continue;
        worst = ratio;
        worst_name = absl::StrCat(plumb::DTypeName(dtype), " ", form.name);
      }
    }
  }
  std::printf("worst: %s, the plan's choice takes %.2f of the best engine's time\n",
              worst_name.c_str(), worst);
  return 0;
}
