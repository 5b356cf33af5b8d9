// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/tensor_type.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace plumb {

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kI32:
      return "i32";
    case DType::kBF16:
      return "bf16";
    case DType::kI8:
      break;
  }
  return "i8";
}

int64_t Shape::num_elements() const {
  int64_t n = 1;
  for (int64_t dim : dims_) n *= dim;
  return n;
}

Shape Shape::WithLast(int64_t last) const {
  Shape shape = *this;
  if (shape.dims_.empty()) shape.dims_.push_back(last);
  shape.dims_.back() = last;
  return shape;
}

std::string Shape::ToString() const { return absl::StrCat("[", absl::StrJoin(dims_, ", "), "]"); }

std::string TensorType::ToString() const {
  return absl::StrCat(DTypeName(dtype), shape.ToString());
}

}  // namespace plumb
