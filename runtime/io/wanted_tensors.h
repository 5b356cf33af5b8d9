// Whether a safetensors file has the tensors of a model. A pure function.
#ifndef PLUMB_RUNTIME_IO_WANTED_TENSORS_H_
#define PLUMB_RUNTIME_IO_WANTED_TENSORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/tensor_type.h"
#include "runtime/io/safetensors.h"

namespace plumb {

struct WantedTensor {
  std::string name;
  Shape shape;  // of f32
};

// kInvalidArgument that lists whole what is missing, misshapen, or surplus: of the names in the
// file that begin with `prefix`.
absl::Status CheckTensorsFit(const SafetensorsFile& file, absl::Span<const WantedTensor> wanted,
                             absl::string_view prefix);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_IO_WANTED_TENSORS_H_
