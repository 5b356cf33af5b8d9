// SPDX-License-Identifier: Apache-2.0
// norm and add_norm: apply a norm plugin to rows of x, or of the sum of x and a residual.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/norm_reference.h"
#include "runtime/ops/norm_rows.h"
#include "runtime/ops/norm_runner.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

bool Trains(const Attrs& attrs) { return attrs.GetBool("train", false); }

// Returns true if there is an output `saved`; its rows have no token dimension.
bool SavesRows(const Attrs& attrs) {
  return Trains(attrs) && GetNormInstance(attrs).saved_per_row() > 0;
}

// -- Shape rules

absl::StatusOr<std::vector<TensorType>> InferNorm(const OpTypes& types) {
  const NormInstance& instance = GetNormInstance(types.attrs);
  PLUMB_RETURN_IF_ERROR(CheckNormKind(instance, false));
  PLUMB_RETURN_IF_ERROR(CheckNormRows(types, 0, "x", instance));
  PLUMB_RETURN_IF_ERROR(CheckNormOperands(types, 1, instance, types.in(0), true));
  std::vector<TensorType> outputs = {types.in(0)};
  if (SavesRows(types.attrs)) {
    outputs.push_back(NormSavedType(types.in(0), instance));
  }
  return outputs;
}

absl::StatusOr<std::vector<TensorType>> InferNormAdd(const OpTypes& types) {
  const NormInstance& instance = GetNormInstance(types.attrs);
  PLUMB_RETURN_IF_ERROR(CheckNormKind(instance, false));
  PLUMB_RETURN_IF_ERROR(CheckNormRows(types, 0, "x", instance));
  PLUMB_RETURN_IF_ERROR(CheckNormRows(types, 1, "res", instance));
  PLUMB_RETURN_IF_ERROR(CheckMatching(types, 0, "x", 1, "res"));
  PLUMB_RETURN_IF_ERROR(CheckNormOperands(types, 2, instance, types.in(0), true));
  std::vector<TensorType> outputs = {types.in(0), types.in(0)};
  if (SavesRows(types.attrs)) {
    outputs.push_back(NormSavedType(types.in(0), instance));
  }
  return outputs;
}

// An operand of norm_grad (norm_grad.cc).
constexpr size_t kNormGradParams = 5;

// -- VJPs
//
// The plugin's backward() is the VJP: dx = (dy/dx)^T dy, dparams = (dy/dparams)^T dy, from the x, y
// and saved that it declares.

// Returns the outputs of norm_grad for a node whose normalized rows are `x` and whose output number
// `y` is y; empty if the node was not built for training.
std::vector<ValueId> Gradient(GraphBuilder& b, const Node& node, ValueId x, size_t y, ValueId dy,
                              ValueId dsum, size_t first_param) {
  const NormInstance& instance = GetNormInstance(node.attrs);
  const bool has_saved = instance.saved_per_row() > 0;
  if (has_saved && node.outputs.size() < y + 2) {
    b.Fail(absl::FailedPreconditionError(
        absl::StrCat("norm ", instance.ToString(), " was not built with train = true")));
    return {};
  }
  std::vector<ValueId> inputs = {instance.backward_needs_x() ? x : kNoValue,
                                 instance.backward_needs_y() ? node.outputs[y] : kNoValue, dy,
                                 has_saved ? node.outputs[y + 1] : kNoValue, dsum};
  inputs.insert(inputs.end(), node.inputs.begin() + static_cast<int64_t>(first_param),
                node.inputs.end());
  if (instance.two_inputs() && !instance.backward_needs_x2()) {
    inputs[NormExtras(instance, kNormGradParams).x2] = kNoValue;
  }
  return b.ApplyAll("norm_grad", std::move(inputs),
                    {{"instance", node.attrs.GetObject("instance")}});
}

std::vector<ValueId> VjpNorm(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                             const std::vector<bool>& /*wanted*/) {
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (d_outputs[0] == kNoValue) return d_inputs;
  const std::vector<ValueId> d = Gradient(b, node, node.inputs[0], 0, d_outputs[0], kNoValue, 1);
  // Gradients of x, the parameters and x2; positions and step have none.
  for (size_t i = 0; i < std::min(d.size(), d_inputs.size()); ++i) d_inputs[i] = d[i];
  return d_inputs;
}

// sum = x + res, so both have the gradient of the sum: the norm's, plus that of the sum's other
// readers.
std::vector<ValueId> VjpAdd(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                            const std::vector<bool>& /*wanted*/) {
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (d_outputs[1] == kNoValue) {
    d_inputs[0] = d_inputs[1] = d_outputs[0];
    return d_inputs;
  }
  const std::vector<ValueId> d =
      Gradient(b, node, node.outputs[0], 1, d_outputs[1], d_outputs[0], 2);
  if (d.empty()) return d_inputs;
  d_inputs[0] = d[0];
  for (size_t i = 1; i < std::min(d.size() + 1, d_inputs.size()); ++i) d_inputs[i] = d[i - 1];
  return d_inputs;
}

// -- Kernels

class NormKernel : public Kernel {
 public:
  explicit NormKernel(const OpTypes& types, size_t first_param = 1)
      : attr_(types.attrs.GetObject("instance")),
        instance_(GetNormInstance(types.attrs)),
        runner_(instance_, types.in(0).dtype),
        partition_(types.in(0).num_elements() / instance_.dim(), instance_.dim()),
        saves_(SavesRows(types.attrs)),
        first_param_(first_param),
        extras_(instance_, first_param),
        context_(types.in(0), instance_, extras_),
        slot_bytes_(AlignUp(runner_.scratch_bytes(partition_.rows_per_task()))),
        prototype_(runner_.CallPrototype(partition_.rows)) {
    if (Trains(types.attrs)) prototype_.flags |= PLUMB_CALL_TRAIN;
  }

  int64_t scratch_bytes() const override { return partition_.tasks * slot_bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    return RunTasks(partition_.tasks, args.threads, [&](int64_t task) {
      plumb_norm_call call = prototype_;
      CallErrorText error(&call);
      if (extras_.x2 != NormExtras::kNone) call.x2 = args.in[extras_.x2];
      const plumb_norm_context context = context_.At(args.in);
      call.context = &context;
      call.y = args.out[first_param_ - 1];  // after the sum, if there is one
      call.params = args.in + first_param_;
      call.saved = saves_ ? args.out[first_param_] : nullptr;
      call.scratch = static_cast<char*>(args.scratch) + task * slot_bytes_;
      return RunRows(args, &call, partition_.Rows(partition_.TaskChunks(task)));
    });
  }

 protected:
  virtual absl::Status RunRows(const KernelArgs& args, plumb_norm_call* call, Range rows) const {
    call->x = args.in[0];
    return runner_.Forward(*call, rows.begin, rows.end);
  }

  const std::shared_ptr<const AttrObject> attr_;  // owns the instance
  const NormInstance& instance_;
  const NormRunner runner_;
  const NormPartition partition_;
  const bool saves_;
  const size_t first_param_;
  const NormExtras extras_;
  const NormContext context_;
  const int64_t slot_bytes_;
  plumb_norm_call prototype_;
};

// Fused if the plugin offers it; otherwise each row block is summed, and normalized while it is in
// the cache.
class AddNormKernel : public NormKernel {
 public:
  explicit AddNormKernel(const OpTypes& types)
      : NormKernel(types, 2), add_(SelectNormRowFns(types.in(0).dtype).add) {}

 private:
  absl::Status RunRows(const KernelArgs& args, plumb_norm_call* call, Range rows) const override {
    return runner_.has_residual() ? RunExtension(args, call, rows)
                                  : RunInRowBlocks(args, call, rows);
  }

  absl::Status RunExtension(const KernelArgs& args, plumb_norm_call* call, Range rows) const {
    call->x = args.in[0];
    plumb_residual_call residual{};
    residual.struct_size = sizeof(residual);
    residual.res = args.in[1];
    residual.sum = args.out[0];
    residual.res_pitch = residual.sum_pitch = call->x_pitch;
    return instance_.ForwardResidual(*call, residual, rows.begin, rows.end);
  }

  absl::Status RunInRowBlocks(const KernelArgs& args, plumb_norm_call* call, Range rows) const {
    call->x = args.out[0];
    const int64_t dim = instance_.dim();
    return ForEachRowBlock(rows, NormBlockRows(dim), [&](int64_t begin, int64_t end) {
      add_(args.in[0], args.in[1], args.out[0], begin * dim, end * dim);
      return runner_.Forward(*call, begin, end);
    });
  }

  const decltype(NormRowFns::add) add_;
};

// -- References: the plugin's own arithmetic in double, in one range.

absl::Status ComputeReference(const ReferenceArgs& args, const std::vector<double>& x, size_t y,
                              size_t first_param) {
  const NormInstance& instance = GetNormInstance(args.attrs);
  NormReference run(instance, args.shape(0).num_elements() / instance.dim());
  if (Trains(args.attrs)) run.call().flags |= PLUMB_CALL_TRAIN;
  run.call().x = run.Lend(x);
  run.call().y = run.Lend(args.out(y));
  const bool saves = args.outputs.size() > y + 1;
  if (saves) run.call().saved = run.Lend(args.out(y + 1));
  run.LendExtras(args, first_param, args.inputs[0]->type, instance);
  std::vector<const void*> params;
  for (size_t i = 0; i < instance.params().size(); ++i) {
    params.push_back(run.Lend(args.f(first_param + i)));
  }
  run.call().params = params.data();
  PLUMB_RETURN_IF_ERROR(instance.Forward(run.call(), 0, run.call().rows));
  run.Return(run.call().y, &args.out(y));
  if (saves) run.Return(run.call().saved, &args.out(y + 1));
  return absl::OkStatus();
}

absl::Status ReferenceNorm(const ReferenceArgs& args) {
  return ComputeReference(args, args.f(0), 0, 1);
}

// Computes the norm from the sum as it is stored.
absl::Status ReferenceNormAdd(const ReferenceArgs& args) {
  for (size_t e = 0; e < args.out(0).size(); ++e) {
    double& sum = args.out(0)[e];
    sum = args.f(0)[e] + args.f(1)[e];
    if (args.outputs[0]->type.dtype == DType::kBF16) {
      sum = static_cast<double>(FloatFromBf16(Bf16FromFloat(static_cast<float>(sum))));
    }
  }
  return ComputeReference(args, args.out(0), 1, 2);
}

// Returns the inputs with tokens: the first `rows` inputs, x2 and positions.
std::vector<size_t> TokenWise(const OpTypes& types, size_t rows) {
  if (SavesRows(types.attrs)) return {};
  const NormExtras extras(GetNormInstance(types.attrs), rows);
  std::vector<size_t> inputs;
  for (size_t i = 0; i < rows; ++i) inputs.push_back(i);
  for (const size_t i : {extras.x2, extras.positions}) {
    if (i != NormExtras::kNone) inputs.push_back(i);
  }
  return inputs;
}

}  // namespace

// -- Registration

void RegisterNorm(OpRegistry* registry) {
  OpDef op;
  op.name = "norm";
  op.min_inputs = 1;
  op.max_inputs = OpDef::kVariadic;
  op.infer = InferNorm;
  op.vjp = VjpNorm;
  op.make_kernel = MakeKernel<NormKernel>;
  op.reference = ReferenceNorm;
  op.token_wise = [](const OpTypes& types) { return TokenWise(types, 1); };
  registry->Add(std::move(op));

  OpDef add;
  add.name = "add_norm";
  add.min_inputs = 2;
  add.max_inputs = OpDef::kVariadic;
  add.may_alias = {{0, 0}, {0, 1}};
  add.infer = InferNormAdd;
  add.vjp = VjpAdd;
  add.make_kernel = MakeKernel<AddNormKernel>;
  add.reference = ReferenceNormAdd;
  add.token_wise = [](const OpTypes& types) { return TokenWise(types, 2); };
  registry->Add(std::move(add));
}

}  // namespace plumb
