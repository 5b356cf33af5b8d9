// SPDX-License-Identifier: Apache-2.0
// DType, Shape and TensorType: the description of a tensor without its data. Values: they copy,
// compare and print.
#ifndef PLUMB_RUNTIME_BASE_TENSOR_TYPE_H_
#define PLUMB_RUNTIME_BASE_TENSOR_TYPE_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace plumb {

// kBF16 is the upper half of an f32, rounded to nearest even (runtime/base/bf16.h). kI8 is for
// quantized weights only.
enum class DType { kF32, kI32, kBF16, kI8 };

inline constexpr int64_t SizeOf(DType dtype) {
  return dtype == DType::kI8 ? 1 : dtype == DType::kBF16 ? 2 : 4;
}
inline constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16;
}
const char* DTypeName(DType dtype);  // "f32", "i32", "bf16", "i8"

// Row-major dimensions, outermost first. Every tensor in plumb is dense.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(absl::Span<const int64_t> dims) : dims_(dims.begin(), dims.end()) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  absl::Span<const int64_t> dims() const { return dims_; }

  int64_t num_elements() const;  // 1 for rank 0
  int64_t last() const { return dims_.empty() ? 1 : dims_.back(); }
  // Product of all dimensions but the last; 0 if the last is 0.
  int64_t rows() const { return last() == 0 ? 0 : num_elements() / last(); }
  // Returns the same shape with another last dimension.
  Shape WithLast(int64_t last) const;

  std::string ToString() const;  // "[2, 16]"

  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend bool operator!=(const Shape& a, const Shape& b) { return !(a == b); }

 private:
  absl::InlinedVector<int64_t, 4> dims_;
};

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  int64_t num_elements() const { return shape.num_elements(); }
  int64_t bytes() const { return num_elements() * SizeOf(dtype); }
  std::string ToString() const;  // "f32[2, 16]"

  friend bool operator==(const TensorType& a, const TensorType& b) {
    return a.dtype == b.dtype && a.shape == b.shape;
  }
  friend bool operator!=(const TensorType& a, const TensorType& b) { return !(a == b); }
};

inline TensorType F32(Shape shape) { return {DType::kF32, std::move(shape)}; }
inline TensorType I32(Shape shape) { return {DType::kI32, std::move(shape)}; }
inline TensorType BF16(Shape shape) { return {DType::kBF16, std::move(shape)}; }
inline TensorType I8(Shape shape) { return {DType::kI8, std::move(shape)}; }

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_TENSOR_TYPE_H_
