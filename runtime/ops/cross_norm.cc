// SPDX-License-Identifier: Apache-2.0
// cross_norm, cross_norm_eval and cross_norm_grad: norms whose statistics are taken over all rows
// of a call. Each phase follows the plugin ABI: it takes the statistic of every chunk of rows,
// combines these in the order of the chunks on one thread, finalizes the result, and then runs
// ranges of rows as for other norms. The plugin's buffers are one flat state
// (NormInstance::buffer_offset).
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/cross_norm_stats.h"
#include "runtime/ops/norm_reference.h"
#include "runtime/ops/norm_rows.h"
#include "runtime/ops/norm_runner.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// Operands of cross_norm_grad. Some are absent if the plugin does not read them.
constexpr size_t kGradX = 0, kGradY = 1, kGradDy = 2, kState = 3, kCallSaved = 4, kGradSaved = 5,
                 kGradParams = 6;

// -- Shape rules

TensorType StateType(const NormInstance& instance) { return F32({instance.state_elements()}); }
TensorType CallSavedType(const NormInstance& instance) { return F32({instance.saved_per_call()}); }

absl::Status CheckForward(const OpTypes& types, const NormInstance& instance) {
  PLUMB_RETURN_IF_ERROR(CheckNormKind(instance, true));
  PLUMB_RETURN_IF_ERROR(CheckNormRows(types, 0, "x", instance));
  PLUMB_RETURN_IF_ERROR(CheckWanted(types, 1, "state", true, StateType(instance)));
  return CheckNormParams(types, 2, instance);
}

absl::StatusOr<std::vector<TensorType>> InferCrossNorm(const OpTypes& types) {
  const NormInstance& instance = GetNormInstance(types.attrs);
  PLUMB_RETURN_IF_ERROR(CheckForward(types, instance));
  std::vector<TensorType> outputs = {types.in(0), types.in(1)};
  if (instance.saved_per_call() > 0) outputs.push_back(CallSavedType(instance));
  if (instance.saved_per_row() > 0) outputs.push_back(NormSavedType(types.in(0), instance));
  return outputs;
}

absl::StatusOr<std::vector<TensorType>> InferEval(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckForward(types, GetNormInstance(types.attrs)));
  return std::vector<TensorType>{types.in(0)};
}

absl::StatusOr<std::vector<TensorType>> InferCrossNormGrad(const OpTypes& types) {
  const NormInstance& instance = GetNormInstance(types.attrs);
  PLUMB_RETURN_IF_ERROR(CheckNormKind(instance, true));
  if (types.inputs.size() < kGradParams) {
    return absl::InvalidArgumentError("needs x, y, dy, state, call_saved and saved, absent or not");
  }
  PLUMB_RETURN_IF_ERROR(CheckNormRows(types, kGradDy, "dy", instance));
  const TensorType& dy = types.in(kGradDy);
  PLUMB_RETURN_IF_ERROR(CheckWanted(types, kGradX, "x", instance.backward_needs_x(), dy));
  PLUMB_RETURN_IF_ERROR(CheckWanted(types, kGradY, "y", instance.backward_needs_y(), dy));
  PLUMB_RETURN_IF_ERROR(CheckWanted(types, kState, "state", true, StateType(instance)));
  PLUMB_RETURN_IF_ERROR(CheckWanted(types, kCallSaved, "call_saved", instance.saved_per_call() > 0,
                                    CallSavedType(instance)));
  PLUMB_RETURN_IF_ERROR(CheckWanted(types, kGradSaved, "saved", instance.saved_per_row() > 0,
                                    NormSavedType(dy, instance)));
  PLUMB_RETURN_IF_ERROR(CheckNormParams(types, kGradParams, instance));
  std::vector<TensorType> outputs = {dy, types.in(kState)};
  for (size_t i = kGradParams; i < types.inputs.size(); ++i) outputs.push_back(types.in(i));
  return outputs;
}

// -- VJP
//
// The plugin's backward phase, from the x, y and saved values that it declares. The state has no
// gradient: running statistics are not part of the function that is trained.
std::vector<ValueId> VjpCrossNorm(GraphBuilder& b, const Node& node,
                                  absl::Span<const ValueId> d_outputs,
                                  const std::vector<bool>& /*wanted*/) {
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (d_outputs[0] == kNoValue) return d_inputs;
  const NormInstance& instance = GetNormInstance(node.attrs);
  const bool has_call_saved = instance.saved_per_call() > 0;
  const bool has_saved = instance.saved_per_row() > 0;
  std::vector<ValueId> inputs = {instance.backward_needs_x() ? node.inputs[0] : kNoValue,
                                 instance.backward_needs_y() ? node.outputs[0] : kNoValue,
                                 d_outputs[0],
                                 node.outputs[1],
                                 has_call_saved ? node.outputs[2] : kNoValue,
                                 has_saved ? node.outputs.back() : kNoValue};
  inputs.insert(inputs.end(), node.inputs.begin() + 2, node.inputs.end());
  const std::vector<ValueId> d = b.ApplyAll("cross_norm_grad", std::move(inputs),
                                            {{"instance", node.attrs.GetObject("instance")}});
  d_inputs[0] = d[0];
  for (size_t i = 2; i < d_inputs.size(); ++i) d_inputs[i] = d[i];
  return d_inputs;
}

// -- Kernels

// The common part of both phases.
class CrossNormKernelBase : public Kernel {
 public:
  // `rows` is the index of an operand with the rows.
  CrossNormKernelBase(const OpTypes& types, size_t rows, bool backward)
      : attr_(types.attrs.GetObject("instance")),
        instance_(GetNormInstance(types.attrs)),
        runner_(instance_, types.in(rows).dtype),
        partition_(types.in(rows).num_elements() / instance_.dim(), instance_.dim(),
                   backward ? instance_.max_chunks() : 0),
        stats_(runner_, partition_),
        slot_bytes_(AlignUp(runner_.scratch_bytes(std::max(
            partition_.rows_per_task(), std::min(partition_.rows, partition_.chunk_rows))))),
        prototype_(runner_.CallPrototype(partition_.rows)) {}

 protected:
  // Scratch has a slot for each task, the statistics, and then the op's own part.
  int64_t stats_at() const { return partition_.tasks * slot_bytes_; }
  int64_t rest_at() const { return stats_at() + stats_.bytes(); }
  char* Slot(const KernelArgs& args, int64_t task) const {
    return static_cast<char*>(args.scratch) + task * slot_bytes_;
  }

  // Takes the statistics of a phase: call->call_saved and everything written on the way.
  absl::Status TakeStatistics(uint32_t phase, const plumb_norm_call& call,
                              const KernelArgs& args) const {
    return stats_.Take(phase, call, static_cast<char*>(args.scratch), slot_bytes_,
                       static_cast<char*>(args.scratch) + stats_at(), args.threads);
  }

  const std::shared_ptr<const AttrObject> attr_;  // owns the instance
  const NormInstance& instance_;
  const NormRunner runner_;
  const NormPartition partition_;
  const NormStatistics stats_;
  const int64_t slot_bytes_;
  plumb_norm_call prototype_;
};

class CrossNormKernel : public CrossNormKernelBase {
 public:
  explicit CrossNormKernel(const OpTypes& types)
      : CrossNormKernelBase(types, 0, false),
        train_(types.outputs.size() > 1),  // cross_norm returns the new state, too
        takes_statistics_(train_ || instance_.cross_row_eval()) {
    if (train_) prototype_.flags |= PLUMB_CALL_TRAIN;
  }

  int64_t scratch_bytes() const override {
    return rest_at() + AlignUp(instance_.saved_per_call() * SizeOf(DType::kF32));
  }

  absl::Status Run(const KernelArgs& args) const override {
    plumb_norm_call call = prototype_;
    call.x = args.in[0];
    call.y = args.out[0];
    call.params = args.in + 2;
    // Training updates the state in place; evaluation does not write it.
    call.buffers = stats_.Buffers(static_cast<char*>(args.scratch) + stats_at(),
                                  const_cast<void*>(args.in[1]));
    if (takes_statistics_ && instance_.saved_per_call() > 0) {
      call.call_saved = train_ ? args.out[2] : static_cast<char*>(args.scratch) + rest_at();
      // Zeroed, because a plugin may write some elements in its backward phase only.
      std::memset(call.call_saved, 0,
                  static_cast<size_t>(instance_.saved_per_call() * SizeOf(DType::kF32)));
    }
    if (train_ && instance_.saved_per_row() > 0) {
      call.saved = args.out[instance_.saved_per_call() > 0 ? 3 : 2];
    }
    if (takes_statistics_) PLUMB_RETURN_IF_ERROR(TakeStatistics(PLUMB_PHASE_FORWARD, call, args));
    return RunTasks(partition_.tasks, args.threads, [&](int64_t task) {
      plumb_norm_call mine = call;
      CallErrorText error(&mine);
      mine.scratch = Slot(args, task);
      const Range range = partition_.Rows(partition_.TaskChunks(task));
      return runner_.Forward(mine, range.begin, range.end);
    });
  }

 private:
  const bool train_;
  const bool takes_statistics_;
};

// A plugin may compute gradients of parameters both in finalize and in the ranges: the first are
// added to the outputs directly, the second to partials per chunk, whose sum is added to the
// outputs.
class CrossNormGradKernel : public CrossNormKernelBase {
 public:
  explicit CrossNormGradKernel(const OpTypes& types)
      : CrossNormKernelBase(types, kGradDy, true), partials_(instance_, partition_.chunks) {}

  int64_t scratch_bytes() const override { return partials_at() + partials_.bytes(); }

  absl::Status Run(const KernelArgs& args) const override {
    partials_.ZeroSums(args.out + 2);
    plumb_norm_call call = prototype_;
    call.x = args.in[kGradX];
    call.y = const_cast<void*>(args.in[kGradY]);  // the ABI's y is read-only in backward
    call.dy = args.in[kGradDy];
    call.dx = args.out[0];
    call.saved = const_cast<void*>(args.in[kGradSaved]);
    call.params = args.in + kGradParams;
    char* const memory = static_cast<char*>(args.scratch);
    call.buffers = stats_.Buffers(memory + stats_at(), args.out[1]);
    if (instance_.saved_per_call() > 0) {  // a copy, because finalize writes it
      call.call_saved =
          std::memcpy(memory + rest_at(), args.in[kCallSaved],
                      static_cast<size_t>(instance_.saved_per_call() * SizeOf(DType::kF32)));
    }
    call.dparams = args.out + 2;
    PLUMB_RETURN_IF_ERROR(TakeStatistics(PLUMB_PHASE_BACKWARD, call, args));
    const auto run_task = [&](int64_t task) -> absl::Status {
      plumb_norm_call mine = call;
      CallErrorText error(&mine);
      mine.scratch = Slot(args, task);
      const Range chunks = partition_.TaskChunks(task);
      for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
        mine.dparams = partials_.Zeroed(memory + partials_at(), chunk);
        const Range rows = partition_.Rows({chunk, chunk + 1});
        PLUMB_RETURN_IF_ERROR(runner_.Backward(mine, rows.begin, rows.end));
      }
      return absl::OkStatus();
    };
    PLUMB_RETURN_IF_ERROR(RunTasks(partition_.tasks, args.threads, run_task));
    partials_.Sum(memory + partials_at(), args.out + 2, true, args.threads);
    return absl::OkStatus();
  }

 private:
  int64_t partials_at() const {
    return rest_at() + AlignUp(instance_.saved_per_call() * SizeOf(DType::kF32));
  }

  const NormPartialGradients partials_;
};

// -- References: the plugin's own arithmetic in double, in one range.

// The buffers of a state, lent separately.
class ReferenceState {
 public:
  ReferenceState(const NormInstance& instance, const std::vector<double>& state, NormReference* run)
      : instance_(instance), run_(run) {
    for (size_t i = 0; i < instance.buffers().size(); ++i) {
      const auto begin = state.begin() + instance.buffer_offset(i);
      pointers_.push_back(run->Lend(std::vector<double>(begin, begin + Size(i))));
    }
    run->call().buffers = pointers_.data();
  }

  // Copies the buffers, with what the plugin wrote, back to the state.
  void Return(std::vector<double>* state) const {
    for (size_t i = 0; i < pointers_.size(); ++i) {
      std::vector<double> buffer(static_cast<size_t>(Size(i)));
      run_->Return(pointers_[i], &buffer);
      std::copy(buffer.begin(), buffer.end(), state->begin() + instance_.buffer_offset(i));
    }
  }

 private:
  int64_t Size(size_t i) const { return Shape(instance_.buffers()[i].dims).num_elements(); }

  const NormInstance& instance_;
  NormReference* run_;
  std::vector<void*> pointers_;
};

std::vector<double> Zeros(int64_t n) { return std::vector<double>(static_cast<size_t>(n), 0.0); }

// Takes the statistics of a phase over all rows at once.
absl::Status ReferenceStatistics(const NormInstance& instance, uint32_t phase, NormReference* run) {
  void* const statistic = run->Lend(Zeros(instance.partial_elems()));
  PLUMB_RETURN_IF_ERROR(instance.StatsPartial(phase, run->call(), 0, run->call().rows, statistic));
  return instance.StatsFinalize(phase, run->call(), statistic);
}

absl::Status ReferenceForward(const ReferenceArgs& args) {
  const bool train = args.outputs.size() > 1;  // not cross_norm_eval
  const NormInstance& instance = GetNormInstance(args.attrs);
  NormReference run(instance, args.shape(0).num_elements() / instance.dim());
  plumb_norm_call& call = run.call();
  if (train) call.flags |= PLUMB_CALL_TRAIN;
  call.x = run.Lend(args.f(0));
  call.y = run.Lend(args.out(0));
  ReferenceState state(instance, args.f(1), &run);
  std::vector<const void*> params;
  for (size_t i = 2; i < args.inputs.size(); ++i) params.push_back(run.Lend(args.f(i)));
  call.params = params.data();
  const bool saves = train && instance.saved_per_row() > 0;
  if (saves) call.saved = run.Lend(args.out(args.outputs.size() - 1));
  if (train || instance.cross_row_eval()) {
    if (instance.saved_per_call() > 0) call.call_saved = run.Lend(Zeros(instance.saved_per_call()));
    PLUMB_RETURN_IF_ERROR(ReferenceStatistics(instance, PLUMB_PHASE_FORWARD, &run));
  }
  PLUMB_RETURN_IF_ERROR(instance.Forward(call, 0, call.rows));
  run.Return(call.y, &args.out(0));
  if (!train) return absl::OkStatus();
  state.Return(&args.out(1));
  if (instance.saved_per_call() > 0) run.Return(call.call_saved, &args.out(2));
  if (saves) run.Return(call.saved, &args.out(args.outputs.size() - 1));
  return absl::OkStatus();
}

absl::Status ReferenceCrossNormGrad(const ReferenceArgs& args) {
  const NormInstance& instance = GetNormInstance(args.attrs);
  NormReference run(instance, args.shape(kGradDy).num_elements() / instance.dim());
  plumb_norm_call& call = run.call();
  if (args.has(kGradX)) call.x = run.Lend(args.f(kGradX));
  if (args.has(kGradY)) call.y = run.Lend(args.f(kGradY));
  if (args.has(kCallSaved)) call.call_saved = run.Lend(args.f(kCallSaved));
  if (args.has(kGradSaved)) call.saved = run.Lend(args.f(kGradSaved));
  call.dy = run.Lend(args.f(kGradDy));
  call.dx = run.Lend(args.out(0));
  ReferenceState state(instance, args.f(kState), &run);
  std::vector<const void*> params;
  std::vector<void*> dparams;
  for (size_t i = kGradParams; i < args.inputs.size(); ++i) {
    params.push_back(run.Lend(args.f(i)));
    dparams.push_back(run.Lend(args.out(2 + i - kGradParams)));  // zero-filled
  }
  call.params = params.data();
  call.dparams = dparams.data();
  PLUMB_RETURN_IF_ERROR(ReferenceStatistics(instance, PLUMB_PHASE_BACKWARD, &run));
  PLUMB_RETURN_IF_ERROR(instance.Backward(call, 0, call.rows));
  run.Return(call.dx, &args.out(0));
  state.Return(&args.out(1));
  for (size_t i = 0; i < dparams.size(); ++i) run.Return(dparams[i], &args.out(2 + i));
  return absl::OkStatus();
}

}  // namespace

// -- Registration

void RegisterCrossNorm(OpRegistry* registry) {
  OpDef op;
  op.name = "cross_norm";
  op.min_inputs = 2;
  op.max_inputs = OpDef::kVariadic;
  op.updates = {{1, 1}};
  op.infer = InferCrossNorm;
  op.vjp = VjpCrossNorm;
  op.make_kernel = MakeKernel<CrossNormKernel>;
  op.reference = ReferenceForward;
  registry->Add(std::move(op));

  OpDef eval;
  eval.name = "cross_norm_eval";
  eval.min_inputs = 2;
  eval.max_inputs = OpDef::kVariadic;
  eval.infer = InferEval;
  eval.make_kernel = MakeKernel<CrossNormKernel>;
  eval.reference = ReferenceForward;
  eval.token_wise = [](const OpTypes& types) {
    const bool mixes = GetNormInstance(types.attrs).cross_row_eval();
    return mixes ? std::vector<size_t>{} : std::vector<size_t>{0};
  };
  registry->Add(std::move(eval));

  OpDef grad;
  grad.name = "cross_norm_grad";
  grad.min_inputs = 0;  // leading operands may be absent; the shape rule checks which
  grad.max_inputs = OpDef::kVariadic;
  grad.updates = {{1, kState}};
  grad.infer = InferCrossNormGrad;
  grad.make_kernel = MakeKernel<CrossNormGradKernel>;
  grad.reference = ReferenceCrossNormGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
