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

// Where the operands of product r stand: x first, then w and scales of each, then biases.
size_t WeightAt(size_t r) { return 1 + 2 * r; }
size_t ScalesAt(size_t r) { return 2 + 2 * r; }
size_t BiasAt(size_t r, size_t count) { return 1 + 2 * count + r; }
size_t CountOf(const Attrs& attrs) { return static_cast<size_t>(attrs.GetInt("count")); }

absl::StatusOr<TensorType> InferOne(const OpTypes& types, size_t r, size_t count) {
  PLUMB_RETURN_IF_ERROR(CheckInt8Matrix(types, WeightAt(r), "w"));
  const Shape &x = types.in(0).shape, &w = types.in(WeightAt(r)).shape;
  if (x.last() != w[1]) {
    return absl::InvalidArgumentError(
        absl::StrCat("the inner sizes differ: ", x.last(), " of x and ", w[1], " of w"));
  }
  const size_t bias = BiasAt(r, count);
  if (types.has(bias)) {
    PLUMB_RETURN_IF_ERROR(CheckF32(types, bias, "bias"));
    if (types.in(bias).shape != Shape({w[0]})) {
      return absl::InvalidArgumentError(absl::StrCat("bias must be [", w[0], "]"));
    }
  }
  return F32(x.WithLast(w[0]));
}

absl::StatusOr<std::vector<TensorType>> Infer(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "x"));
  if (!types.attrs.GetBool("transpose_b", false)) {
    return absl::InvalidArgumentError("transpose_b must be set: groups lie along the rows of w");
  }
  const int64_t count = types.attrs.GetInt("count");
  const int64_t inputs = static_cast<int64_t>(types.inputs.size());
  if (count < 1 || count > static_cast<int64_t>(Matvecs::kMost) || inputs < 1 + 2 * count ||
      inputs > 1 + 3 * count) {
    return absl::InvalidArgumentError(
        absl::StrCat("count ", count, " does not fit ", inputs, " inputs"));
  }
  std::vector<TensorType> outputs;
  for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
    PLUMB_ASSIGN_OR_RETURN(const TensorType y, InferOne(types, r, static_cast<size_t>(count)));
    outputs.push_back(y);
  }
  return outputs;
}

// Which biases there are.
std::vector<bool> BiasesOf(const OpTypes& types) {
  const size_t count = CountOf(types.attrs);
  std::vector<bool> biases;
  for (size_t r = 0; r < count; ++r) biases.push_back(types.has(BiasAt(r, count)));
  return biases;
}
const float* BiasOf(const KernelArgs& args, const std::vector<bool>& biases, size_t r) {
  return biases[r] ? args.f32(BiasAt(r, biases.size())) : nullptr;
}

class FewRowsKernel : public Kernel {
 public:
  explicit FewRowsKernel(const OpTypes& types) : biases_(BiasesOf(types)) {
    for (size_t r = 0; r < biases_.size(); ++r) {
      const Shape& w = types.in(WeightAt(r)).shape;
      matvecs_.Add(
          Matvec(types.in(0).shape.rows(), w[0], w[1], DType::kF32, DType::kI8, DType::kF32));
    }
  }

  int64_t scratch_bytes() const override { return matvecs_.scratch_bytes(); }

  absl::Status Run(const KernelArgs& args) const override {
    const auto operands = [&](size_t r) -> Matvec::Operands {
      return {args.in[0], args.in[WeightAt(r)], args.f32(ScalesAt(r)), BiasOf(args, biases_, r),
              args.out[r]};
    };
    matvecs_.Run(operands, args.scratch, args.threads, args.next);
    return absl::OkStatus();
  }

  bool reads_from_memory() const override { return true; }
  ReadAhead FirstReads(const void* const* in, int seat, int seats) const override {
    return matvecs_.FirstReads([in](size_t r) { return in[WeightAt(r)]; }, seat, seats);
  }

 private:
  const std::vector<bool> biases_;
  Matvecs matvecs_;
};

// Panels of w, some rows each, become f32 in the cache and are multiplied by all of x from there.
class ManyRowsProduct {
  static constexpr int64_t kMaxTasks = 32;
  static constexpr int64_t kPanelFloats = 1 << 16;  // 256 KiB
  static constexpr int64_t kSlabFloats = 1 << 17;   // of x

 public:
  ManyRowsProduct(int64_t m, int64_t n, int64_t k)
      : m_(m),
        n_(n),
        k_(k),
        panel_(std::max<int64_t>(32, kPanelFloats / k / 32 * 32)),
        tasks_(std::min(kMaxTasks, (n + panel_ - 1) / panel_)),
        multiply_(SelectSmallMatmul(false, true)) {}

  int64_t scratch_bytes() const { return tasks_ * task_bytes(); }

  void Run(const Matvec::Operands& operands, void* scratch, int threads) const {
    const float* x = static_cast<const float*>(operands.x);
    const int8_t* const w = static_cast<const int8_t*>(operands.w);
    float* y = static_cast<float*>(operands.y);
    const int64_t slab = std::max<int64_t>(8, kSlabFloats / std::min(k_, kMaxSmallMatmulTerms));
    const int64_t panels = (n_ + panel_ - 1) / panel_, groups = Int8Groups(k_);
    ParallelFor(tasks_, threads, [&](int64_t task) {
      float* floats =
          reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + task * task_bytes());
      float* rest = floats + panel_ * k_;
      const Range range = TaskRange(panels, tasks_, task);
      for (int64_t j = range.begin * panel_; j < std::min(n_, range.end * panel_); j += panel_) {
        const int64_t n = std::min(panel_, n_ - j);
        DequantizeInt8(w + j * k_, operands.scales + j * groups, n, k_, floats);
        for (int64_t i = 0; i < m_; i += slab) {
          multiply_({std::min(slab, m_ - i), n, k_, x + i * k_, k_, floats, k_,
                     operands.bias == nullptr ? nullptr : operands.bias + j, y + i * n_ + j, n_},
                    rest);
        }
      }
    });
  }

 private:
  int64_t task_bytes() const {
    return AlignUp((panel_ * k_ + SmallMatmulScratch(k_)) * SizeOf(DType::kF32));
  }

  int64_t m_, n_, k_;
  int64_t panel_, tasks_;  // rows of w
  SmallMatmulFn multiply_;
};

class ManyRowsKernel : public Kernel {
 public:
  explicit ManyRowsKernel(const OpTypes& types) : biases_(BiasesOf(types)) {
    for (size_t r = 0; r < biases_.size(); ++r) {
      const Shape& w = types.in(WeightAt(r)).shape;
      products_.emplace_back(types.in(0).shape.rows(), w[0], w[1]);
    }
  }

  int64_t scratch_bytes() const override {
    int64_t most = 0;
    for (const ManyRowsProduct& product : products_) most = std::max(most, product.scratch_bytes());
    return most;
  }

  absl::Status Run(const KernelArgs& args) const override {
    for (size_t r = 0; r < products_.size(); ++r) {
      products_[r].Run({args.in[0], args.in[WeightAt(r)], args.f32(ScalesAt(r)),
                        BiasOf(args, biases_, r), args.out[r]},
                       args.scratch, args.threads);
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<bool> biases_;
  std::vector<ManyRowsProduct> products_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  if (types.in(0).shape.rows() <= kMaxMatvecRows) return std::make_unique<FewRowsKernel>(types);
  return std::make_unique<ManyRowsKernel>(types);
}

absl::Status Reference(const ReferenceArgs& args) {
  const size_t count = CountOf(args.attrs);
  for (size_t r = 0; r < count; ++r) {
    const size_t w = WeightAt(r), bias = BiasAt(r, count);
    const int64_t m = args.shape(0).rows(), n = args.shape(w)[0], k = args.shape(w)[1];
    const int64_t group = Int8GroupSize(k);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double y = args.has(bias) ? args.f(bias)[j] : 0;
        for (int64_t l = 0; l < k; ++l) {
          const int64_t at = j * k + l;
          y += args.f(0)[i * k + l] * args.i(w)[at] * args.f(ScalesAt(r))[at / group];
        }
        args.out(r)[i * n + j] = y;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterMatmulInt8(OpRegistry* registry) {
  OpDef op;
  op.name = "matmul_int8";
  op.min_inputs = 3;
  op.max_inputs = OpDef::kVariadic;
  op.infer = Infer;
  op.make_kernel = MakeKernel;
  op.reference = Reference;
  op.flops = MatmulInt8Flops;
  registry->Add(std::move(op));
}

}  // namespace plumb
