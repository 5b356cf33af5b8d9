// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/matmul_shape.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/kernels/gemv/gemv.h"
#include "runtime/kernels/gemv/gemv_job.h"

namespace plumb {
namespace {

class GemmKernel : public Kernel {
 public:
  GemmKernel(GemmSpec spec, const GemmPolicy& policy) : gemm_(std::move(spec), policy) {}

  int64_t scratch_bytes() const override { return gemm_.scratch_bytes(); }
  absl::Status Run(const KernelArgs& args) const override {
    return gemm_.Run(args.in, args.out, args.scratch, args.threads);
  }
  std::string ToString() const override { return gemm_.ToString(); }

 private:
  const Gemm gemm_;
};

// GEMV: at most kMaxGemvRows rows times transposed matrices, as in decoding.
class GemvKernel : public Kernel {
 public:
  explicit GemvKernel(const GemmSpec& spec)
      : spec_(spec), epilogue_(SelectEpilogue(spec.epilogue, spec.activation, spec.out)) {
    for (const GemmResult& result : spec_.results) {
      gemvs_.Add(Gemv(spec.m, result.n, result.terms[0].k, spec.operands, spec.operands,
                      HasEpilogue() ? DType::kF32 : spec.out, /*may_pack=*/true));
      sums_at_.push_back(sum_bytes_);
      if (HasEpilogue()) sum_bytes_ += AlignUp(spec.m * result.n * SizeOf(DType::kF32));
    }
  }

  int64_t scratch_bytes() const override { return sum_bytes_ + gemvs_.scratch_bytes(); }

  absl::Status Run(const KernelArgs& args) const override {
    const auto operands = [&](size_t r) -> Gemv::Operands {
      const GemmResult& result = spec_.results[r];
      return {args.in[result.terms[0].a], args.in[result.terms[0].b],
              result.bias < 0 ? nullptr : args.f32(static_cast<size_t>(result.bias)),
              HasEpilogue() ? Sums(args, r) : args.out[result.out]};
    };
    gemvs_.Run(operands, static_cast<char*>(args.scratch) + sum_bytes_, args.threads);
    for (size_t r = 0; HasEpilogue() && r < spec_.results.size(); ++r) RunEpilogue(args, r);
    return absl::OkStatus();
  }

  std::string ToString() const override {
    std::string text;
    for (const GemmResult& result : spec_.results) {
      absl::StrAppend(&text, text.empty() ? "" : "; ", "GEMV ", DTypeName(spec_.operands), " ",
                      spec_.m, "x", result.n, "x", result.terms[0].k);
    }
    return text;
  }

 private:
  bool HasEpilogue() const { return spec_.epilogue != Epilogue::kStore; }

  // Runs after the product, not in its tasks: for the few sums of a task the epilogue would cost as
  // much as the product, and memory would be idle meanwhile.
  void RunEpilogue(const KernelArgs& args, size_t r) const {
    const GemmResult& result = spec_.results[r];
    constexpr int64_t kWork = 8;  // scalar operations per element
    const int64_t tasks = TaskCount(result.n, spec_.m * result.n * kWork);
    ParallelFor(tasks, args.threads, [&](int64_t i) {
      const Range columns = TaskRange(result.n, tasks, i);
      const int64_t offset = columns.begin * SizeOf(spec_.out);
      EpilogueArgs e{spec_.m,
                     columns.end - columns.begin,
                     Sums(args, r) + columns.begin,
                     result.n,
                     nullptr,
                     nullptr,
                     nullptr,
                     result.n};
      if (result.operand >= 0) {
        e.operand = static_cast<const char*>(args.in[result.operand]) + offset;
      }
      if (result.derivative >= 0) {
        e.derivative = static_cast<char*>(args.out[result.derivative]) + offset;
      }
      e.out = static_cast<char*>(args.out[result.out]) + offset;
      epilogue_(e);
    });
  }

  float* Sums(const KernelArgs& args, size_t r) const {
    return reinterpret_cast<float*>(static_cast<char*>(args.scratch) + sums_at_[r]);
  }

  const GemmSpec spec_;
  EpilogueFn epilogue_;
  GemvJob<Gemv> gemvs_;           // one per result
  std::vector<int64_t> sums_at_;  // offsets in the scratch, if there is an epilogue
  int64_t sum_bytes_ = 0;
};

bool IsGemv(const GemmSpec& spec) {
  if (spec.transpose_a || !spec.transpose_b || spec.results.size() > kMaxGemvs) return false;
  for (const GemmResult& result : spec.results) {
    if (result.terms.size() != 1 || !UseGemv(spec.m, result.n, result.terms[0].k)) return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<Kernel> MakeMatmulKernel(GemmSpec spec, const GemmPolicy& policy) {
  if (IsGemv(spec)) return std::make_unique<GemvKernel>(spec);
  return std::make_unique<GemmKernel>(std::move(spec), policy);
}

}  // namespace plumb
