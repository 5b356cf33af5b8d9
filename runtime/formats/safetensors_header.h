// SPDX-License-Identifier: Apache-2.0
// JSON header of a safetensors file: text to checked values and back. Internal to this module.
#ifndef PLUMB_RUNTIME_FORMATS_SAFETENSORS_HEADER_H_
#define PLUMB_RUNTIME_FORMATS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

// Limit of the reference implementation.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsHeader {
  struct Tensor {
    std::string name;
    std::string dtype;
    Shape shape;
    int64_t begin = 0;  // offsets of the data, in bytes from the end of the header
    int64_t end = 0;
  };
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Parses a header and checks all of it against `data_bytes`, the number of bytes after the header.
// Returns the tensors in the order of their data, which they cover exactly: without holes,
// overlaps, or a remainder.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes);

// Returns the header as text, tensors in the given order, padded with spaces so that 8 + its size
// is a multiple of `alignment`. Requires: names and metadata are UTF-8.
std::string FormatSafetensorsHeader(const SafetensorsHeader& header, size_t alignment);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_SAFETENSORS_HEADER_H_
