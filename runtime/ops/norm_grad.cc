// SPDX-License-Identifier: Apache-2.0
// norm_grad: the gradient of a norm, computed by its plugin, plus an optional gradient that reaches
// the norm's input from its other readers.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/status.h"
#include "runtime/ops/norm_reference.h"
#include "runtime/ops/norm_rows.h"
#include "runtime/ops/norm_runner.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// Operands. x, y and saved are absent if the plugin does not read them.
constexpr size_t kX = 0, kY = 1, kDy = 2, kSaved = 3, kDsum = 4, kParams = 5;

absl::StatusOr<std::vector<TensorType>> InferNormGrad(const OpTypes& types) {
  const NormInstance& instance = GetNormInstance(types.attrs);
  PLUMB_RETURN_IF_ERROR(CheckNormKind(instance, false));
  if (types.inputs.size() < kParams) {
    return absl::InvalidArgumentError("needs x, y, dy, saved and dsum, absent or not");
  }
  PLUMB_RETURN_IF_ERROR(CheckNormRows(types, kDy, "dy", instance));
  const TensorType& dy = types.in(kDy);
  PLUMB_RETURN_IF_ERROR(CheckWanted(types, kX, "x", instance.backward_needs_x(), dy));
  PLUMB_RETURN_IF_ERROR(CheckWanted(types, kY, "y", instance.backward_needs_y(), dy));
  PLUMB_RETURN_IF_ERROR(CheckWanted(types, kSaved, "saved", instance.saved_per_row() > 0,
                                    NormSavedType(dy, instance)));
  PLUMB_RETURN_IF_ERROR(CheckWanted(types, kDsum, "dsum", types.has(kDsum), dy));
  PLUMB_RETURN_IF_ERROR(
      CheckNormOperands(types, kParams, instance, dy, instance.backward_needs_x2()));
  std::vector<TensorType> outputs = {dy};
  for (size_t i = 0; i < instance.params().size(); ++i) outputs.push_back(types.in(kParams + i));
  if (instance.two_inputs()) outputs.push_back(dy);
  return outputs;
}

// With several chunks, each adds its gradients of parameters into zeroed memory of its own; these
// partials are then added in the order of the chunks. One chunk adds into the outputs directly.
class NormGradKernel : public Kernel {
 public:
  explicit NormGradKernel(const OpTypes& types)
      : attr_(types.attrs.GetObject("instance")),
        instance_(GetNormInstance(types.attrs)),
        runner_(instance_, types.in(kDy).dtype),
        partition_(types.in(kDy).num_elements() / instance_.dim(), instance_.dim(),
                   instance_.max_chunks()),
        partials_(instance_, partition_.chunks),
        by_chunk_(partition_.chunks > 1 && !partials_.empty()),
        has_dsum_(types.has(kDsum)),
        extras_(instance_, kParams),
        context_(types.in(kDy), instance_, extras_),
        slot_bytes_(AlignUp(
            runner_.scratch_bytes(by_chunk_ ? std::min(partition_.rows, partition_.chunk_rows)
                                            : partition_.rows_per_task()))),
        prototype_(runner_.CallPrototype(partition_.rows)) {
    if (has_dsum_ && !runner_.has_residual()) prototype_.flags |= PLUMB_CALL_DX_ACCUMULATE;
  }

  int64_t scratch_bytes() const override {
    return partition_.tasks * slot_bytes_ + (by_chunk_ ? partials_.bytes() : 0);
  }

  absl::Status Run(const KernelArgs& args) const override {
    if (!by_chunk_) partials_.ZeroSums(args.out + 1);
    PLUMB_RETURN_IF_ERROR(RunTasks(partition_.tasks, args.threads,
                                   [&](int64_t task) { return RunTask(args, task); }));
    if (by_chunk_) partials_.Sum(Partials(args), args.out + 1, false, args.threads);
    return absl::OkStatus();
  }

 private:
  absl::Status RunTask(const KernelArgs& args, int64_t task) const {
    plumb_norm_call call = prototype_;
    CallErrorText error(&call);
    call.x = args.in[kX];
    call.y = const_cast<void*>(args.in[kY]);  // the ABI's y is read-only in backward
    call.dy = args.in[kDy];
    call.dx = args.out[0];
    call.saved = const_cast<void*>(args.in[kSaved]);
    call.params = args.in + kParams;
    call.dparams = args.out + 1;
    if (extras_.x2 != NormExtras::kNone) {
      call.x2 = args.in[extras_.x2];
      call.dx2 = args.out[1 + instance_.params().size()];
    }
    const plumb_norm_context context = context_.At(args.in);
    call.context = &context;
    call.scratch = static_cast<char*>(args.scratch) + task * slot_bytes_;
    const Range chunks = partition_.TaskChunks(task);
    if (!by_chunk_) return Backward(args, call, partition_.Rows(chunks));
    for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      call.dparams = partials_.Zeroed(Partials(args), chunk);
      PLUMB_RETURN_IF_ERROR(Backward(args, call, partition_.Rows({chunk, chunk + 1})));
    }
    return absl::OkStatus();
  }

  // Runs the plugin's fused function if it has one. Otherwise copies dsum to dx first, by row
  // block, or all at once if dparams depend on the ranges.
  absl::Status Backward(const KernelArgs& args, const plumb_norm_call& call, Range rows) const {
    if (!has_dsum_) return runner_.Backward(call, rows.begin, rows.end);
    if (runner_.has_residual()) {
      plumb_residual_call residual{};
      residual.struct_size = sizeof(residual);
      residual.dsum = args.in[kDsum];
      residual.dsum_pitch = call.dx_pitch;
      return instance_.BackwardResidual(call, residual, rows.begin, rows.end);
    }
    if (args.in[kDsum] == args.out[0]) return runner_.Backward(call, rows.begin, rows.end);
    const int64_t pitch = call.dx_pitch;
    const int64_t block = partials_.empty() ? NormBlockRows(instance_.dim()) : partition_.rows;
    return ForEachRowBlock(rows, block, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(args.out[0]) + begin * pitch,
                  static_cast<const char*>(args.in[kDsum]) + begin * pitch,
                  static_cast<size_t>((end - begin) * pitch));
      return runner_.Backward(call, begin, end);
    });
  }

  char* Partials(const KernelArgs& args) const {
    return static_cast<char*>(args.scratch) + partition_.tasks * slot_bytes_;
  }

  const std::shared_ptr<const AttrObject> attr_;  // owns the instance
  const NormInstance& instance_;
  const NormRunner runner_;
  const NormPartition partition_;
  const NormPartialGradients partials_;
  const bool by_chunk_;
  const bool has_dsum_;
  const NormExtras extras_;
  const NormContext context_;
  const int64_t slot_bytes_;
  plumb_norm_call prototype_;
};

// Runs the plugin's own arithmetic in double, in one range.
absl::Status ReferenceNormGrad(const ReferenceArgs& args) {
  const NormInstance& instance = GetNormInstance(args.attrs);
  NormReference run(instance, args.shape(kDy).num_elements() / instance.dim());
  if (args.has(kX)) run.call().x = run.Lend(args.f(kX));
  if (args.has(kY)) run.call().y = run.Lend(args.f(kY));
  if (args.has(kSaved)) run.call().saved = run.Lend(args.f(kSaved));
  run.call().dy = run.Lend(args.f(kDy));
  run.call().dx = run.Lend(args.out(0));
  std::vector<const void*> params;
  std::vector<void*> dparams;
  const size_t n_params = instance.params().size();
  for (size_t i = 0; i < n_params; ++i) {
    params.push_back(run.Lend(args.f(kParams + i)));
    dparams.push_back(run.Lend(args.out(1 + i)));  // zero-filled
  }
  run.LendExtras(args, kParams, args.inputs[kDy]->type, instance);
  if (instance.two_inputs()) run.call().dx2 = run.Lend(args.out(1 + n_params));
  run.call().params = params.data();
  run.call().dparams = dparams.data();
  PLUMB_RETURN_IF_ERROR(instance.Backward(run.call(), 0, run.call().rows));
  run.Return(run.call().dx, &args.out(0));
  if (instance.two_inputs()) run.Return(run.call().dx2, &args.out(1 + n_params));
  for (size_t i = 0; i < dparams.size(); ++i) run.Return(dparams[i], &args.out(1 + i));
  if (args.has(kDsum)) {
    for (size_t e = 0; e < args.out(0).size(); ++e) args.out(0)[e] += args.f(kDsum)[e];
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterNormGrad(OpRegistry* registry) {
  OpDef op;
  op.name = "norm_grad";
  op.min_inputs = 0;  // leading operands may be absent; the shape rule checks which
  op.max_inputs = OpDef::kVariadic;
  op.may_alias = {{0, kDsum}};
  op.infer = InferNormGrad;
  op.make_kernel = MakeKernel<NormGradKernel>;
  op.reference = ReferenceNormGrad;
  registry->Add(std::move(op));
}

}  // namespace plumb
