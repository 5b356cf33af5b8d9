#include "runtime/tools/trainer_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/io/safetensors.h"
#include "runtime/tools/handles.h"

namespace plumb {
namespace {

std::vector<plumb_tensor> TensorsOf(const plumb_trainer* trainer, int32_t kind) {
  std::vector<plumb_tensor> tensors;
  auto tensor = Sized<plumb_tensor>();
  // Until there are no more.
  while (plumb_trainer_state(trainer, kind, tensors.size(), &tensor, nullptr) == PLUMB_OK) {
    tensors.push_back(tensor);
  }
  return tensors;
}

Shape ShapeOf(const plumb_tensor& tensor) {
  return Shape(absl::MakeConstSpan(tensor.shape, static_cast<size_t>(tensor.rank)));
}

// Of the file, which may hold them at any address.
absl::Status ReadInBlocks(const TensorEntry& from, plumb_trainer* trainer, int32_t kind, size_t i) {
  constexpr int64_t kBlock = int64_t{1} << 18;  // a megabyte of floats
  const int64_t all = from.shape.num_elements();
  std::vector<float> block(static_cast<size_t>(std::min(all, kBlock)));
  for (int64_t begin = 0; begin < all; begin += kBlock) {
    const int64_t n = std::min(kBlock, all - begin);
    std::memcpy(block.data(), from.data.data() + begin * SizeOf(DType::kF32),
                static_cast<size_t>(n * SizeOf(DType::kF32)));
    PLUMB_RETURN_IF_ERROR(
        CallPlumb(plumb_trainer_write_state, trainer, kind, i, begin, n, block.data()));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<TensorToWrite> StateTensors(const plumb_trainer* trainer, int32_t kind) {
  std::vector<TensorToWrite> tensors;
  for (const plumb_tensor& tensor : TensorsOf(trainer, kind)) {
    tensors.push_back({tensor.name, F32(ShapeOf(tensor)), tensor.data});
    if (tensor.data != nullptr) continue;
    const size_t i = tensors.size() - 1;
    tensors[i].copy = [trainer, kind, i](int64_t begin, int64_t n, void* to) {
      const plumb_status status =
          plumb_trainer_read_state(trainer, kind, i, begin, n, static_cast<float*>(to), nullptr);
      if (status == PLUMB_OK) return;
      std::fill_n(static_cast<float*>(to), n, 0.0f);  // CheckStatesWereHere says why
    };
  }
  return tensors;
}

absl::Status CheckStatesWereHere(const plumb_trainer* trainer) {
  const std::vector<plumb_tensor> tensors = TensorsOf(trainer, PLUMB_STATE_OPTIMIZER);
  float nothing;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].data != nullptr) continue;
    return CallPlumb(plumb_trainer_read_state, trainer, PLUMB_STATE_OPTIMIZER, i, 0, 0, &nothing);
  }
  return absl::OkStatus();
}

absl::Status ReadState(const SafetensorsFile& file, plumb_trainer* trainer, int32_t kind) {
  const std::vector<plumb_tensor> tensors = TensorsOf(trainer, kind);
  std::vector<WantedTensor> wanted;
  for (const plumb_tensor& tensor : tensors) wanted.push_back({tensor.name, ShapeOf(tensor)});
  PLUMB_RETURN_IF_ERROR(CheckTensorsFit(file, wanted, /*prefix=*/""));
  for (size_t i = 0; i < tensors.size(); ++i) {
    PLUMB_RETURN_IF_ERROR(ReadInBlocks(*file.Find(wanted[i].name), trainer, kind, i));
  }
  return absl::OkStatus();
}

}  // namespace plumb
