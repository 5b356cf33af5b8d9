// SPDX-License-Identifier: Apache-2.0
// NormInstance's calls with guarded operands: each function may access exactly what the ABI permits
// (plugins/abi/plumb/norm_plugin.h).
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/plugin/descriptor.h"
#include "runtime/plugin/guarded_call.h"
#include "runtime/plugin/norm_plugin.h"
#include "runtime/plugin/operand_guard.h"
#include "runtime/plugin/plugin_call.h"

namespace plumb {
namespace {

using Access = OperandGuard::Access;

int64_t ElementBytes(uint32_t dtype) {
  return dtype == PLUMB_DTYPE_F64 ? 8 : dtype == PLUMB_DTYPE_BF16 ? 2 : 4;
}
int64_t AccumulateBytes(uint32_t dtype) { return dtype == PLUMB_DTYPE_F64 ? 8 : 4; }

int64_t Elements(const NormParam& tensor) {
  int64_t n = 1;
  for (const int64_t size : tensor.dims) n *= size;
  return n;
}

absl::Status WroteOutside(const PluginCall& record, const std::string& damage) {
  return absl::FailedPreconditionError(absl::StrCat(
      *record.file == '\0' ? "norm linked into the host" : record.file, ": ", record.function,
      "() of the norm \"", record.norm, "\" wrote outside of its operands: ", damage,
      *record.file == '\0' ? "" : absl::StrCat("\nsee: plumb plugin check ", record.file)));
}

// Makes the guard available to the fault handler of this thread, for its lifetime.
class GuardScope {
 public:
  explicit GuardScope(const OperandGuard* guard)
      : slot_(plugin_call_slot != nullptr ? plugin_call_slot : ClaimPluginCallSlot()) {
    slot_->guard.store(guard, std::memory_order_relaxed);
  }
  ~GuardScope() { slot_->guard.store(nullptr, std::memory_order_relaxed); }
  GuardScope(const GuardScope&) = delete;
  GuardScope& operator=(const GuardScope&) = delete;

 private:
  PluginCallSlot* const slot_;
};

// Returns pointers to guarded copies of an instance's tensors.
template <class Pointer>
std::vector<Pointer> GuardTensors(const char* kind, Access access,
                                  const std::vector<NormParam>& tensors, int64_t element_bytes,
                                  Pointer const* pointers, std::vector<std::string>* names,
                                  OperandGuard* guard) {
  std::vector<Pointer> guarded;
  if (pointers == nullptr) return guarded;
  for (size_t i = 0; i < tensors.size(); ++i) {
    names->push_back(absl::StrCat(kind, " \"", tensors[i].name, "\""));
    guarded.push_back(pointers[i]);
    guard->AddVector(names->back().c_str(), access, Elements(tensors[i]) * element_bytes,
                     &guarded.back());
  }
  return guarded;
}

}  // namespace

absl::Status NormInstance::RunGuarded(NormFunction which, uint32_t phase, CallOperands operands,
                                      int64_t r0, int64_t r1) const {
  plumb_norm_call call = *operands.call;
  plumb_residual_call residual{};
  if (operands.residual != nullptr) residual = *operands.residual;
  const bool is_forward =
      which == NormFunction::kForward || which == NormFunction::kResidualForward;
  const bool is_backward =
      which == NormFunction::kBackward || which == NormFunction::kResidualBackward;
  const bool is_final = which == NormFunction::kStatsFinalize;
  const auto written = [](bool may_write) { return may_write ? Access::kWrite : Access::kRead; };
  const int64_t element = ElementBytes(call.dtype), number = AccumulateBytes(call.dtype);
  const int64_t row = dim_ * element, saved_row = saved_per_row_ * number;
  const int64_t statistic = partial_elems_ * number;

  OperandGuard guard;
  std::vector<std::string> names;
  names.reserve(params_.size() * 2 + buffers_.size());
  const auto rows = [&](const char* name, bool may_write, int64_t row_bytes, auto* base,
                        int64_t* pitch) {
    guard.AddRows(name, written(may_write), call.rows, r0, r1, row_bytes, base, pitch);
  };
  // Written operands come first, since read-only ones may share their memory.
  rows("dx", is_backward, row, &call.dx, &call.dx_pitch);
  rows("dx2", is_backward, row, &call.dx2, &call.dx2_pitch);
  rows("sum", is_forward, row, &residual.sum, &residual.sum_pitch);
  rows("y", is_forward, row, &call.y, &call.y_pitch);
  rows("saved", is_forward, saved_row, &call.saved, &call.saved_pitch);
  guard.AddVector("the statistic", Access::kWrite, statistic, &operands.acc);
  guard.AddVector("scratch", Access::kWrite, scratch_bytes(r1 - r0), &call.scratch);
  guard.AddVector("err", Access::kWrite, static_cast<int64_t>(call.err_cap), &call.err);
  std::vector<void*> dparams = GuardTensors("the gradient of", written(is_backward || is_final),
                                            params_, number, call.dparams, &names, &guard);
  if (call.dparams != nullptr) call.dparams = dparams.data();
  const bool updates = is_final && (phase == PLUMB_PHASE_BACKWARD || (call.flags & PLUMB_CALL_TRAIN) != 0);
  std::vector<void*> buffers =
      GuardTensors("buffer", written(updates), buffers_, number, call.buffers, &names, &guard);
  if (call.buffers != nullptr) call.buffers = buffers.data();
  guard.AddVector("call_saved", written(is_final), saved_per_call_ * number, &call.call_saved);
  guard.AddVector("the partial statistic", Access::kRead, statistic, &operands.partial);
  std::vector<const void*> params =
      GuardTensors("parameter", Access::kRead, params_, number, call.params, &names, &guard);
  if (call.params != nullptr) call.params = params.data();
  rows("x", false, row, &call.x, &call.x_pitch);
  rows("x2", false, row, &call.x2, &call.x2_pitch);
  rows("dy", false, row, &call.dy, &call.dy_pitch);
  rows("res", false, row, &residual.res, &residual.res_pitch);
  rows("dsum", false, row, &residual.dsum, &residual.dsum_pitch);
  plumb_norm_context context{};
  if (call.context != nullptr) {
    context = *call.context;
    const void* positions = context.positions;
    guard.AddVector("positions", Access::kRead,
                    call.rows / context.rows_per_token * static_cast<int64_t>(sizeof(int32_t)),
                    &positions);
    const void* offsets = context.sequence_offsets;
    guard.AddVector("sequence_offsets", Access::kRead,
                    (context.n_sequences + 1) * static_cast<int64_t>(sizeof(int64_t)), &offsets);
    context.positions = static_cast<const int32_t*>(positions);
    context.sequence_offsets = static_cast<const int64_t*>(offsets);
    call.context = &context;
  }
  if (!guard.Seal()) {
    return absl::ResourceExhaustedError(absl::StrCat(text_, ": no memory for guarded operands of ",
                                                     plugin_->Record(which).function, "()"));
  }

  operands = {&call, operands.residual == nullptr ? nullptr : &residual, operands.acc,
              operands.partial};
  absl::Status status;
  {
    const GuardScope scope(&guard);
    status = Call(which, phase, operands, r0, r1);
  }
  if (const std::string damage = guard.Damage(); !damage.empty()) {
    return WroteOutside(plugin_->Record(which),
                        absl::StrCat(damage, ", ", text_, ", rows ", r0, " to ", r1));
  }
  guard.CopyBack();
  return status;
}

absl::Status NormInstance::FillGuarded(const NormParam& tensor, plumb_fill_call call) const {
  const PluginCall& record = plugin_->Record(NormFunction::kFill);
  OperandGuard guard;
  void* values = call.values;
  const auto bytes = call.elements * static_cast<int64_t>(sizeof(*call.values));
  guard.AddVector("values", Access::kWrite, bytes, &values);
  guard.AddVector("err", Access::kWrite, static_cast<int64_t>(call.err_cap), &call.err);
  if (!guard.Seal()) return absl::ResourceExhaustedError("no memory for guarded values");
  call.values = static_cast<float*>(values);
  plumb_status code = PLUMB_OK;
  absl::Status status;
  {
    const GuardScope scope(&guard);
    status = Guarded(record, [&] { code = tensor.fill(handle_, &call); });
  }
  if (const std::string damage = guard.Damage(); !damage.empty()) {
    return WroteOutside(record, absl::StrCat(damage, ", ", text_));
  }
  if (status.ok()) status = FromPlugin(code, {call.err, strnlen(call.err, call.err_cap)});
  guard.CopyBack();
  return status;
}

}  // namespace plumb
