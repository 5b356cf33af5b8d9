// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/norm_rows.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {

const NormInstance& GetNormInstance(const Attrs& attrs) {
  const auto* attr = dynamic_cast<const NormAttr*>(attrs.GetObject("instance").get());
  PLUMB_CHECK(attr != nullptr, "the instance of a norm is a NormAttr");
  return attr->instance();
}

absl::Status CheckNormKind(const NormInstance& instance, bool cross_row) {
  if (instance.cross_row() == cross_row) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      instance.ToString(), cross_row ? " takes no statistics over rows: its op is norm"
                                     : " takes statistics over rows: its op is cross_norm"));
}

absl::Status CheckNormRows(const OpTypes& types, size_t i, absl::string_view name,
                           const NormInstance& instance) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, i, name));
  if (types.in(i).shape.last() % instance.dim() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the last dimension of ", name, ", ", types.in(i).shape.last(),
        ", is not a multiple of the ", instance.dim(), " that ", instance.ToString(), " takes"));
  }
  if (instance.heads() > 0 && types.in(i).shape.last() != instance.heads() * instance.dim()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the last dimension of ", name, ", ", types.in(i).shape.last(),
                     ", is not that of all heads of ", instance.ToString()));
  }
  return absl::OkStatus();
}

NormExtras::NormExtras(const NormInstance& instance, size_t first) {
  const size_t begin = first + instance.params().size();
  if (instance.two_inputs()) x2 = begin + count++;
  if (instance.wants_positions()) positions = begin + count++;
  if (instance.wants_step()) step = begin + count++;
}

absl::Status CheckNormOperands(const OpTypes& types, size_t first, const NormInstance& instance,
                               const TensorType& x, bool has_x2) {
  const NormExtras extras(instance, first);
  PLUMB_RETURN_IF_ERROR(CheckNormParams(types, first, instance, extras.count));
  if (extras.x2 != NormExtras::kNone) {
    PLUMB_RETURN_IF_ERROR(CheckWanted(types, extras.x2, "x2", has_x2, x));
  }
  if (extras.positions != NormExtras::kNone &&
      (!types.has(extras.positions) || types.in(extras.positions).dtype != DType::kI32 ||
       types.in(extras.positions).num_elements() != x.num_elements() / x.shape.last())) {
    return absl::InvalidArgumentError("positions must be i32, one for each token of x");
  }
  if (extras.step != NormExtras::kNone &&
      (!types.has(extras.step) || types.in(extras.step) != F32({1}))) {
    return absl::InvalidArgumentError("step must be f32[1]");
  }
  return absl::OkStatus();
}

NormContext::NormContext(const TensorType& x, const NormInstance& instance,
                         const NormExtras& extras)
    : extras_(extras) {
  context_.struct_size = sizeof(context_);
  context_.rows_per_token = static_cast<uint32_t>(x.shape.last() / instance.dim());
  context_.step = -1;
  if (x.shape.rank() != 3) return;
  for (int64_t s = 0; s <= x.shape[0]; ++s) offsets_.push_back(s * x.shape[1]);
  context_.n_sequences = x.shape[0];
}

plumb_norm_context NormContext::At(const void* const* in) const {
  plumb_norm_context context = context_;
  if (!offsets_.empty()) context.sequence_offsets = offsets_.data();
  if (extras_.positions != NormExtras::kNone) {
    context.positions = static_cast<const int32_t*>(in[extras_.positions]);
  }
  if (extras_.step != NormExtras::kNone) {
    context.step = static_cast<int64_t>(*static_cast<const float*>(in[extras_.step]));
  }
  return context;
}

absl::Status CheckNormParams(const OpTypes& types, size_t first, const NormInstance& instance,
                             size_t more) {
  const std::vector<NormParam>& params = instance.params();
  if (types.inputs.size() != first + params.size() + more) {
    return absl::InvalidArgumentError(
        absl::StrCat(instance.ToString(), " has ", params.size(), " parameters",
                     more == 0 ? std::string() : absl::StrCat(" and ", more, " further operands"),
                     ", the node has ", types.inputs.size() - first));
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

absl::Status CheckWanted(const OpTypes& types, size_t i, absl::string_view name, bool wanted,
                         const TensorType& type) {
  if (types.has(i) != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, wanted ? " is missing" : " is given, but must be absent"));
  }
  if (wanted && types.in(i) != type) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", types.in(i).ToString(), ", must be ", type.ToString()));
  }
  return absl::OkStatus();
}

TensorType NormSavedType(const TensorType& x, const NormInstance& instance) {
  return F32({x.num_elements() / instance.dim(), instance.saved_per_row()});
}

NormPartialGradients::NormPartialGradients(const NormInstance& instance, int64_t chunks)
    : chunks_(chunks), sum_rows_(SelectSumRows(DType::kF32)) {
  for (const NormParam& param : instance.params()) {
    const int64_t n = Shape(param.dims).num_elements();
    params_.push_back({n, partial_bytes_, ElementTasks(n, chunks)});
    partial_bytes_ += AlignUp(n * SizeOf(DType::kF32));
  }
  pointer_bytes_ = AlignUp(static_cast<int64_t>(params_.size() * sizeof(void*)));
}

void* const* NormPartialGradients::Zeroed(char* memory, int64_t chunk) const {
  char* partials = memory + chunk * partial_bytes_;
  std::memset(partials, 0, static_cast<size_t>(partial_bytes_));
  void** pointers =
      reinterpret_cast<void**>(memory + chunks_ * partial_bytes_ + chunk * pointer_bytes_);
  for (size_t i = 0; i < params_.size(); ++i) pointers[i] = partials + params_[i].offset;
  return pointers;
}

void NormPartialGradients::Sum(const char* memory, void* const* out, bool add, int threads) const {
  for (size_t i = 0; i < params_.size(); ++i) {
    const float* parts = reinterpret_cast<const float*>(memory + params_[i].offset);
    const int64_t stride = partial_bytes_ / SizeOf(DType::kF32);
    float* sum = static_cast<float*>(out[i]);
    const auto sum_rows = add ? sum_rows_.add : sum_rows_.sum;
    params_[i].sum.Run(threads, [&](int64_t begin, int64_t end) {
      sum_rows(parts + begin, chunks_, end - begin, stride, sum + begin);
    });
  }
}

void NormPartialGradients::ZeroSums(void* const* out) const {
  for (size_t i = 0; i < params_.size(); ++i) {
    std::memset(out[i], 0, static_cast<size_t>(params_[i].n) * sizeof(float));
  }
}

}  // namespace plumb
