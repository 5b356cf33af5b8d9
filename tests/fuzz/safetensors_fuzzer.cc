// SPDX-License-Identifier: Apache-2.0
// Fuzzes files of tensors: every byte of every tensor can be read, and a written copy reads the
// same.
#include <map>

#include "runtime/base/check.h"
#include "runtime/formats/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

// Returns true and the type if plumb writes tensors of this dtype.
bool IsWritten(const std::string& dtype, DType* type) {
  if (dtype == "F32")
    *type = DType::kF32;
  else if (dtype == "I32")
    *type = DType::kI32;
  else
    return false;
  return true;
}

PLUMB_FUZZER(safetensors) {
  const MemoryFile memory(AsText(data, size));
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(memory.path());
  if (!file.ok()) {
    PLUMB_CHECK(!file.status().message().empty(), "an error without words");
    return;
  }
  uint32_t sum = 0;
  for (const TensorEntry& tensor : file->tensors()) {
    PLUMB_CHECK(file->Find(tensor.name) == &tensor, "a tensor is not found by its name");
    for (const char c : tensor.data) sum += static_cast<unsigned char>(c);
    DType dtype;
    if (!IsWritten(tensor.dtype, &dtype)) continue;
    const TensorType type{dtype, tensor.shape};
    PLUMB_CHECK(type.bytes() == static_cast<int64_t>(tensor.data.size()), "a tensor's size");
    std::string copy(tensor.data.size() + 1, '\0');
    PLUMB_CHECK(file->Read(tensor.name, type, copy.data()).ok(), "a tensor cannot be read");
    const TensorToWrite written{tensor.name, type, copy.data()};
    const auto image = SafetensorsImage::Create(absl::MakeConstSpan(&written, 1), {});
    if (!image.ok()) continue;  // plumb does not write this name
    std::string bytes;
    PLUMB_CHECK(image
                    ->Produce([&](absl::string_view piece) {
                      bytes.append(piece.data(), piece.size());
                      return absl::OkStatus();
                    })
                    .ok(),
                "a tensor cannot be written");
    const MemoryFile again(bytes);
    const auto reread = SafetensorsFile::Open(again.path());
    PLUMB_CHECK(reread.ok() && reread->Find(tensor.name) != nullptr &&
                    reread->Find(tensor.name)->data == tensor.data,
                "a tensor comes back otherwise");
  }
  static_cast<void>(sum);
}

}  // namespace
}  // namespace plumb
