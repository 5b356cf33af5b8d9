// SPDX-License-Identifier: Apache-2.0
#include "tests/graph/test_ops.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/graph/builder.h"

namespace plumb {
namespace {

// View of a node for the formulas below: f32 operands in the kernel, f64 in the reference.
template <class T>
struct View {
  std::vector<const T*> in;  // null if absent
  std::vector<int64_t> in_size;
  std::vector<T*> out;
  std::vector<int64_t> out_size;
  const int32_t* index = nullptr;  // the i32 operand, if any
  T* scratch = nullptr;
};

using Types = std::vector<TensorType>;

// Kernel and reference of a formula that is a template over the element type. The kernel keeps the
// view and sets its pointers, so that Run allocates nothing.
template <class Op>
class FormulaKernel : public Kernel {
 public:
  explicit FormulaKernel(const OpTypes& types) : attrs_(types.attrs) {
    for (size_t i = 0; i < types.inputs.size(); ++i) {
      view_.in.push_back(nullptr);
      view_.in_size.push_back(types.has(i) ? types.in(i).num_elements() : 0);
      is_index_.push_back(types.has(i) && types.in(i).dtype == DType::kI32);
    }
    for (const TensorType* type : types.outputs) {
      view_.out.push_back(nullptr);
      view_.out_size.push_back(type->num_elements());
    }
  }
  int64_t scratch_bytes() const override { return Op::kScratchBytes; }
  absl::Status Run(const KernelArgs& args) const override {
    for (size_t i = 0; i < view_.in.size(); ++i) {
      if (is_index_[i]) {
        view_.index = args.i32(i);
      } else {
        view_.in[i] = args.f32(i);
      }
    }
    for (size_t i = 0; i < view_.out.size(); ++i) view_.out[i] = args.out_f32(i);
    view_.scratch = static_cast<float*>(args.scratch);
    return Op::template Compute<float>(attrs_, view_);
  }

 private:
  Attrs attrs_;
  std::vector<bool> is_index_;
  mutable View<float> view_;
};

template <class Op>
absl::Status Reference(const ReferenceArgs& args) {
  View<double> view;
  std::vector<double> scratch(Op::kScratchBytes / 4);
  for (const ReferenceTensor* in : args.inputs) {
    view.in.push_back(in == nullptr ? nullptr : in->f.data());
    view.in_size.push_back(in == nullptr ? 0 : in->type.num_elements());
    if (in != nullptr && in->type.dtype == DType::kI32) view.index = in->i.data();
  }
  for (ReferenceTensor* out : args.outputs) {
    view.out.push_back(out->f.data());
    view.out_size.push_back(out->type.num_elements());
  }
  view.scratch = scratch.data();
  return Op::template Compute<double>(args.attrs, view);
}

template <class Op>
OpDef Define(const char* name, int min_inputs, int max_inputs) {
  OpDef def;
  def.name = name;
  def.min_inputs = min_inputs;
  def.max_inputs = max_inputs;
  def.infer = Op::Infer;
  def.make_kernel = [](const OpTypes& types) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    return std::make_unique<FormulaKernel<Op>>(types);
  };
  def.reference = Reference<Op>;
  return def;
}

struct FormulaOp {
  static constexpr int64_t kScratchBytes = 0;
  static absl::StatusOr<Types> Infer(const OpTypes& types) {
    for (size_t i = 1; i < types.inputs.size(); ++i) {
      if (types.in(i) != types.in(0)) {
        return absl::InvalidArgumentError(absl::StrCat("input ", i, " is ", types.in(i).ToString(),
                                                       ", not ", types.in(0).ToString()));
      }
    }
    return Types{types.in(0)};
  }
};

Shape GetDims(const Attrs& attrs) {
  std::vector<int64_t> dims;
  for (const double dim : attrs.GetDoubles("dims")) dims.push_back(static_cast<int64_t>(dim));
  return Shape(dims);
}

Attr DimsAttr(const Shape& shape) {
  return std::vector<double>(shape.dims().begin(), shape.dims().end());
}

struct Combine : FormulaOp {
  template <class T>
  static absl::Status Compute(const Attrs& attrs, const View<T>& v) {
    const std::vector<double>& coefs = attrs.GetDoubles("coefs");
    for (int64_t j = 0; j < v.out_size[0]; ++j) {
      T sum = static_cast<T>(attrs.GetDouble("constant", 0));
      for (size_t i = 0; i < v.in.size(); ++i) sum += static_cast<T>(coefs[i]) * v.in[i][j];
      v.out[0][j] = sum;
    }
    return absl::OkStatus();
  }
  static std::vector<ValueId> Vjp(GraphBuilder& b, const Node& node, absl::Span<const ValueId> dy,
                                  const std::vector<bool>& wanted) {
    std::vector<ValueId> dx(node.inputs.size(), kNoValue);
    for (size_t i = 0; i < dx.size(); ++i) {
      if (!wanted[i]) continue;
      const double coef = node.attrs.GetDoubles("coefs")[i];
      dx[i] =
          coef == 1 ? dy[0] : b.Apply("combine", {dy[0]}, {{"coefs", std::vector<double>{coef}}});
    }
    return dx;
  }
};

struct Mul : FormulaOp {
  template <class T>
  static absl::Status Compute(const Attrs&, const View<T>& v) {
    for (int64_t j = 0; j < v.out_size[0]; ++j) v.out[0][j] = v.in[0][j] * v.in[1][j];
    return absl::OkStatus();
  }
  static std::vector<ValueId> Vjp(GraphBuilder& b, const Node& node, absl::Span<const ValueId> dy,
                                  const std::vector<bool>& wanted) {
    std::vector<ValueId> dx(2, kNoValue);
    if (wanted[0]) dx[0] = b.Apply("mul", {dy[0], node.inputs[1]});
    if (wanted[1]) dx[1] = b.Apply("mul", {dy[0], node.inputs[0]});
    return dx;
  }
};

struct Sum : FormulaOp {
  static constexpr int64_t kScratchBytes = 200;
  static absl::StatusOr<Types> Infer(const OpTypes&) { return Types{F32({1})}; }
  template <class T>
  static absl::Status Compute(const Attrs&, const View<T>& v) {
    for (int64_t i = 0; i < kScratchBytes / 4; ++i) v.scratch[i] = 0;
    for (int64_t j = 0; j < v.in_size[0]; ++j) v.scratch[j % 50] += v.in[0][j];
    v.out[0][0] = 0;
    for (int64_t i = 0; i < 50; ++i) v.out[0][0] += v.scratch[i];
    return absl::OkStatus();
  }
  static std::vector<ValueId> Vjp(GraphBuilder& b, const Node& node, absl::Span<const ValueId> dy,
                                  const std::vector<bool>&) {
    return {b.Apply("spread", {dy[0]}, {{"dims", DimsAttr(b.type(node.inputs[0]).shape)}})};
  }
};

struct Spread : FormulaOp {
  static absl::StatusOr<Types> Infer(const OpTypes& t) { return Types{F32(GetDims(t.attrs))}; }
  template <class T>
  static absl::Status Compute(const Attrs&, const View<T>& v) {
    for (int64_t j = 0; j < v.out_size[0]; ++j) v.out[0][j] = v.in[0][0];
    return absl::OkStatus();
  }
};

struct Split : FormulaOp {
  static absl::StatusOr<Types> Infer(const OpTypes& t) {
    if (t.in(0).num_elements() % 2 != 0) {
      return absl::InvalidArgumentError("an odd number of elements cannot be split");
    }
    const TensorType half = F32({t.in(0).num_elements() / 2});
    return Types{half, half};
  }
  template <class T>
  static absl::Status Compute(const Attrs&, const View<T>& v) {
    const size_t bytes = static_cast<size_t>(v.out_size[0]) * sizeof(T);
    std::memcpy(v.out[0], v.in[0], bytes);
    std::memcpy(v.out[1], v.in[0] + v.out_size[0], bytes);
    return absl::OkStatus();
  }
  static std::vector<ValueId> Vjp(GraphBuilder& b, const Node& node, absl::Span<const ValueId> dy,
                                  const std::vector<bool>&) {
    return {b.Apply("join", {dy[0], dy[1]}, {{"half", b.type(node.inputs[0]).num_elements() / 2}})};
  }
};

struct Join : FormulaOp {
  static absl::StatusOr<Types> Infer(const OpTypes& t) {
    return Types{F32({2 * t.attrs.GetInt("half")})};
  }
  template <class T>
  static absl::Status Compute(const Attrs&, const View<T>& v) {
    const int64_t n = v.out_size[0] / 2;
    for (int64_t j = 0; j < 2 * n; ++j) {
      const T* half = v.in[static_cast<size_t>(j / n)];
      v.out[0][j] = half == nullptr ? 0 : half[j % n];
    }
    return absl::OkStatus();
  }
};

struct Reverse : FormulaOp {
  template <class T>
  static absl::Status Compute(const Attrs&, const View<T>& v) {
    const int64_t n = v.out_size[0];
    for (int64_t j = 0; j < n; ++j) v.out[0][j] = v.in[0][n - 1 - j];
    return absl::OkStatus();
  }
  static std::vector<ValueId> Vjp(GraphBuilder& b, const Node&, absl::Span<const ValueId> dy,
                                  const std::vector<bool>&) {
    return {b.Apply("reverse", {dy[0]})};
  }
};

struct Accumulate : FormulaOp {
  template <class T>
  static absl::Status Compute(const Attrs&, const View<T>& v) {
    // The output aliases the old state, so only the addend is read.
    for (int64_t j = 0; j < v.out_size[0]; ++j) v.out[0][j] += v.in[1][j];
    return absl::OkStatus();
  }
};

struct Pick : FormulaOp {
  static absl::StatusOr<Types> Infer(const OpTypes&) { return Types{F32({1})}; }
  template <class T>
  static absl::Status Compute(const Attrs&, const View<T>& v) {
    if (v.index[0] < 0 || v.index[0] >= v.in_size[0]) {
      return absl::OutOfRangeError(
          absl::StrCat("index ", v.index[0], " is outside [0, ", v.in_size[0], ")"));
    }
    v.out[0][0] = v.in[0][v.index[0]];
    return absl::OkStatus();
  }
};

struct Fill : FormulaOp {
  static absl::StatusOr<Types> Infer(const OpTypes& t) { return Types{F32(GetDims(t.attrs))}; }
  template <class T>
  static absl::Status Compute(const Attrs& attrs, const View<T>& v) {
    for (int64_t j = 0; j < v.out_size[0]; ++j) {
      v.out[0][j] = static_cast<T>(attrs.GetDouble("value"));
    }
    return absl::OkStatus();
  }
};

}  // namespace

void RegisterTestOps(OpRegistry* registry) {
  OpDef combine = Define<Combine>("combine", 1, OpDef::kVariadic);
  combine.vjp = Combine::Vjp;
  combine.may_alias = {{0, 0}};
  registry->Add(combine);

  OpDef mul = Define<Mul>("mul", 2, 2);
  mul.vjp = Mul::Vjp;
  mul.may_alias = {{0, 0}, {0, 1}};
  registry->Add(mul);

  OpDef sum = Define<Sum>("sum", 1, 1);
  sum.vjp = Sum::Vjp;
  registry->Add(sum);
  registry->Add(Define<Spread>("spread", 1, 1));

  OpDef split = Define<Split>("split", 1, 1);
  split.vjp = Split::Vjp;
  registry->Add(split);
  registry->Add(Define<Join>("join", 0, 2));

  OpDef reverse = Define<Reverse>("reverse", 1, 1);
  reverse.vjp = Reverse::Vjp;
  registry->Add(reverse);

  OpDef accumulate = Define<Accumulate>("accumulate", 2, 2);
  accumulate.updates = {{0, 0}};
  registry->Add(accumulate);

  registry->Add(Define<Pick>("pick", 2, 2));
  registry->Add(Define<Fill>("fill", 0, 0));

  OpDef stuck = Define<Reverse>("stuck", 1, 1);
  stuck.make_kernel = [](const OpTypes&) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    return absl::UnimplementedError("there is no kernel for this");
  };
  registry->Add(stuck);
}

}  // namespace plumb
