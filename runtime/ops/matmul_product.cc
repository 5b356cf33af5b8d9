#include "runtime/ops/matmul_product.h"

#include <algorithm>
#include <utility>

#include "runtime/base/parallel.h"
#include "runtime/kernels/gemm/matmul_cut.h"
#include "runtime/kernels/gemv/gemv.h"
#include "runtime/kernels/gemv/gemv_job.h"
#include "runtime/kernels/gemm/small_gemm.h"

namespace plumb {
namespace {

// Columns [begin, end) of a result, all rows, for the finish.
FinishArgs WholeColumns(const KernelArgs& args, const ProductSpec& spec,
                        const ProductResult& result, const float* sums, int64_t begin,
                        int64_t end) {
  const int64_t offset = begin * SizeOf(spec.out);
  FinishArgs f{spec.m, end - begin, 0, sums + begin, result.n, nullptr, nullptr, nullptr, result.n};
  if (result.operand >= 0) f.operand = static_cast<const char*>(args.in[result.operand]) + offset;
  if (result.slope >= 0) f.slope = static_cast<char*>(args.out[result.slope]) + offset;
  f.out = static_cast<char*>(args.out[result.out]) + offset;
  return f;
}

class SmallProduct : public Kernel {
 public:
  explicit SmallProduct(const ProductSpec& spec)
      : spec_(spec),
        matmul_(SelectSmallGemm(spec.transpose_a, spec.transpose_b)),
        finish_(spec.finish == FinishKind::kStore
                    ? nullptr
                    : SelectFinish(spec.finish, spec.activation, spec.out)) {
    const ProductResult& result = spec_.results[0];
    const ProductTerm& term = result.terms[0];
    args_ = {spec.m,  result.n, term.k,  nullptr, term.lda,
             nullptr, term.ldb, nullptr, nullptr, result.n};
    panel_floats_ = SmallGemmScratch(term.k);
    // The result may have the memory of an operand of the finish, and cannot hold the sums then.
    if (result.operand >= 0) sum_floats_ = spec.m * result.n;
  }

  int64_t scratch_bytes() const override {
    return (panel_floats_ + sum_floats_) * SizeOf(DType::kF32);
  }

  absl::Status Run(const KernelArgs& args) const override {
    const ProductResult& result = spec_.results[0];
    SmallGemmArgs g = args_;
    g.a = args.f32(static_cast<size_t>(result.terms[0].a));
    g.b = args.f32(static_cast<size_t>(result.terms[0].b));
    if (result.bias >= 0) g.bias = args.f32(static_cast<size_t>(result.bias));
    float* scratch = static_cast<float*>(args.scratch);
    g.c = sum_floats_ > 0 ? scratch + panel_floats_ : args.out_f32(static_cast<size_t>(result.out));
    matmul_(g, scratch);
    if (finish_ != nullptr) finish_(WholeColumns(args, spec_, result, g.c, 0, result.n));
    return absl::OkStatus();
  }

 private:
  ProductSpec spec_;
  SmallGemmFn matmul_;
  FinishFn finish_;
  SmallGemmArgs args_;
  int64_t panel_floats_ = 0, sum_floats_ = 0;
};

class FewRowsProduct : public Kernel {
 public:
  explicit FewRowsProduct(const ProductSpec& spec)
      : spec_(spec), finish_(SelectFinish(spec.finish, spec.activation, spec.out)) {
    for (const ProductResult& result : spec_.results) {
      gemvs_.Add(Gemv(spec.m, result.n, result.terms[0].k, spec.operands, spec.operands,
                          Finishes() ? DType::kF32 : spec.out));
      sums_at_.push_back(sum_bytes_);
      if (Finishes()) sum_bytes_ += AlignUp(spec.m * result.n * SizeOf(DType::kF32));
    }
  }

  int64_t scratch_bytes() const override { return sum_bytes_ + gemvs_.scratch_bytes(); }

  absl::Status Run(const KernelArgs& args) const override {
    const auto operands = [&](size_t r) -> Gemv::Operands {
      const ProductResult& result = spec_.results[r];
      return {args.in[result.terms[0].a], args.in[result.terms[0].b],
              result.bias < 0 ? nullptr : args.f32(static_cast<size_t>(result.bias)),
              Finishes() ? Sums(args, r) : args.out[result.out]};
    };
    void* const scratch = static_cast<char*>(args.scratch) + sum_bytes_;
    gemvs_.Run(operands, scratch, args.threads);
    if (Finishes()) {
      for (size_t r = 0; r < spec_.results.size(); ++r) Finish(args, r);
    }
    return absl::OkStatus();
  }

 private:
  bool Finishes() const { return spec_.finish != FinishKind::kStore; }

  // After the product: for the few sums that a task makes it costs as much as they do, and memory
  // waits meanwhile.
  void Finish(const KernelArgs& args, size_t r) const {
    const ProductResult& result = spec_.results[r];
    constexpr int64_t kWork = 8;  // scalar operations of an element
    const int64_t tasks = TaskCount(result.n, spec_.m * result.n * kWork);
    const auto finish = [&](int64_t i) {
      const Range range = TaskRange(result.n, tasks, i);
      finish_(WholeColumns(args, spec_, result, Sums(args, r), range.begin, range.end));
    };
    ParallelFor(tasks, args.threads, finish);
  }

  float* Sums(const KernelArgs& args, size_t r) const {
    return reinterpret_cast<float*>(static_cast<char*>(args.scratch) + sums_at_[r]);
  }

  ProductSpec spec_;
  FinishFn finish_;
  GemvJob<Gemv> gemvs_;     // one a result
  std::vector<int64_t> sums_at_;  // bytes of the scratch, where something is done to them
  int64_t sum_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> MakeSmallProduct(const ProductSpec& spec) {
  if (spec.operands != DType::kF32 || spec.out != DType::kF32 || spec.results.size() != 1 ||
      spec.results[0].terms.size() != 1) {
    return nullptr;
  }
  const ProductResult& result = spec.results[0];
  const CutShape shape{spec.m, result.n, result.terms[0].k, spec.transpose_a, spec.transpose_b,
                       1,      1};
  if (WantedTasks(shape) > 1) return nullptr;
  return std::make_unique<SmallProduct>(spec);
}

std::unique_ptr<Kernel> MakeFewRowsProduct(const ProductSpec& spec) {
  if (spec.transpose_a || !spec.transpose_b) return nullptr;
  if (spec.results.size() > kMaxGemvs) return nullptr;
  for (const ProductResult& result : spec.results) {
    if (result.terms.size() != 1 || !UseGemv(spec.m, result.n, result.terms[0].k)) return nullptr;
  }
  return std::make_unique<FewRowsProduct>(spec);
}

std::unique_ptr<Kernel> MakeProductKernel(ProductSpec spec) {
  if (std::unique_ptr<Kernel> few_rows = MakeFewRowsProduct(spec)) return few_rows;
  if (std::unique_ptr<Kernel> small = MakeSmallProduct(spec)) return small;
  if (std::unique_ptr<Kernel> tokens = MakeTokensProduct(spec)) return tokens;
  if (std::unique_ptr<Kernel> columns = MakeColumnsProduct(spec)) return columns;
  if (std::unique_ptr<Kernel> many_rows = MakeManyRowsProduct(spec)) return many_rows;
  return MakeBlockedProduct(std::move(spec));
}

}  // namespace plumb
