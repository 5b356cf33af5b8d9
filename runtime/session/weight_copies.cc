#include "runtime/session/weight_copies.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/float_mode.h"
#include "runtime/base/status.h"
#include "runtime/kernels/simd/split_f32.h"
#include "runtime/kernels/gemv/quantize.h"

namespace plumb {

WeightCopies::WeightCopies(const ModelContext& context, WeightFormat format,
                           const ParameterStore& parameters, int threads)
    : format_(format), parameters_(&parameters), threads_(threads) {
  const std::vector<ParameterLayout::Entry>& entries = parameters.layout().entries;
  PLUMB_CHECK(entries.size() == context.parameters.size(), "the store is of another model");
  int64_t bytes = 0;
  const auto place = [&bytes](int64_t n) {
    const int64_t begin = bytes;
    bytes += AlignUp(n);
    return begin;
  };
  for (size_t i = 0; i < entries.size(); ++i) {
    const ParameterSpec& parameter = context.parameters[i];
    const DType dtype = StoredDType(parameter, format);
    const int64_t size = dtype == DType::kI8 ? Int8Elements(parameter.shape).bytes()
                                             : parameter.shape.num_elements() * SizeOf(dtype);
    if (parameter.is_matrix()) matrix_bytes_ += size;
    if (dtype == (parameters.is_split(i) ? DType::kBF16 : DType::kF32)) {
      in_place_.push_back(i);
      continue;
    }
    Copy copy{i, dtype, parameter.shape.rows(), parameter.shape.last(), place(size), 0};
    if (dtype == DType::kI8) {
      const int64_t scales = Int8Scales(parameter.shape).bytes();
      copy.scales_begin = place(scales);
      matrix_bytes_ += scales;
    }
    copies_.push_back(copy);
  }
  buffer_ = AlignedBuffer(bytes);
  Refresh();
}

void WeightCopies::Refresh() {
  const ScopedNoDenormals no_denormals;  // the same copies whatever the caller's mode
  for (const Copy& copy : copies_) {
    std::byte* const to = buffer_.data() + copy.begin;
    const int64_t n = copy.rows * copy.width;
    switch (copy.dtype) {
      case DType::kF32:
        JoinFloats(parameters_->split(copy.entry), n, threads_, reinterpret_cast<float*>(to));
        break;
      case DType::kBF16:
        HighBf16(parameters_->floats(copy.entry), n, threads_, reinterpret_cast<uint16_t*>(to));
        break;
      default:
        RefreshInt8(copy);
    }
  }
}

void WeightCopies::RefreshInt8(const Copy& copy) {
  auto* to = reinterpret_cast<int8_t*>(buffer_.data() + copy.begin);
  auto* scales = reinterpret_cast<float*>(buffer_.data() + copy.scales_begin);
  if (!parameters_->is_split(copy.entry)) {
    QuantizeInt8(parameters_->floats(copy.entry), copy.rows, copy.width, threads_, to, scales);
    return;
  }
  constexpr int64_t kElements = int64_t{1} << 18;
  const int64_t blocks = std::max<int64_t>(1, kElements / copy.width / kInt8TileRows);
  const int64_t at_once = std::min(copy.rows, blocks * kInt8TileRows);
  const AlignedBuffer floats(at_once * copy.width * SizeOf(DType::kF32));
  for (int64_t row = 0; row < copy.rows; row += at_once) {
    const int64_t rows = std::min(at_once, copy.rows - row);
    parameters_->Read(copy.entry, row * copy.width, rows * copy.width, floats.as<float>());
    const int64_t tile = row / kInt8TileRows * Int8Groups(copy.width);
    QuantizeInt8(floats.as<float>(), rows, copy.width, threads_, to + tile * kInt8TileElements,
                 scales + tile * kInt8TileRows);
  }
}

absl::Status WeightCopies::BindWeights(Executable* executable) const {
  const ParameterLayout& layout = parameters_->layout();
  for (const size_t i : in_place_) {
    void* const weight = parameters_->is_split(i) ? static_cast<void*>(parameters_->split(i).high)
                                                  : parameters_->floats(i);
    PLUMB_RETURN_IF_ERROR(executable->Bind(layout.entries[i].name, weight));
  }
  for (const Copy& copy : copies_) {
    const std::string& name = layout.entries[copy.entry].name;
    PLUMB_RETURN_IF_ERROR(executable->Bind(name, buffer_.data() + copy.begin));
    if (copy.dtype != DType::kI8) continue;
    PLUMB_RETURN_IF_ERROR(executable->Bind(ScalesName(name), buffer_.data() + copy.scales_begin));
  }
  return absl::OkStatus();
}

absl::Status WeightCopies::Bind(Executable* executable) const {
  PLUMB_RETURN_IF_ERROR(BindWeights(executable));
  return parameters_->states().Bind(parameters_->state_data(), executable);
}

}  // namespace plumb
