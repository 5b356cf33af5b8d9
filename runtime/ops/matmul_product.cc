#include "runtime/ops/matmul_product.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/parallel.h"
#include "runtime/ops/matmul_cut.h"
#include "runtime/ops/matvec.h"
#include "runtime/ops/small_matmul.h"

namespace plumb {
namespace {

int64_t AlignUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The block of a result that begins at `column`, for the finish.
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
        matmul_(SelectSmallMatmul(spec.transpose_a, spec.transpose_b)),
        finish_(spec.finish == FinishKind::kStore
                    ? nullptr
                    : SelectFinish(spec.finish, spec.activation, spec.out)) {
    const ProductResult& result = spec_.results[0];
    const ProductTerm& term = result.terms[0];
    args_ = {spec.m,  result.n, term.k,  nullptr, term.lda,
             nullptr, term.ldb, nullptr, nullptr, result.n};
    panel_floats_ = SmallMatmulScratch(term.k);
    // The result may have the memory of an operand of the finish, and cannot hold the sums then.
    if (result.operand >= 0) sum_floats_ = spec.m * result.n;
  }

  int64_t scratch_bytes() const override {
    return (panel_floats_ + sum_floats_) * SizeOf(DType::kF32);
  }

  absl::Status Run(const KernelArgs& args) const override {
    const ProductResult& result = spec_.results[0];
    SmallMatmulArgs g = args_;
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
  SmallMatmulFn matmul_;
  FinishFn finish_;
  SmallMatmulArgs args_;
  int64_t panel_floats_ = 0, sum_floats_ = 0;
};

// All results of one operand are one job: a thread that has done its part of one goes on with the
// next.
class FewRowsProduct : public Kernel {
 public:
  explicit FewRowsProduct(const ProductSpec& spec)
      : spec_(spec), finish_(SelectFinish(spec.finish, spec.activation, spec.out)) {
    for (const ProductResult& result : spec_.results) {
      Part part{Matvec(spec.m, result.n, result.terms[0].k, spec.operands, spec.operands,
                       Finishes() ? DType::kF32 : spec.out),
                tasks_, bytes_, 0};
      bytes_ += AlignUp(part.matvec.scratch_bytes());
      part.sums_at = bytes_;
      if (Finishes()) bytes_ += AlignUp(spec.m * result.n * SizeOf(DType::kF32));
      tasks_ += part.matvec.tasks();
      parts_.push_back(part);
    }
  }

  int64_t scratch_bytes() const override { return bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    std::array<MatvecArgs, kMaxResults> prepared;
    for (size_t r = 0; r < parts_.size(); ++r) {
      const ProductResult& result = spec_.results[r];
      prepared[r] = parts_[r].matvec.Prepare(
          {args.in[result.terms[0].a], args.in[result.terms[0].b], nullptr,
           result.bias < 0 ? nullptr : args.f32(static_cast<size_t>(result.bias)),
           Finishes() ? Sums(args, r) : args.out[result.out]},
          static_cast<char*>(args.scratch) + parts_[r].scratch_at);
    }
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      size_t r = 0;
      while (r + 1 < parts_.size() && i >= parts_[r + 1].first_task) ++r;
      parts_[r].matvec.RunTask(prepared[r], i - parts_[r].first_task,
                               [&](int64_t begin, int64_t end) {
                                 if (Finishes()) Finish(args, r, begin, end);
                               });
    });
    return absl::OkStatus();
  }

  static constexpr size_t kMaxResults = 8;

 private:
  struct Part {  // of a result
    Matvec matvec;
    int64_t first_task;
    int64_t scratch_at, sums_at;  // bytes
  };

  bool Finishes() const { return spec_.finish != FinishKind::kStore; }
  float* Sums(const KernelArgs& args, size_t r) const {
    return reinterpret_cast<float*>(static_cast<char*>(args.scratch) + parts_[r].sums_at);
  }
  void Finish(const KernelArgs& args, size_t r, int64_t begin, int64_t end) const {
    finish_(WholeColumns(args, spec_, spec_.results[r], Sums(args, r), begin, end));
  }

  ProductSpec spec_;
  FinishFn finish_;
  std::vector<Part> parts_;  // one a result
  int64_t tasks_ = 0, bytes_ = 0;
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
  if (spec.results.size() > FewRowsProduct::kMaxResults) return nullptr;
  for (const ProductResult& result : spec.results) {
    if (result.terms.size() != 1 || !UseMatvec(spec.m, result.n, result.terms[0].k)) return nullptr;
  }
  return std::make_unique<FewRowsProduct>(spec);
}

std::unique_ptr<Kernel> MakeProductKernel(ProductSpec spec) {
  if (std::unique_ptr<Kernel> few_rows = MakeFewRowsProduct(spec)) return few_rows;
  if (std::unique_ptr<Kernel> small = MakeSmallProduct(spec)) return small;
  if (std::unique_ptr<Kernel> halves = MakeHalvesProduct(spec)) return halves;
  return MakeBlockedMatmul(std::move(spec));
}

}  // namespace plumb
