// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/checkpoint/trainer_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/formats/safetensors.h"

namespace plumb {
namespace {

std::vector<api::TensorView<float>> TensorsOf(api::Trainer* trainer, api::State state) {
  std::vector<api::TensorView<float>> tensors;
  for (;;) {  // until there are no more
    const auto tensor = trainer->StateTensor(state, tensors.size());
    if (!tensor.ok()) return tensors;
    tensors.push_back(*tensor);
  }
}

Shape ShapeOf(const api::TensorView<float>& tensor) {
  return Shape(absl::MakeConstSpan(tensor.shape.data(), static_cast<size_t>(tensor.rank)));
}

// Copies in blocks, since a tensor in the file need not be aligned.
absl::Status ReadInBlocks(const TensorEntry& from, api::Trainer* trainer, api::State state,
                          size_t i) {
  constexpr int64_t kBlock = int64_t{1} << 18;  // a megabyte of floats
  const int64_t all = from.shape.num_elements();
  std::vector<float> block(static_cast<size_t>(std::min(all, kBlock)));
  for (int64_t begin = 0; begin < all; begin += kBlock) {
    const auto n = static_cast<size_t>(std::min(kBlock, all - begin));
    std::memcpy(block.data(), from.data.data() + begin * SizeOf(DType::kF32), n * sizeof(float));
    PLUMB_RETURN_IF_ERROR(ToStatus(trainer->WriteState(state, i, begin, {block.data(), n})));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<TensorToWrite> StateTensors(api::Trainer* trainer, api::State state) {
  std::vector<TensorToWrite> tensors;
  for (const api::TensorView<float>& tensor : TensorsOf(trainer, state)) {
    const size_t i = tensors.size();
    tensors.push_back({std::string(tensor.name), F32(ShapeOf(tensor)), tensor.data.data()});
    if (tensor.data.data() != nullptr) continue;
    tensors[i].copy = [trainer, state, i](int64_t begin, int64_t n, void* to) {
      const api::Span<float> block(static_cast<float*>(to), static_cast<size_t>(n));
      const bool is_read = trainer->ReadState(state, i, begin, block).ok();
      PLUMB_CHECK(is_read, "the elements of the trainer's tensors can be read");
    };
  }
  return tensors;
}

absl::Status ReadState(const SafetensorsFile& file, api::Trainer* trainer, api::State state) {
  const std::vector<api::TensorView<float>> tensors = TensorsOf(trainer, state);
  std::vector<WantedTensor> wanted;
  for (const auto& tensor : tensors) wanted.push_back({std::string(tensor.name), ShapeOf(tensor)});
  PLUMB_RETURN_IF_ERROR(
      CheckTensorsFit(file, wanted, /*prefix=*/"",
                      state == api::State::kOptimizer ? kOptimizerOfTheRecipe : "the model"));
  for (size_t i = 0; i < tensors.size(); ++i) {
    PLUMB_RETURN_IF_ERROR(ReadInBlocks(*file.Find(wanted[i].name), trainer, state, i));
  }
  return absl::OkStatus();
}

}  // namespace plumb
