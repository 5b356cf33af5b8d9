#include "runtime/session/weight_copies.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/ops/quantize.h"

namespace plumb {

WeightCopies::WeightCopies(const ModelContext& context, WeightFormat format,
                           const ParameterStore& parameters, int threads)
    : format_(format), parameters_(&parameters), threads_(threads) {
  const std::vector<ParameterLayout::Entry>& entries = parameters.layout().entries;
  PLUMB_CHECK(entries.size() == context.parameters.size(), "the store is of another model");
  int64_t int8_bytes = 0, scale_bytes = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const ParameterSpec& parameter = context.parameters[i];
    const DType dtype = StoredDType(parameter, format);
    const int64_t elements = parameter.shape.num_elements();
    if (parameter.is_matrix()) matrix_bytes_ += elements * SizeOf(dtype);
    if (dtype == DType::kF32) {
      in_place_.push_back(i);
      continue;
    }
    Copy copy{i, parameter.shape.rows(), parameter.shape.last(), 0, 0};
    if (dtype == DType::kI8) {
      const int64_t bytes = copy.rows * Int8Groups(copy.width) * SizeOf(DType::kF32);
      copy.begin = int8_bytes;
      copy.scales_begin = scale_bytes / SizeOf(DType::kF32);
      int8_bytes += AlignUp(elements);
      scale_bytes += AlignUp(bytes);
      matrix_bytes_ += bytes;
    }
    copies_.push_back(copy);
  }
  if (format == WeightFormat::kBf16) {
    bf16_ = AlignedBuffer(parameters.layout().size * SizeOf(DType::kBF16));
  }
  int8_ = AlignedBuffer(int8_bytes);
  scales_ = AlignedBuffer(scale_bytes);
  Refresh();
}

void WeightCopies::Refresh() {
  for (const Copy& copy : copies_) {
    const int64_t begin = parameters_->layout().entries[copy.entry].begin;
    const float* from = parameters_->data() + begin;
    if (format_ == WeightFormat::kBf16) {
      RoundToBf16(from, copy.rows * copy.width, threads_, bf16_data() + begin);
    } else {
      QuantizeInt8(from, copy.rows, copy.width, threads_, int8_.as<int8_t>() + copy.begin,
                   scales_.as<float>() + copy.scales_begin);
    }
  }
}

absl::Status WeightCopies::BindWeights(Executable* executable) const {
  const ParameterLayout& layout = parameters_->layout();
  for (const size_t i : in_place_) {
    const ParameterLayout::Entry& entry = layout.entries[i];
    PLUMB_RETURN_IF_ERROR(executable->Bind(entry.name, parameters_->data() + entry.begin));
  }
  for (const Copy& copy : copies_) {
    const ParameterLayout::Entry& entry = layout.entries[copy.entry];
    if (format_ == WeightFormat::kBf16) {
      PLUMB_RETURN_IF_ERROR(executable->Bind(entry.name, bf16_data() + entry.begin));
      continue;
    }
    PLUMB_RETURN_IF_ERROR(executable->Bind(entry.name, int8_.as<int8_t>() + copy.begin));
    PLUMB_RETURN_IF_ERROR(
        executable->Bind(ScalesName(entry.name), scales_.as<float>() + copy.scales_begin));
  }
  return absl::OkStatus();
}

absl::Status WeightCopies::Bind(Executable* executable) const {
  PLUMB_RETURN_IF_ERROR(BindWeights(executable));
  return parameters_->states().Bind(parameters_->state_data(), executable);
}

}  // namespace plumb
