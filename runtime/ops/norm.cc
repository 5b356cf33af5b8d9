// norm and norm_grad: the host's side of the norm plugin ABI (plugins/abi/plumb/norm_plugin.h).
// What a norm computes is the plugin's affair; here rows are cut into ranges, memory is lent, and
// the partial gradients of parameters are added up.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plumb/norm_plugin.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/check.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/element_tasks.h"
#include "runtime/ops/norm_reference.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/optimizer.h"

namespace plumb {
namespace {

const NormInstance& InstanceOf(const Attrs& attrs) {
  const auto* attr = dynamic_cast<const NormAttr*>(attrs.GetObject("instance").get());
  PLUMB_CHECK(attr != nullptr, "the instance of a norm is a NormAttr");
  return attr->instance();
}

// Where norm_grad finds its operands: x, y and saved are absent where the plugin does not read
// them.
constexpr size_t kGradX = 0, kGradY = 1, kGradDy = 2, kGradSaved = 3, kGradParams = 4;

// -- Shape rules

absl::Status CheckRows(const OpTypes& types, size_t i, absl::string_view name,
                       const NormInstance& instance) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, i, name));
  if (types.in(i).shape.last() % instance.dim() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the last dimension of ", name, ", ", types.in(i).shape.last(),
        ", is not a multiple of the ", instance.dim(), " that ", instance.ToString(), " takes"));
  }
  return absl::OkStatus();
}

absl::Status CheckParams(const OpTypes& types, size_t first, const NormInstance& instance) {
  const std::vector<NormParam>& params = instance.params();
  if (types.inputs.size() != first + params.size()) {
    return absl::InvalidArgumentError(absl::StrCat(instance.ToString(), " has ", params.size(),
                                                   " parameters, the node has ",
                                                   types.inputs.size() - first));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    const Shape want(params[i].dims);
    if (!types.has(first + i) || types.in(first + i).dtype != DType::kF32 ||
        types.in(first + i).num_elements() != want.num_elements()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", params[i].name, " of ", instance.ToString(), " must be f32",
          want.ToString(), " and is ",
          types.has(first + i) ? types.in(first + i).ToString() : std::string("missing")));
    }
  }
  return absl::OkStatus();
}

TensorType SavedType(const TensorType& x, const NormInstance& instance) {
  return F32({x.num_elements() / instance.dim(), instance.saved_per_row()});
}

absl::StatusOr<std::vector<TensorType>> Infer(const OpTypes& types) {
  const NormInstance& instance = InstanceOf(types.attrs);
  PLUMB_RETURN_IF_ERROR(CheckRows(types, 0, "x", instance));
  PLUMB_RETURN_IF_ERROR(CheckParams(types, 1, instance));
  std::vector<TensorType> outputs = {types.in(0)};
  if (types.attrs.GetBool("train", false) && instance.saved_per_row() > 0) {
    outputs.push_back(SavedType(types.in(0), instance));
  }
  return outputs;
}

// An operand of norm_grad is there exactly when the plugin reads it.
absl::Status CheckOptional(const OpTypes& types, size_t i, absl::string_view name, bool wanted,
                           const TensorType& type) {
  if (types.has(i) != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, wanted ? " is missing" : " is given and not wanted"));
  }
  if (wanted && types.in(i) != type) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", types.in(i).ToString(), ", must be ", type.ToString()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorType>> InferGrad(const OpTypes& types) {
  const NormInstance& instance = InstanceOf(types.attrs);
  if (types.inputs.size() < kGradParams) {
    return absl::InvalidArgumentError("needs x, y, dy and saved, absent or not");
  }
  PLUMB_RETURN_IF_ERROR(CheckRows(types, kGradDy, "dy", instance));
  const TensorType& dy = types.in(kGradDy);
  PLUMB_RETURN_IF_ERROR(CheckOptional(types, kGradX, "x", instance.backward_needs_x(), dy));
  PLUMB_RETURN_IF_ERROR(CheckOptional(types, kGradY, "y", instance.backward_needs_y(), dy));
  PLUMB_RETURN_IF_ERROR(CheckOptional(types, kGradSaved, "saved", instance.saved_per_row() > 0,
                                      SavedType(dy, instance)));
  PLUMB_RETURN_IF_ERROR(CheckParams(types, kGradParams, instance));
  std::vector<TensorType> outputs = {dy};
  for (size_t i = kGradParams; i < types.inputs.size(); ++i) outputs.push_back(types.in(i));
  return outputs;
}

// -- VJP
//
// The plugin's backward() is the VJP: dx = (dy/dx)^T dy, dparams = (dy/dparams)^T dy, from those of
// x, y and saved that it asks for.
std::vector<ValueId> Vjp(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                         const std::vector<bool>& /*wanted*/) {
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (d_outputs[0] == kNoValue) return d_inputs;
  const NormInstance& instance = InstanceOf(node.attrs);
  const bool has_saved = instance.saved_per_row() > 0;
  if (has_saved && node.outputs.size() < 2) {
    b.Fail(absl::FailedPreconditionError(
        absl::StrCat("norm ", instance.ToString(), " was not built with train = true")));
    return d_inputs;
  }
  std::vector<ValueId> inputs = {instance.backward_needs_x() ? node.inputs[0] : kNoValue,
                                 instance.backward_needs_y() ? node.outputs[0] : kNoValue,
                                 d_outputs[0], has_saved ? node.outputs[1] : kNoValue};
  inputs.insert(inputs.end(), node.inputs.begin() + 1, node.inputs.end());
  const std::vector<ValueId> d =
      b.ApplyAll("norm_grad", std::move(inputs), {{"instance", node.attrs.GetObject("instance")}});
  for (size_t i = 0; i < d_inputs.size(); ++i) d_inputs[i] = d[i];
  return d_inputs;
}

// -- Kernels

// How the rows of a call are cut. Chunks are the unit in which gradients of parameters are summed,
// tasks the unit of scheduling: some adjacent chunks. Both depend on the shape only.
struct Cut {
  Cut(int64_t rows_in, int64_t dim)
      : rows(rows_in),
        chunk_rows(std::max<int64_t>(8, (rows + 63) / 64)),
        chunks((rows + chunk_rows - 1) / chunk_rows),
        tasks(TaskCount(chunks, 8 * rows * dim)) {}

  Range Rows(Range of_chunks) const {
    return {of_chunks.begin * chunk_rows, std::min(rows, of_chunks.end * chunk_rows)};
  }
  int64_t rows_per_task() const {
    return std::min(rows, (chunks + tasks - 1) / tasks * chunk_rows);
  }

  int64_t rows;
  int64_t chunk_rows;
  int64_t chunks;
  int64_t tasks;
};

constexpr int64_t kMaxTasks = 64;  // of TaskCount

// body(task) -> status for all tasks; the first failure in their order.
template <class Body>
absl::Status RunTasks(int64_t tasks, int threads, const Body& body) {
  if (tasks == 1) return body(int64_t{0});
  std::array<absl::Status, kMaxTasks> status;
  ParallelFor(tasks, threads,
              [&](int64_t task) { status[static_cast<size_t>(task)] = body(task); });
  for (absl::Status& s : status) {
    if (!s.ok()) return std::move(s);
  }
  return absl::OkStatus();
}

// What is the same in every call for an instance and a number of rows.
plumb_norm_call Prototype(const NormInstance& instance, int64_t rows) {
  const int64_t pitch = instance.dim() * SizeOf(DType::kF32);
  plumb_norm_call call{};
  call.struct_size = sizeof(call);
  call.flags = pitch % kAlignment == 0 ? uint32_t{PLUMB_CALL_ALIGNED64} : 0;
  call.dtype = PLUMB_F32;
  call.dim = static_cast<uint32_t>(instance.dim());
  call.rows = rows;
  call.x_pitch = call.y_pitch = call.dy_pitch = call.dx_pitch = pitch;
  call.saved_pitch = instance.saved_per_row() * SizeOf(DType::kF32);
  return call;
}

// A call's place for the plugin's own words on a failure.
class ErrorText {
 public:
  explicit ErrorText(plumb_norm_call* call) {
    text_[0] = '\0';
    call->err = text_;
    call->err_cap = sizeof(text_);
  }

 private:
  char text_[256];
};

class NormKernel : public Kernel {
 public:
  NormKernel(std::shared_ptr<const AttrObject> attr, const NormInstance& instance, int64_t rows,
             bool train)
      : attr_(std::move(attr)),
        instance_(instance),
        cut_(rows, instance.dim()),
        saves_(train && instance.saved_per_row() > 0),
        slot_bytes_(AlignUp(instance.scratch_bytes(cut_.rows_per_task()))),
        prototype_(Prototype(instance, rows)) {
    if (train) prototype_.flags |= PLUMB_CALL_TRAIN;
  }

  int64_t scratch_bytes() const override { return cut_.tasks * slot_bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    return RunTasks(cut_.tasks, args.threads, [&](int64_t task) {
      plumb_norm_call call = prototype_;
      ErrorText error(&call);
      call.x = args.in[0];
      call.y = args.out[0];
      call.params = args.in + 1;
      call.saved = saves_ ? args.out[1] : nullptr;
      call.scratch = static_cast<char*>(args.scratch) + task * slot_bytes_;
      const Range range = cut_.Rows(TaskRange(cut_.chunks, cut_.tasks, task));
      return instance_.Forward(call, range.begin, range.end);
    });
  }

 private:
  const std::shared_ptr<const AttrObject> attr_;  // keeps the instance
  const NormInstance& instance_;
  const Cut cut_;
  const bool saves_;
  const int64_t slot_bytes_;
  plumb_norm_call prototype_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  const NormInstance& instance = InstanceOf(types.attrs);
  return std::make_unique<NormKernel>(types.attrs.GetObject("instance"), instance,
                                      types.in(0).num_elements() / instance.dim(),
                                      types.attrs.GetBool("train", false));
}

// With several chunks each adds its parameters' gradients into zeroed memory of its own, and these
// partials are then added in the order of the chunks. One chunk adds into the outputs themselves.
class NormGradKernel : public Kernel {
 public:
  NormGradKernel(std::shared_ptr<const AttrObject> attr, const NormInstance& instance, int64_t rows)
      : attr_(std::move(attr)),
        instance_(instance),
        cut_(rows, instance.dim()),
        by_chunk_(cut_.chunks > 1 && !instance.params().empty()),
        slot_bytes_(AlignUp(instance.scratch_bytes(by_chunk_ ? std::min(rows, cut_.chunk_rows)
                                                             : cut_.rows_per_task()))),
        prototype_(Prototype(instance, rows)) {
    for (const NormParam& param : instance.params()) {
      const int64_t n = Shape(param.dims).num_elements();
      params_.push_back({n, partial_bytes_, ElementTasks(n, cut_.chunks)});
      partial_bytes_ += AlignUp(n * SizeOf(DType::kF32));
    }
    pointer_bytes_ = AlignUp(static_cast<int64_t>(params_.size() * sizeof(void*)));
  }

  int64_t scratch_bytes() const override {
    return cut_.tasks * slot_bytes_ +
           (by_chunk_ ? cut_.chunks * (partial_bytes_ + pointer_bytes_) : 0);
  }

  absl::Status Run(const KernelArgs& args) const override {
    if (!by_chunk_) {
      for (size_t i = 0; i < params_.size(); ++i) {
        std::memset(args.out[1 + i], 0, static_cast<size_t>(params_[i].n) * sizeof(float));
      }
    }
    PLUMB_RETURN_IF_ERROR(
        RunTasks(cut_.tasks, args.threads, [&](int64_t task) { return RunTask(args, task); }));
    if (by_chunk_) AddPartials(args);
    return absl::OkStatus();
  }

 private:
  struct Param {
    int64_t n;
    int64_t offset;  // bytes, in a chunk's partials
    ElementTasks sum;
  };

  absl::Status RunTask(const KernelArgs& args, int64_t task) const {
    plumb_norm_call call = prototype_;
    ErrorText error(&call);
    call.x = args.in[kGradX];
    call.y = const_cast<void*>(args.in[kGradY]);  // the ABI's y is read-only in backward
    call.dy = args.in[kGradDy];
    call.dx = args.out[0];
    call.saved = const_cast<void*>(args.in[kGradSaved]);
    call.params = args.in + kGradParams;
    call.dparams = args.out + 1;
    call.scratch = static_cast<char*>(args.scratch) + task * slot_bytes_;
    const Range chunks = TaskRange(cut_.chunks, cut_.tasks, task);
    if (!by_chunk_) {
      const Range rows = cut_.Rows(chunks);
      return instance_.Backward(call, rows.begin, rows.end);
    }
    for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      call.dparams = ZeroedPartials(args, chunk);
      const Range rows = cut_.Rows({chunk, chunk + 1});
      PLUMB_RETURN_IF_ERROR(instance_.Backward(call, rows.begin, rows.end));
    }
    return absl::OkStatus();
  }

  char* Partials(const KernelArgs& args, int64_t chunk) const {
    return static_cast<char*>(args.scratch) + cut_.tasks * slot_bytes_ + chunk * partial_bytes_;
  }

  void* const* ZeroedPartials(const KernelArgs& args, int64_t chunk) const {
    char* partials = Partials(args, chunk);
    std::memset(partials, 0, static_cast<size_t>(partial_bytes_));
    void** pointers =
        reinterpret_cast<void**>(Partials(args, cut_.chunks) + chunk * pointer_bytes_);
    for (size_t i = 0; i < params_.size(); ++i) pointers[i] = partials + params_[i].offset;
    return pointers;
  }

  void AddPartials(const KernelArgs& args) const {
    for (size_t i = 0; i < params_.size(); ++i) {
      float* sum = args.out_f32(1 + i);
      params_[i].sum.Run(args.threads, [&](int64_t begin, int64_t end) {
        for (int64_t chunk = 0; chunk < cut_.chunks; ++chunk) {
          const float* part =
              reinterpret_cast<const float*>(Partials(args, chunk) + params_[i].offset) + begin;
          if (chunk == 0) {
            std::copy(part, part + (end - begin), sum + begin);
          } else {
            Accumulate(part, sum + begin, end - begin, 1);
          }
        }
      });
    }
  }

  const std::shared_ptr<const AttrObject> attr_;  // keeps the instance
  const NormInstance& instance_;
  const Cut cut_;
  const bool by_chunk_;
  const int64_t slot_bytes_;
  const plumb_norm_call prototype_;
  std::vector<Param> params_;
  int64_t partial_bytes_ = 0;  // of all parameters of one chunk
  int64_t pointer_bytes_ = 0;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeGradKernel(const OpTypes& types) {
  const NormInstance& instance = InstanceOf(types.attrs);
  return std::make_unique<NormGradKernel>(types.attrs.GetObject("instance"), instance,
                                          types.in(kGradDy).num_elements() / instance.dim());
}

// -- References: the plugin's own arithmetic in double, in one range.

absl::Status Reference(const ReferenceArgs& args) {
  const NormInstance& instance = InstanceOf(args.attrs);
  NormReference run(instance, args.shape(0).num_elements() / instance.dim());
  if (args.attrs.GetBool("train", false)) run.call().flags |= PLUMB_CALL_TRAIN;
  run.call().x = run.Lend(args.f(0));
  run.call().y = run.Lend(args.out(0));
  if (args.outputs.size() > 1) run.call().saved = run.Lend(args.out(1));
  std::vector<const void*> params;
  for (size_t i = 1; i < args.inputs.size(); ++i) params.push_back(run.Lend(args.f(i)));
  run.call().params = params.data();
  PLUMB_RETURN_IF_ERROR(instance.Forward(run.call(), 0, run.call().rows));
  run.Return(run.call().y, &args.out(0));
  if (args.outputs.size() > 1) run.Return(run.call().saved, &args.out(1));
  return absl::OkStatus();
}

absl::Status ReferenceGrad(const ReferenceArgs& args) {
  const NormInstance& instance = InstanceOf(args.attrs);
  NormReference run(instance, args.shape(kGradDy).num_elements() / instance.dim());
  if (args.has(kGradX)) run.call().x = run.Lend(args.f(kGradX));
  if (args.has(kGradY)) run.call().y = run.Lend(args.f(kGradY));
  if (args.has(kGradSaved)) run.call().saved = run.Lend(args.f(kGradSaved));
  run.call().dy = run.Lend(args.f(kGradDy));
  run.call().dx = run.Lend(args.out(0));
  std::vector<const void*> params;
  std::vector<void*> dparams;
  for (size_t i = kGradParams; i < args.inputs.size(); ++i) {
    params.push_back(run.Lend(args.f(i)));
    dparams.push_back(run.Lend(args.out(1 + i - kGradParams)));  // zero-filled
  }
  run.call().params = params.data();
  run.call().dparams = dparams.data();
  PLUMB_RETURN_IF_ERROR(instance.Backward(run.call(), 0, run.call().rows));
  run.Return(run.call().dx, &args.out(0));
  for (size_t i = 0; i < dparams.size(); ++i) run.Return(dparams[i], &args.out(1 + i));
  return absl::OkStatus();
}

}  // namespace

// -- Registration

void RegisterNorm(OpRegistry* registry) {
  OpDef op;
  op.name = "norm";
  op.min_inputs = 1;
  op.max_inputs = OpDef::kVariadic;
  op.infer = Infer;
  op.vjp = Vjp;
  op.make_kernel = MakeKernel;
  op.reference = Reference;
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "norm_grad";
  grad.min_inputs = 0;  // the first may be absent; the shape rule knows which must not
  grad.max_inputs = OpDef::kVariadic;
  grad.infer = InferGrad;
  grad.make_kernel = MakeGradKernel;
  grad.reference = ReferenceGrad;
  registry->Add(std::move(grad));
}

}  // namespace plumb
