// SPDX-License-Identifier: Apache-2.0
// Measures attention ops as a share of the GEMM peak of the same machine in the same run: GFLOP/s
// of the causal half (2 products of [T, T/2] by the head forward, 5 backward) over those of a plumb
// `matmul` of 2048^3 in f32 (in bf16 for bf16, if that is faster).
//
//   attention_benchmark [f32|bf16 [CONTEXT...]]
//
// Peak and attention are interleaved, so that both run at the same clock frequency; the best of
// many short runs counts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// One op with its own operands, ready to run repeatedly.
class Runner {
 public:
  Runner(const OpRegistry& registry, const std::string& op, const std::vector<TensorType>& inputs,
         const Attrs& attrs) {
    GraphBuilder b(&registry);
    std::vector<ValueId> ids;
    for (size_t i = 0; i < inputs.size(); ++i) ids.push_back(b.Input(std::to_string(i), inputs[i]));
    const std::vector<ValueId> results = b.ApplyAll(op, ids, attrs);
    for (size_t i = 0; b.ok() && i < results.size(); ++i) {
      b.Output("out" + std::to_string(i), results[i]);
    }
    absl::StatusOr<Graph> graph = std::move(b).Finish();
    if (!graph.ok()) return;
    graph_ = *std::move(graph);
    const Node& node = graph_.nodes[0];
    std::vector<const TensorType*> in_types, out_types;
    for (const ValueId id : node.inputs) in_types.push_back(&graph_.value(id).type);
    for (const ValueId id : node.outputs) out_types.push_back(&graph_.value(id).type);
    auto kernel = node.op->make_kernel({in_types, out_types, node.attrs});
    if (!kernel.ok()) return;
    kernel_ = *std::move(kernel);
    for (size_t i = 0; i < in_types.size(); ++i) {
      memory_.emplace_back(in_types[i]->bytes());
      Draw(*in_types[i], i, memory_.back().data());
      in_.push_back(memory_.back().data());
    }
    for (const TensorType* type : out_types) {
      memory_.emplace_back(type->bytes());
      out_.push_back(memory_.back().data());
    }
    scratch_ = AlignedBuffer(kernel_->scratch_bytes());
  }

  bool ok() const { return kernel_ != nullptr; }

  double Seconds(int threads) {
    const double start = Now(threads);
    const absl::Status status = kernel_->Run({in_.data(), out_.data(), scratch_.data(), threads});
    const double spent = Now(threads) - start;
    if (!status.ok()) std::abort();
    return spent;
  }

 private:
  // Returns the time. A single thread is timed by its CPU clock, which stops while others run.
  static double Now(int threads) {
    timespec now;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  // Fills an operand with scores near 0, or with log-sum-exps near that of equal scores.
  static void Draw(const TensorType& type, size_t i, void* to) {
    const RngStream draws(7, std::to_string(i));
    const bool lse = type.dtype == DType::kF32 && type.shape.rank() == 3 && i == 4;
    for (int64_t e = 0; e < type.num_elements(); ++e) {
      const float x = lse ? 6.0f : static_cast<float>(draws.Normal(static_cast<uint64_t>(e)));
      if (type.dtype == DType::kBF16) {
        static_cast<uint16_t*>(to)[e] = Bf16FromFloat(x);
      } else {
        static_cast<float*>(to)[e] = x;
      }
    }
  }

  Graph graph_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<AlignedBuffer> memory_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  AlignedBuffer scratch_;
};

struct Sizes {
  int64_t batch, context, heads, head_dim;
};

struct Rates {
  double peak = 0, forward = 0, backward = 0, both = 0;  // GFLOP/s
};

Rates Measure(const OpRegistry& registry, DType dtype, const Sizes& s, int threads) {
  constexpr int64_t kPeakSize = 2048;
  const TensorType square = {dtype, {kPeakSize, kPeakSize}};
  const TensorType x = {dtype, {s.batch, s.context, s.heads * s.head_dim}};
  const TensorType lse = F32({s.batch, s.heads, s.context});
  const Attrs attrs = {{"n_head", s.heads}, {"n_kv_head", s.heads}, {"scale", 0.125}};
  Runner peak(registry, "matmul", {square, square}, {{"transpose_b", true}});
  Runner forward(registry, "attention", {x, x, x}, attrs);
  Runner backward(registry, "attention_grad", {x, x, x, x, lse, x}, attrs);
  if (!peak.ok() || !forward.ok() || !backward.ok()) return {};

  // FLOPs of one product of the causal half.
  const double product =
      static_cast<double>(s.batch * s.heads * s.context * s.context * s.head_dim);
  double best_peak = 1e9, best_forward = 1e9, best_backward = 1e9;
  const int rounds = s.context >= 4096 ? 3 : 6;
  const int repeats = std::max(1, static_cast<int>(2e9 / (7 * product)));
  for (int i = 0; i < rounds; ++i) {
    best_peak = std::min(best_peak, peak.Seconds(threads));
    for (int k = 0; k < repeats; ++k)
      best_forward = std::min(best_forward, forward.Seconds(threads));
    for (int k = 0; k < repeats; ++k) {
      best_backward = std::min(best_backward, backward.Seconds(threads));
    }
  }
  Rates rates;
  rates.peak = 2e-9 * kPeakSize * kPeakSize * kPeakSize / best_peak;
  rates.forward = 2e-9 * product / best_forward;
  rates.backward = 5e-9 * product / best_backward;
  rates.both = 7e-9 * product / (best_forward + best_backward);
  return rates;
}

int Main(int argc, char** argv) {
  OpRegistry registry;
  RegisterOps(&registry);
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16};
  if (argc > 1) dtypes = {std::strcmp(argv[1], "bf16") == 0 ? DType::kBF16 : DType::kF32};
  const std::vector<Sizes> all = {
      {12, 64, 4, 32}, {8, 256, 6, 64}, {4, 64, 12, 64}, {1, 1024, 12, 64}, {1, 4096, 12, 64}};
  std::printf("%-5s %7s %5s %8s %6s %8s | %13s | %13s | %13s | GFLOP/s and share of the peak\n",
              "dtype", "context", "batch", "heads", "thread", "peak", "forward", "backward",
              "both");
  for (const DType dtype : dtypes) {
    for (const Sizes& s : all) {
      const auto asked = [&s](const char* arg) { return std::atoll(arg) == s.context; };
      if (argc > 2 && std::none_of(argv + 2, argv + argc, asked)) continue;
      for (const int threads : {1, 2}) {
        const Rates r = Measure(registry, dtype, s, threads);
        const std::string heads = std::to_string(s.heads) + " x " + std::to_string(s.head_dim);
        std::printf(
            "%-5s %7lld %5lld %8s %6d %8.0f | %6.0f  %4.0f%% | %6.0f  %4.0f%% | %6.0f  %4.0f%%\n",
            DTypeName(dtype), static_cast<long long>(s.context), static_cast<long long>(s.batch),
            heads.c_str(), threads, r.peak, r.forward, 100 * r.forward / r.peak, r.backward,
            100 * r.backward / r.peak, r.both, 100 * r.both / r.peak);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace plumb

int main(int argc, char** argv) { return plumb::Main(argc, argv); }
