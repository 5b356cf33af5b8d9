// The matrix products of training steps, plumb's op `matmul` against oneDNN's matmul primitive with
// its weights packed beforehand, in f32 and bf16: GFLOP/s, as a share of what oneDNN reaches at
// 2048^3 in the same run. Both sides alternate, call by call. On one thread the median of processor
// time is printed, on several the least time, since others' work may be on the machine.
//
//   OMP_WAIT_POLICY=passive gemm_benchmark [THREADS [SECONDS A SHAPE [PART OF A NAME]]]
//
// (oneDNN's idle OpenMP threads would spin beside plumb's otherwise.)
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"
#include "runtime/ops/ops.h"

namespace {

using plumb::AlignedBuffer;
using plumb::DType;

struct Case {
  const char* name;
  int64_t m, n, k;
  bool ta, tb;
  bool f32_out;  // of bf16 operands: gradients of weights

  double Flops() const { return 2.0 * static_cast<double>(m * n) * static_cast<double>(k); }
};

constexpr Case kPeak = {"2048^3", 2048, 2048, 2048, false, true, false};

// A linear layer [T, in] -> [T, out]: forward, gradient of its input, gradient of its weight.
struct Layer {
  const char* name;
  int64_t tokens, in, out;
};
constexpr Layer kLayers[] = {
    {"gpt2 T=1024 qkv", 1024, 768, 2304},      {"gpt2 T=1024 attn out", 1024, 768, 768},
    {"gpt2 T=1024 up", 1024, 768, 3072},       {"gpt2 T=1024 down", 1024, 3072, 768},
    {"gpt2 T=1024 head", 1024, 768, 50304},    {"gpt2 T=256 qkv", 256, 768, 2304},
    {"gpt2 T=256 attn out", 256, 768, 768},    {"gpt2 T=256 up", 256, 768, 3072},
    {"gpt2 T=256 down", 256, 3072, 768},       {"gpt2 T=256 head", 256, 768, 50304},
    {"baby T=2048 attn out", 2048, 384, 384},  {"baby T=2048 up", 2048, 384, 1536},
    {"baby T=2048 down", 2048, 1536, 384},     {"baby T=2048 head", 2048, 384, 65},
    {"shakespeare T=768 q", 768, 128, 128},    {"shakespeare T=768 up", 768, 128, 512},
    {"shakespeare T=768 down", 768, 512, 128},
};

double Seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void Fill(DType dtype, int64_t n, const char* name, AlignedBuffer* buffer) {
  const plumb::RngStream draws(1, name);
  for (int64_t i = 0; i < n; ++i) {
    const float x = static_cast<float>(draws.Uniform(i % 4096)) - 0.5f;
    if (dtype == DType::kBF16) {
      buffer->as<uint16_t>()[i] = plumb::Bf16FromFloat(x);
    } else {
      buffer->as<float>()[i] = x;
    }
  }
}

struct Operands {
  Operands(const Case& c, DType operands)
      : dtype(operands),
        out(operands == DType::kBF16 && !c.f32_out ? DType::kBF16 : DType::kF32),
        a(c.m * c.k * plumb::SizeOf(dtype)),
        b(c.n * c.k * plumb::SizeOf(dtype)),
        y(c.m * c.n * plumb::SizeOf(out)) {
    Fill(dtype, c.m * c.k, "a", &a);
    Fill(dtype, c.n * c.k, "b", &b);
  }
  DType dtype, out;
  AlignedBuffer a, b, y;
};

class Ours {
 public:
  Ours(const plumb::OpRegistry& registry, const Case& c, const Operands& operands)
      : a_{operands.dtype, c.ta ? plumb::Shape{c.k, c.m} : plumb::Shape{c.m, c.k}},
        b_{operands.dtype, c.tb ? plumb::Shape{c.n, c.k} : plumb::Shape{c.k, c.n}},
        y_{operands.out, {c.m, c.n}} {
    plumb::Attrs attrs(
        {{"transpose_a", c.ta}, {"transpose_b", c.tb}, {"f32_out", operands.out == DType::kF32}});
    const plumb::TensorType* in[] = {&a_, &b_};
    const plumb::TensorType* out[] = {&y_};
    auto kernel = registry.Find("matmul")->make_kernel({in, out, attrs});
    if (!kernel.ok()) std::abort();
    kernel_ = std::move(*kernel);
    scratch_ = AlignedBuffer(std::max<int64_t>(64, kernel_->scratch_bytes()));
  }

  void Run(const Operands& o, int threads) const {
    const void* in[] = {o.a.data(), o.b.data(), nullptr};
    void* out[] = {o.y.data()};
    if (!kernel_->Run({in, out, scratch_.data(), threads}).ok()) std::abort();
  }

 private:
  plumb::TensorType a_, b_, y_;
  std::unique_ptr<plumb::Kernel> kernel_;
  AlignedBuffer scratch_;
};

class OneDnn {
 public:
  OneDnn(const Case& c, const Operands& o) : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dnnl::memory;
    const auto type = [](DType dtype) {
      return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
    };
    const memory::desc a({c.m, c.k}, type(o.dtype),
                         c.ta ? memory::dims{1, c.m} : memory::dims{c.k, 1});
    const memory::desc b({c.k, c.n}, type(o.dtype),
                         c.tb ? memory::dims{1, c.k} : memory::dims{c.n, 1});
    const memory::desc packed({c.k, c.n}, type(o.dtype), memory::format_tag::any);
    const memory::desc y({c.m, c.n}, type(o.out), memory::dims{c.n, 1});
    const dnnl::matmul::primitive_desc desc({a, packed, y}, engine_);
    matmul_ = dnnl::matmul(desc);
    a_ = memory(a, engine_, o.a.data());
    b_ = memory(desc.weights_desc(), engine_);
    y_ = memory(y, engine_, o.y.data());
    memory plain(b, engine_, o.b.data());
    dnnl::reorder(plain, b_).execute(stream_, plain, b_);
    stream_.wait();
  }

  void Run(int threads) {
    omp_set_num_threads(threads);
    matmul_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, y_}});
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  dnnl::memory a_, b_, y_;
};

struct Rates {
  double ours, onednn;  // FLOP/s
};

double Typical(std::vector<double> times, int threads) {
  std::sort(times.begin(), times.end());
  return threads == 1 ? times[times.size() / 2] : times[0];
}

Rates Measure(const plumb::OpRegistry& registry, const Case& c, DType dtype, int threads,
              double seconds) {
  const Operands operands(c, dtype);
  const Ours ours(registry, c, operands);
  omp_set_num_threads(threads);
  OneDnn onednn(c, operands);
  std::vector<double> our_times, their_times;
  ours.Run(operands, threads);
  onednn.Run(threads);
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  const double begin = Seconds(clock);
  while (our_times.size() < 5 || (Seconds(clock) - begin < seconds && our_times.size() < 2000)) {
    const double t0 = Seconds(clock);
    ours.Run(operands, threads);
    const double t1 = Seconds(clock);
    onednn.Run(threads);
    our_times.push_back(t1 - t0);
    their_times.push_back(Seconds(clock) - t1);
  }
  return {c.Flops() / Typical(our_times, threads), c.Flops() / Typical(their_times, threads)};
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.2;
  const char* part = argc > 3 ? argv[3] : "";
  plumb::OpRegistry registry;
  plumb::RegisterOps(&registry);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::printf("%s, %d thread%s: GFLOP/s (share of oneDNN's 2048^3)\n", plumb::DTypeName(dtype),
                threads, threads == 1 ? "" : "s");
    const Rates peak = Measure(registry, kPeak, dtype, threads, std::max(seconds, 0.4));
    const auto print = [&](const std::string& name, const Rates& rates) {
      std::printf("  %-30s plumb %7.1f (%3.0f %%)  oneDNN %7.1f (%3.0f %%)  ratio %.2f\n",
                  name.c_str(), rates.ours * 1e-9, 100 * rates.ours / peak.onednn,
                  rates.onednn * 1e-9, 100 * rates.onednn / peak.onednn, rates.ours / rates.onednn);
      std::fflush(stdout);
    };
    print(kPeak.name, peak);
    for (const Layer& layer : kLayers) {
      const int64_t t = layer.tokens;
      const Case forms[] = {
          {" y = x W^T", t, layer.out, layer.in, false, true, false},
          {" dx = dy W", t, layer.in, layer.out, false, false, false},
          {" dW = dy^T x", layer.out, layer.in, t, true, false, true},
      };
      for (const Case& form : forms) {
        const std::string name = std::string(layer.name) + form.name;
        if (name.find(part) == std::string::npos) continue;
        print(name, Measure(registry, form, dtype, threads, seconds));
      }
    }
  }
  return 0;
}
