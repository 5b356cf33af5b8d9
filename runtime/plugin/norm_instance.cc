// SPDX-License-Identifier: Apache-2.0
// NormInstance: creation, layout and calls of an instance.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"
#include "runtime/base/divide.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/plugin/descriptor.h"
#include "runtime/plugin/guarded_call.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {
namespace {

constexpr int64_t kBufferAlignment = 16;  // in floats: a cache line, as the ABI requires

std::string ValueToText(const NormAttrValue& value) {
  if (const double* number = std::get_if<double>(&value)) return ShortestNumber(*number);
  if (const int64_t* integer = std::get_if<int64_t>(&value)) return absl::StrCat(*integer);
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return absl::StrCat("\"", absl::CHexEscape(std::get<std::string>(value)), "\"");
}

std::string InstanceText(const std::string& id, const std::vector<NormAttrSpec>& specs,
                         const std::vector<NormAttrValue>& values, const std::string& size) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < specs.size(); ++i) {
    parts.push_back(absl::StrCat(specs[i].name, "=", ValueToText(values[i])));
  }
  std::sort(parts.begin(), parts.end());
  return absl::StrCat(id, "(", absl::StrJoin(parts, ", "), ")[", size, "]");
}

// Converts values to the ABI's struct; the strings belong to `values`.
std::vector<plumb_attr_value> ToAbi(const std::vector<NormAttrValue>& values) {
  std::vector<plumb_attr_value> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = {};
    if (const double* number = std::get_if<double>(&values[i])) {
      out[i].f = *number;
    } else if (const int64_t* integer = std::get_if<int64_t>(&values[i])) {
      out[i].i = *integer;
    } else if (const bool* flag = std::get_if<bool>(&values[i])) {
      out[i].i = *flag ? 1 : 0;
    } else {
      out[i].s = std::get<std::string>(values[i]).c_str();
    }
  }
  return out;
}

// Returns the plugin's message in the call's buffer; "" without a buffer.
std::string CallMessage(const plumb_norm_call& call) {
  if (call.err == nullptr || call.err_cap == 0) return "";
  return std::string(call.err, strnlen(call.err, call.err_cap));
}

}  // namespace

std::string NormParam::InitToString() const {
  switch (init) {
    case Init::kZeros:
      return "zeros";
    case Init::kOnes:
      return "ones";
    case Init::kConstant:
      return absl::StrCat("constant(", ShortestNumber(init_a), ")");
    case Init::kNormal:
      return absl::StrCat("normal(", ShortestNumber(init_a), ", ", ShortestNumber(init_b), ")");
    case Init::kUniform:
      return absl::StrCat("uniform(", ShortestNumber(init_a), ", ", ShortestNumber(init_b), ")");
    case Init::kFill:
      return "fill";
  }
  return "";
}

absl::StatusOr<std::shared_ptr<const NormInstance>> NormPlugin::Instantiate(int64_t dim,
                                                                            const NormAttrs& attrs,
                                                                            int64_t heads) const {
  PLUMB_CHECK(heads >= 0 && heads <= std::numeric_limits<int32_t>::max(), "a number of heads");
  if (dim < 1 || dim > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(id_, ": cannot normalize rows of ", dim, " elements"));
  }
  PLUMB_ASSIGN_OR_RETURN(const std::vector<NormAttrValue> values, CheckAttrs(attrs));

  std::shared_ptr<NormInstance> instance(new NormInstance());
  instance->plugin_ = this;
  instance->dim_ = dim;
  instance->host_ = host_;
  instance->host_.heads = static_cast<uint32_t>(heads);
  instance->text_ = InstanceText(id_, attrs_, values, absl::StrCat(dim));
  const std::string where = absl::StrCat(instance->text_, ": ");
  ErrorText error;
  plumb_status code = PLUMB_OK;
  plumb_norm_instance* handle = nullptr;
  PLUMB_RETURN_IF_ERROR(Annotate(
      Guarded(Record(NormFunction::kCreate),
              [&] {
                code = table_.create(&instance->host_, static_cast<uint32_t>(dim),
                                     ToAbi(values).data(), &handle, error.text, sizeof(error.text));
              }),
      where));
  if (code != PLUMB_OK) return Annotate(FromPlugin(code, error.view()), where);
  if (handle == nullptr) {
    return absl::InternalError(absl::StrCat(where, "create succeeded without an instance"));
  }
  instance->handle_ = handle;

  plumb_norm_layout layout{};
  layout.struct_size = sizeof(layout);
  {
    // Reading the memory that the layout points to is part of the call.
    const PluginCallScope scope(&Record(NormFunction::kLayout));
    PLUMB_RETURN_IF_ERROR(
        Annotate(Guarded("layout", [&] { code = table_.layout(handle, &layout); }), where));
    PLUMB_RETURN_IF_ERROR(Annotate(FromPlugin(code, "layout failed"), where));
    if (layout.heads != 0 && layout.heads != heads) {
      return absl::FailedPreconditionError(
          absl::StrFormat("%sis for %d heads; there are %d here", where, layout.heads, heads));
    }
    PLUMB_RETURN_IF_ERROR(Annotate(instance->ReadTensors(layout), where));
    PLUMB_RETURN_IF_ERROR(Annotate(instance->ReadExtensions(), where));
  }
  instance->heads_ = layout.heads;
  if (layout.heads != 0) {
    instance->text_ = InstanceText(id_, attrs_, values, absl::StrCat(heads, " x ", dim));
  }
  instance->saved_per_row_ = layout.saved_per_row;
  instance->max_chunks_ = layout.max_chunks;
  instance->backward_needs_x2_ = (layout.backward_needs & PLUMB_BACKWARD_READS_X2) != 0;
  if (!cross_row()) instance->context_wants_ = layout.context_wants;
  instance->saved_per_call_ = layout.saved_per_call;
  instance->partial_elems_ = layout.partial_elems;
  instance->backward_needs_x_ = (layout.backward_needs & PLUMB_BACKWARD_READS_X) != 0;
  instance->backward_needs_y_ = (layout.backward_needs & PLUMB_BACKWARD_READS_Y) != 0;
  instance->scratch_bytes_ = static_cast<int64_t>(layout.scratch_bytes);
  instance->scratch_bytes_per_row_ = static_cast<int64_t>(layout.scratch_bytes_per_row);
  return std::shared_ptr<const NormInstance>(std::move(instance));
}

absl::Status NormInstance::ReadTensors(const plumb_norm_layout& layout) {
  PLUMB_ASSIGN_OR_RETURN(NormTensors tensors, ReadLayout(layout, dim_, cross_row(), two_inputs()));
  if (plugin_->identity() && (!tensors.params.empty() || layout.saved_per_row != 0)) {
    return absl::FailedPreconditionError("calls itself the identity but has parameters or state");
  }
  params_ = std::move(tensors.params);
  buffers_ = std::move(tensors.buffers);
  if (!cross_row()) return absl::OkStatus();
  for (const NormParam& buffer : buffers_) {
    int64_t elements = 1;
    for (const int64_t size : buffer.dims) elements *= size;
    buffer_offsets_.push_back(state_elements_);
    state_elements_ += RoundUp(elements, kBufferAlignment);
  }
  if (state_elements_ > kMaxNormParamElements) {
    return absl::FailedPreconditionError(absl::StrCat(
        "has buffers of ", state_elements_, " numbers; the max is ", kMaxNormParamElements));
  }
  state_elements_ = std::max(state_elements_, kBufferAlignment);
  return absl::OkStatus();
}

absl::Status NormInstance::ReadExtensions() {
  residual_ = plugin_->residual_;
  if (plugin_->of_instance_.get == nullptr || cross_row() || two_inputs()) return absl::OkStatus();
  const void* found = nullptr;
  PLUMB_RETURN_IF_ERROR(Guarded("get of plumb.norm.instance/1", [&] {
    found = plugin_->of_instance_.get(handle_, PLUMB_EXT_RESIDUAL);
  }));
  residual_ = KnownResidual(found);
  return absl::OkStatus();
}

NormInstance::~NormInstance() {
  if (handle_ == nullptr) return;
  const absl::Status left = Guarded(plugin_->Record(NormFunction::kDestroy),
                                    [this] { plugin_->table_.destroy(handle_); });
  if (!left.ok()) {
    plugin_->host_.log(plugin_->host_.ctx, PLUMB_LOG_ERROR, std::string(left.message()).c_str());
  }
}

// Makes one call of the plugin, function() -> plumb_status; `call` has the buffer for its message.
template <class Function>
absl::Status NormInstance::Run(NormFunction which, const plumb_norm_call* call,
                               const Function& function) const {
  plumb_status code = PLUMB_OK;
  const absl::Status left = Guarded(plugin_->Record(which), [&] { code = function(); });
  if (ABSL_PREDICT_TRUE(left.ok() && code == PLUMB_OK)) return absl::OkStatus();
  if (!left.ok()) return Annotate(left, absl::StrCat(text_, ": "));
  return Annotate(FromPlugin(code, CallMessage(*call)),
                  absl::StrCat(text_, ": ", plugin_->Record(which).function, ": "));
}

absl::Status NormInstance::Call(NormFunction which, uint32_t phase, const CallOperands& operands,
                                int64_t r0, int64_t r1) const {
  const plumb_norm_plugin& table = plugin_->table_;
  const plumb_norm_call* const call = operands.call;
  switch (which) {
    case NormFunction::kForward:
      return Run(which, call, [&] { return table.forward(handle_, call, r0, r1); });
    case NormFunction::kBackward:
      return Run(which, call, [&] { return table.backward(handle_, call, r0, r1); });
    case NormFunction::kResidualForward:
      return Run(which, call,
                 [&] { return residual_.forward(handle_, call, operands.residual, r0, r1); });
    case NormFunction::kResidualBackward:
      return Run(which, call,
                 [&] { return residual_.backward(handle_, call, operands.residual, r0, r1); });
    case NormFunction::kStatsPartial:
      return Run(which, call,
                 [&] { return table.stats_partial(handle_, phase, call, r0, r1, operands.acc); });
    case NormFunction::kStatsCombine:
      return Run(which, call, [&] {
        if (plugin_->combine_.combine != nullptr) {
          return plugin_->combine_.combine(handle_, phase, call, operands.acc, operands.partial);
        }
        table.stats_combine(handle_, phase, call, operands.acc, operands.partial);
        return plumb_status{PLUMB_OK};
      });
    case NormFunction::kStatsFinalize:
      return Run(which, call,
                 [&] { return table.stats_finalize(handle_, phase, call, operands.acc); });
    default:
      return absl::InternalError("not a function on operands");
  }
}

absl::Status NormInstance::Forward(const plumb_norm_call& call, int64_t r0, int64_t r1) const {
  return Call(NormFunction::kForward, PLUMB_PHASE_FORWARD, {&call}, r0, r1);
}

absl::Status NormInstance::Backward(const plumb_norm_call& call, int64_t r0, int64_t r1) const {
  return Call(NormFunction::kBackward, PLUMB_PHASE_BACKWARD, {&call}, r0, r1);
}

absl::Status NormInstance::ForwardResidual(const plumb_norm_call& call,
                                           const plumb_residual_call& residual, int64_t r0,
                                           int64_t r1) const {
  return Call(NormFunction::kResidualForward, PLUMB_PHASE_FORWARD, {&call, &residual}, r0, r1);
}

absl::Status NormInstance::BackwardResidual(const plumb_norm_call& call,
                                            const plumb_residual_call& residual, int64_t r0,
                                            int64_t r1) const {
  return Call(NormFunction::kResidualBackward, PLUMB_PHASE_BACKWARD, {&call, &residual}, r0, r1);
}

absl::Status NormInstance::StatsPartial(uint32_t phase, const plumb_norm_call& call, int64_t r0,
                                        int64_t r1, void* partial) const {
  return Call(NormFunction::kStatsPartial, phase, {&call, nullptr, partial}, r0, r1);
}

// The last two access no rows.
absl::Status NormInstance::StatsCombine(uint32_t phase, const plumb_norm_call& call, void* acc,
                                        const void* partial) const {
  return Call(NormFunction::kStatsCombine, phase, {&call, nullptr, acc, partial}, 0, 0);
}

absl::Status NormInstance::StatsFinalize(uint32_t phase, const plumb_norm_call& call,
                                         void* acc) const {
  return Call(NormFunction::kStatsFinalize, phase, {&call, nullptr, acc}, 0, 0);
}

absl::Status NormInstance::Fill(size_t tensor, uint64_t seed, int64_t elements,
                                float* values) const {
  const bool is_param = tensor < params_.size();
  const NormParam& def = is_param ? params_[tensor] : buffers_[tensor - params_.size()];
  char error[256] = "";
  plumb_fill_call call{};
  call.struct_size = sizeof(call);
  call.tensor = static_cast<uint32_t>(tensor);
  call.seed = seed;
  call.elements = elements;
  call.values = values;
  call.err = error;
  call.err_cap = sizeof(error);
  std::fill_n(values, elements, 0.0f);
  const std::string where =
      absl::StrCat(text_, ": fill of ", is_param ? "parameter " : "buffer ", def.name);
  plumb_status code = PLUMB_OK;
  PLUMB_RETURN_IF_ERROR(Annotate(
      Guarded(plugin_->Record(NormFunction::kFill), [&] { code = def.fill(handle_, &call); }),
      absl::StrCat(where, ": ")));
  PLUMB_RETURN_IF_ERROR(Annotate(FromPlugin(code, {error, strnlen(error, sizeof(error))}),
                                 absl::StrCat(where, ": ")));
  const float* const wrong =
      std::find_if_not(values, values + elements, [](float value) { return std::isfinite(value); });
  if (wrong == values + elements) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(where, ": value ", wrong - values, " is not finite: ", *wrong));
}

}  // namespace plumb
