#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/onednn/sgemm.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/small_matmul.h"

namespace plumb {
namespace {

// The operands as matrices: y[m,n] = op(a)[m,k] op(b)[k,n] + bias[n].
struct Product {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  int64_t lda, ldb;

  Product(const Shape& a, const Shape& b, const Attrs& attrs)
      : transpose_a(attrs.GetBool("transpose_a", false)),
        transpose_b(attrs.GetBool("transpose_b", false)),
        m(transpose_a ? a.last() : a.rows()),
        n(transpose_b ? b.rows() : b.last()),
        k(transpose_a ? a.rows() : a.last()),
        lda(a.last()),
        ldb(b.last()) {}
};

absl::StatusOr<std::vector<TensorType>> Infer(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "a"));
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 1, "b"));
  const Shape &a = types.in(0).shape, &b = types.in(1).shape;
  const Product p(a, b, types.attrs);
  const int64_t k_of_b = p.transpose_b ? b.last() : b.rows();
  if (p.k != k_of_b) {
    return absl::InvalidArgumentError(
        absl::StrCat("the inner sizes differ: ", p.k, " of a and ", k_of_b, " of b"));
  }
  if (types.has(2)) {
    PLUMB_RETURN_IF_ERROR(CheckF32(types, 2, "bias"));
    if (types.in(2).shape != Shape({p.n})) {
      return absl::InvalidArgumentError(absl::StrCat("bias must be [", p.n, "]"));
    }
  }
  return std::vector<TensorType>{F32(p.transpose_a ? Shape({p.m, p.n}) : a.WithLast(p.n))};
}

// Y = A' B' + 1 c^T with A' = op(A), B' = op(B); with G = dL/dY,
//   dL/dA' = G B'^T,  dL/dB' = A'^T G,  dL/dc = the sum of G's rows,
// and dL/dA = dL/dA' or, when A' is A's transpose, its transpose B' G^T; likewise dL/dB.
std::vector<ValueId> Vjp(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                         const std::vector<bool>& wanted) {
  const ValueId left = node.inputs[0], right = node.inputs[1], dy = d_outputs[0];
  const bool ta = node.attrs.GetBool("transpose_a", false);
  const bool tb = node.attrs.GetBool("transpose_b", false);
  const auto product = [&b](ValueId x, bool tx, ValueId y, bool ty, ValueId like) {
    Attrs attrs;
    if (tx) attrs.Set("transpose_a", true);
    if (ty) attrs.Set("transpose_b", true);
    const TensorType type = GradientType(b.graph().value(like));
    if (b.type(x).dtype == DType::kBF16 && type.dtype == DType::kF32) attrs.Set("f32_out", true);
    const ValueId result = b.Apply("matmul", {x, y}, std::move(attrs));
    if (b.ok() && b.type(result) != type) {
      b.Fail(absl::UnimplementedError(
          absl::StrCat("matmul: the gradient of an operand ", b.type(like).ToString(),
                       " comes out as ", b.type(result).ToString(),
                       ": transposed operands must be matrices to be differentiated")));
    }
    return result;
  };
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (wanted[0]) {
    d_inputs[0] = ta ? product(right, tb, dy, true, left) : product(dy, false, right, !tb, left);
  }
  if (wanted[1]) {
    d_inputs[1] = tb ? product(dy, true, left, ta, right) : product(left, !ta, dy, false, right);
  }
  if (wanted.size() > 2 && wanted[2]) d_inputs[2] = b.Apply("sum_rows", {dy});
  return d_inputs;
}

// A product that one thread does in one go.
class SmallMatmulKernel : public Kernel {
 public:
  explicit SmallMatmulKernel(const Product& p, bool bias)
      : matmul_(SelectSmallMatmul(p.transpose_a, p.transpose_b)),
        product_{p.m, p.n, p.k, nullptr, p.lda, nullptr, p.ldb, nullptr, nullptr, p.n},
        bias_(bias),
        scratch_bytes_(SmallMatmulScratch(p.k) * SizeOf(DType::kF32)) {}

  int64_t scratch_bytes() const override { return scratch_bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    SmallMatmulArgs g = product_;
    g.a = args.f32(0);
    g.b = args.f32(1);
    if (bias_) g.bias = args.f32(2);
    g.c = args.out_f32(0);
    matmul_(g, static_cast<float*>(args.scratch));
    return absl::OkStatus();
  }

 private:
  SmallMatmulFn matmul_;
  SmallMatmulArgs product_;
  bool bias_;
  int64_t scratch_bytes_;
};

// How a product is cut into a grid of blocks, each by one thread: a function of its shape only. The
// numbers were measured on 2 cores with AVX-512 (bench/matmul_benchmark).
struct Cut {
  int64_t rows = 1, columns = 1;  // blocks down and across
  bool small;                     // small_matmul rather than oneDNN for each block

  explicit Cut(const Product& p) {
    // A thin product waits for memory, as long as one of eight rows would compute.
    const int64_t work = std::max<int64_t>(p.m, p.transpose_b ? 8 : 1) * p.n * p.k;
    // Two blocks from 2^20 multiply-adds (some 8 us) on, then twice as many for four times the
    // work: enough for the threads, few enough that packing operands anew for each costs little. It
    // costs least when blocks are nearly square.
    for (int64_t w = work >> 20; w > 0 && rows * columns < 64; w >>= 2) {
      const int64_t m = p.m / rows, n = p.n / columns;
      if (std::max(m, n) < 64) break;
      (m > n ? rows : columns) *= 2;
    }
    // small_matmul is as fast as oneDNN and allocates nothing, but would transpose b^T for a few
    // rows of a, where oneDNN reads it in place (and does not allocate either).
    const int64_t m = p.m / rows, n = p.n / columns;
    small = !(p.transpose_b && m <= 8 && n * p.k >= std::max<int64_t>(4096, m * 1024));
  }

  int64_t blocks() const { return rows * columns; }
  // Blocks start at whole tiles.
  Range Rows(int64_t m, int64_t block) const { return Part(m, 8, rows, block / columns); }
  Range Columns(int64_t n, int64_t block) const { return Part(n, 32, columns, block % columns); }

 private:
  static Range Part(int64_t size, int64_t unit, int64_t parts, int64_t i) {
    const Range units = TaskRange((size + unit - 1) / unit, parts, i);
    return {units.begin * unit, std::min(size, units.end * unit)};
  }
};

class BlockedMatmulKernel : public Kernel {
  static constexpr int64_t kSlabFloats = 1 << 17;  // 512 KiB

 public:
  explicit BlockedMatmulKernel(const Product& p, const Cut& cut, bool bias)
      : p_(p),
        cut_(cut),
        bias_(bias),
        small_matmul_(SelectSmallMatmul(p.transpose_a, p.transpose_b)),
        scratch_floats_(cut.small ? SmallMatmulScratch(p.k) : 0) {}

  int64_t scratch_bytes() const override {
    return cut_.blocks() * scratch_floats_ * SizeOf(DType::kF32);
  }

  absl::Status Run(const KernelArgs& args) const override {
    if (cut_.blocks() == 1) return RunBlock(args, 0);
    // One error is enough; which one does not matter, since a block fails only for want of memory.
    std::atomic<bool> failed = false;
    ParallelFor(cut_.blocks(), args.threads, [&](int64_t i) {
      if (!RunBlock(args, i).ok()) failed = true;
    });
    return failed ? absl::ResourceExhaustedError("a block of a matrix product failed in oneDNN")
                  : absl::OkStatus();
  }

 private:
  absl::Status RunBlock(const KernelArgs& args, int64_t i) const {
    const Range rows = cut_.Rows(p_.m, i), columns = cut_.Columns(p_.n, i);
    const int64_t m = rows.end - rows.begin, n = columns.end - columns.begin;
    const float* a = args.f32(0) + rows.begin * (p_.transpose_a ? 1 : p_.lda);
    const float* b = args.f32(1) + columns.begin * (p_.transpose_b ? p_.ldb : 1);
    const float* bias = bias_ ? args.f32(2) + columns.begin : nullptr;
    float* c = args.out_f32(0) + rows.begin * p_.n + columns.begin;
    if (cut_.small) {
      // Slabs of rows that stay in the second-level cache while the columns pass.
      const int64_t slab = std::max<int64_t>(8, kSlabFloats / std::min(p_.k, kMaxSmallMatmulTerms));
      for (int64_t r = 0; r < m; r += slab) {
        small_matmul_({std::min(slab, m - r), n, p_.k, a + r * (p_.transpose_a ? 1 : p_.lda),
                       p_.lda, b, p_.ldb, bias, c + r * p_.n, p_.n},
                      static_cast<float*>(args.scratch) + i * scratch_floats_);
      }
      return absl::OkStatus();
    }
    if (bias != nullptr) {
      for (int64_t r = 0; r < m; ++r) {
        std::memcpy(c + r * p_.n, bias, static_cast<size_t>(n) * sizeof(float));
      }
    }
    return SgemmOnThisThread({p_.transpose_a, p_.transpose_b, m, n, p_.k, a, p_.lda, b, p_.ldb,
                              bias != nullptr ? 1.0f : 0.0f, c, p_.n});
  }

  Product p_;
  Cut cut_;
  bool bias_;
  SmallMatmulFn small_matmul_;
  int64_t scratch_floats_;  // a block
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  const Product p(types.in(0).shape, types.in(1).shape, types.attrs);
  const Cut cut(p);
  if (cut.small && cut.blocks() == 1) return std::make_unique<SmallMatmulKernel>(p, types.has(2));
  return std::make_unique<BlockedMatmulKernel>(p, cut, types.has(2));
}

absl::Status Reference(const ReferenceArgs& args) {
  const Product p(args.shape(0), args.shape(1), args.attrs);
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      double y = args.has(2) ? args.f(2)[j] : 0;
      for (int64_t l = 0; l < p.k; ++l) {
        const double a = args.f(0)[p.transpose_a ? l * p.lda + i : i * p.lda + l];
        const double b = args.f(1)[p.transpose_b ? j * p.ldb + l : l * p.ldb + j];
        y += a * b;
      }
      args.out(0)[i * p.n + j] = y;
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterMatmul(OpRegistry* registry) {
  OpDef op;
  op.name = "matmul";
  op.min_inputs = 2;
  op.max_inputs = 3;
  op.infer = Infer;
  op.vjp = Vjp;
  op.make_kernel = MakeKernel;
  op.reference = Reference;
  registry->Add(std::move(op));
}

}  // namespace plumb
