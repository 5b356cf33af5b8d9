// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/packed_weights.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/float_mode.h"
#include "runtime/base/status.h"
#include "runtime/kernels/gemv/quantize.h"
#include "runtime/kernels/simd/split_f32.h"

namespace plumb {

PackedWeights::PackedWeights(const ModelContext& context, WeightFormat format,
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
      in_place_.push_back({i, nullptr});
      continue;
    }
    if (uint16_t* const narrow = parameters.narrow_bf16(i);
        narrow != nullptr && dtype == DType::kBF16) {
      in_place_.push_back({i, narrow});
      continue;
    }
    const Shape one = parameter.one();
    Packed packed{i, dtype, parameter.count(), one.rows(), one.last(), place(size), 0};
    if (dtype == DType::kI8) {
      const int64_t scales = Int8Scales(parameter.shape).bytes();
      packed.scales_begin = place(scales);
      matrix_bytes_ += scales;
    }
    packed_.push_back(packed);
  }
  buffer_ = AlignedBuffer(bytes);
  Refresh();
}

void PackedWeights::Refresh() {
  const ScopedNoDenormals no_denormals;  // the same bits in any floating-point mode
  for (const InPlace& weight : in_place_) {
    if (weight.narrow != nullptr) parameters_->RenewNarrow(weight.entry);
  }
  for (const Packed& packed : packed_) {
    std::byte* const to = buffer_.data() + packed.begin;
    const int64_t n = packed.matrices * packed.rows * packed.width;
    switch (packed.dtype) {
      case DType::kF32:
        JoinFloats(parameters_->split(packed.entry), n, threads_, reinterpret_cast<float*>(to));
        break;
      case DType::kBF16:
        HighBf16(parameters_->floats(packed.entry), n, threads_, reinterpret_cast<uint16_t*>(to));
        break;
      default:
        for (int64_t i = 0; i < packed.matrices; ++i) RefreshInt8(packed, i);
    }
  }
}

void PackedWeights::RefreshInt8(const Packed& packed, int64_t matrix) {
  const int64_t groups = Int8Groups(packed.width), first = matrix * packed.rows * packed.width;
  const int64_t first_tile = matrix * Int8Blocks(packed.rows) * groups;
  auto* to =
      reinterpret_cast<int8_t*>(buffer_.data() + packed.begin) + first_tile * kInt8TileElements;
  auto* scales =
      reinterpret_cast<float*>(buffer_.data() + packed.scales_begin) + first_tile * kInt8TileRows;
  if (!parameters_->is_split(packed.entry) && !parameters_->is_narrow(packed.entry)) {
    QuantizeInt8(parameters_->floats(packed.entry) + first, packed.rows, packed.width, threads_, to,
                 scales);
    return;
  }
  constexpr int64_t kElements = int64_t{1} << 18;
  const int64_t blocks = std::max<int64_t>(1, kElements / packed.width / kInt8TileRows);
  const int64_t at_once = std::min(packed.rows, blocks * kInt8TileRows);
  const AlignedBuffer floats(at_once * packed.width * SizeOf(DType::kF32));
  for (int64_t row = 0; row < packed.rows; row += at_once) {
    const int64_t rows = std::min(at_once, packed.rows - row);
    parameters_->Read(packed.entry, first + row * packed.width, rows * packed.width,
                      floats.as<float>());
    const int64_t tile = row / kInt8TileRows * groups;
    QuantizeInt8(floats.as<float>(), rows, packed.width, threads_, to + tile * kInt8TileElements,
                 scales + tile * kInt8TileRows);
  }
}

absl::Status PackedWeights::BindWeights(Executable* executable) const {
  const ParameterLayout& layout = parameters_->layout();
  for (const auto& [i, narrow] : in_place_) {
    void* const weight = narrow != nullptr          ? static_cast<void*>(narrow)
                         : parameters_->is_split(i) ? static_cast<void*>(parameters_->split(i).high)
                                                    : parameters_->floats(i);
    PLUMB_RETURN_IF_ERROR(executable->Bind(layout.entries[i].name, weight));
  }
  for (const Packed& packed : packed_) {
    const std::string& name = layout.entries[packed.entry].name;
    PLUMB_RETURN_IF_ERROR(executable->Bind(name, buffer_.data() + packed.begin));
    if (packed.dtype != DType::kI8) continue;
    PLUMB_RETURN_IF_ERROR(executable->Bind(ScalesName(name), buffer_.data() + packed.scales_begin));
  }
  return absl::OkStatus();
}

absl::Status PackedWeights::Bind(Executable* executable) const {
  PLUMB_RETURN_IF_ERROR(BindWeights(executable));
  return parameters_->states().Bind(parameters_->state_data(), executable);
}

}  // namespace plumb
