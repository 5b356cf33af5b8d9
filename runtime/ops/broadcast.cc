// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/broadcast.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

bool HasRows(const TensorType& type) { return type.shape.rank() > 1; }

bool SameRows(const TensorType& a, const TensorType& b) {
  const auto leading = [](const TensorType& t) {
    return t.shape.dims().first(static_cast<size_t>(t.shape.rank() - 1));
  };
  return a.dtype == b.dtype && leading(a) == leading(b);
}

}  // namespace

absl::StatusOr<TensorType> BroadcastType(absl::Span<const TensorType* const> operands) {
  const TensorType* rows = nullptr;
  const TensorType* widest = nullptr;
  for (const TensorType* operand : operands) {
    if (operand == nullptr) continue;
    if (!IsFloating(operand->dtype) || operand->shape.rank() < 1 || operand->num_elements() < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("an operand is ", operand->ToString(), ", must be floats with channels"));
    }
    if (!HasRows(*operand) && operand->dtype != DType::kF32) {
      return absl::InvalidArgumentError(
          absl::StrCat("an operand is ", operand->ToString(), "; a vector must be f32"));
    }
    if (widest == nullptr || operand->shape.last() > widest->shape.last()) widest = operand;
    if (!HasRows(*operand)) continue;
    if (rows != nullptr && !SameRows(*rows, *operand)) {
      return absl::InvalidArgumentError(absl::StrCat("operands ", rows->ToString(), " and ",
                                                     operand->ToString(), " differ in their rows"));
    }
    rows = operand;
  }
  if (widest == nullptr) return absl::InvalidArgumentError("there is no operand");
  const int64_t d = widest->shape.last();
  for (const TensorType* operand : operands) {
    if (operand == nullptr || d % operand->shape.last() == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("an operand is ", operand->ToString(), ", whose width must divide ", d));
  }
  if (rows == nullptr) return *widest;
  std::vector<int64_t> dims(rows->shape.dims().begin(), rows->shape.dims().end());
  dims.back() = d;
  TensorType type = *rows;
  type.shape = Shape(dims);
  return type;
}

BroadcastOperand::BroadcastOperand(const TensorType& type, int64_t d)
    : row_stride(HasRows(type) ? type.shape.last() : 0),
      group(d / type.shape.last()),
      bf16(type.dtype == DType::kBF16) {}

std::vector<size_t> InputsWithRows(const OpTypes& types) {
  std::vector<size_t> inputs;
  for (size_t i = 0; i < types.inputs.size(); ++i) {
    if (types.has(i) && HasRows(types.in(i))) inputs.push_back(i);
  }
  return inputs;
}

ValueId ReduceTo(GraphBuilder& b, const TensorType& type, ValueId dy, ValueId other) {
  if (b.type(dy) == type) return other == kNoValue ? dy : b.Apply("mul", {dy, other});
  const Attrs attrs({{"size", type.shape.last()}});
  if (HasRows(type)) return b.Apply("row_dot", {dy, other}, attrs);
  return b.Apply("mul_reduce", {dy, other}, attrs);
}

}  // namespace plumb
