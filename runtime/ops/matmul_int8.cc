#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/ops/flops.h"
#include "runtime/ops/matvec.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/quantize.h"
#include "runtime/ops/small_matmul.h"

namespace plumb {
namespace {

absl::StatusOr<std::vector<TensorType>> Infer(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckInt8Matrix(types, 1, "w"));
  if (!types.attrs.GetBool("transpose_b", false)) {
    return absl::InvalidArgumentError("transpose_b must be set: groups lie along the rows of w");
  }
  const Shape &x = types.in(0).shape, &w = types.in(1).shape;
  if (x.last() != w[1]) {
    return absl::InvalidArgumentError(
        absl::StrCat("the inner sizes differ: ", x.last(), " of x and ", w[1], " of w"));
  }
  if (types.has(3)) {
    PLUMB_RETURN_IF_ERROR(CheckF32(types, 3, "bias"));
    if (types.in(3).shape != Shape({w[0]})) {
      return absl::InvalidArgumentError(absl::StrCat("bias must be [", w[0], "]"));
    }
  }
  return std::vector<TensorType>{F32(x.WithLast(w[0]))};
}

const int8_t* Weights(const KernelArgs& args) { return static_cast<const int8_t*>(args.in[1]); }

class FewRowsKernel : public Kernel {
 public:
  FewRowsKernel(int64_t m, int64_t n, int64_t k, bool bias)
      : matvec_(m, n, k, DType::kF32, DType::kI8, DType::kF32), bias_(bias) {}

  int64_t scratch_bytes() const override { return matvec_.scratch_bytes(); }

  absl::Status Run(const KernelArgs& args) const override {
    matvec_.Run({args.in[0], args.in[1], args.f32(2), bias_ ? args.f32(3) : nullptr, args.out[0]},
                args.scratch, args.threads);
    return absl::OkStatus();
  }

 private:
  Matvec matvec_;
  bool bias_;
};

// Panels of w, some rows each, become f32 in the cache and are multiplied by all of x from there.
class ManyRowsKernel : public Kernel {
  static constexpr int64_t kMaxTasks = 32;
  static constexpr int64_t kPanelFloats = 1 << 16;  // 256 KiB
  static constexpr int64_t kSlabFloats = 1 << 17;   // of x

 public:
  ManyRowsKernel(int64_t m, int64_t n, int64_t k, bool bias)
      : m_(m),
        n_(n),
        k_(k),
        panel_(std::max<int64_t>(32, kPanelFloats / k / 32 * 32)),
        tasks_(std::min(kMaxTasks, (n + panel_ - 1) / panel_)),
        bias_(bias),
        multiply_(SelectSmallMatmul(false, true)) {}

  int64_t scratch_bytes() const override { return tasks_ * task_bytes(); }

  absl::Status Run(const KernelArgs& args) const override {
    const float* x = args.f32(0);
    float* y = args.out_f32(0);
    const int64_t slab = std::max<int64_t>(8, kSlabFloats / std::min(k_, kMaxSmallMatmulTerms));
    const int64_t panels = (n_ + panel_ - 1) / panel_, groups = Int8Groups(k_);
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      float* w =
          reinterpret_cast<float*>(static_cast<std::byte*>(args.scratch) + task * task_bytes());
      float* scratch = w + panel_ * k_;
      const Range range = TaskRange(panels, tasks_, task);
      for (int64_t j = range.begin * panel_; j < std::min(n_, range.end * panel_); j += panel_) {
        const int64_t n = std::min(panel_, n_ - j);
        DequantizeInt8(Weights(args) + j * k_, args.f32(2) + j * groups, n, k_, w);
        for (int64_t i = 0; i < m_; i += slab) {
          multiply_({std::min(slab, m_ - i), n, k_, x + i * k_, k_, w, k_,
                     bias_ ? args.f32(3) + j : nullptr, y + i * n_ + j, n_},
                    scratch);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  int64_t task_bytes() const {
    return AlignUp((panel_ * k_ + SmallMatmulScratch(k_)) * SizeOf(DType::kF32));
  }

  int64_t m_, n_, k_;
  int64_t panel_, tasks_;  // rows of w
  bool bias_;
  SmallMatmulFn multiply_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  const int64_t m = types.in(0).shape.rows(), n = types.in(1).shape[0], k = types.in(1).shape[1];
  if (m <= kMaxMatvecRows) return std::make_unique<FewRowsKernel>(m, n, k, types.has(3));
  return std::make_unique<ManyRowsKernel>(m, n, k, types.has(3));
}

absl::Status Reference(const ReferenceArgs& args) {
  const int64_t m = args.shape(0).rows(), n = args.shape(1)[0], k = args.shape(1)[1];
  const int64_t group = Int8GroupSize(k);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double y = args.has(3) ? args.f(3)[j] : 0;
      for (int64_t l = 0; l < k; ++l) {
        const int64_t at = j * k + l;
        y += args.f(0)[i * k + l] * args.i(1)[at] * args.f(2)[at / group];
      }
      args.out(0)[i * n + j] = y;
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterMatmulInt8(OpRegistry* registry) {
  OpDef op;
  op.name = "matmul_int8";
  op.min_inputs = 3;
  op.max_inputs = 4;
  op.infer = Infer;
  op.make_kernel = MakeKernel;
  op.reference = Reference;
  op.flops = MatmulFlops;
  registry->Add(std::move(op));
}

}  // namespace plumb
