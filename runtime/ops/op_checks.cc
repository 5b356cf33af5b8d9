#include "runtime/ops/op_checks.h"

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

absl::Status CheckTensor(const OpTypes& types, size_t i, absl::string_view name, DType dtype) {
  if (!types.has(i)) return absl::InvalidArgumentError(absl::StrCat(name, " is missing"));
  const TensorType& type = types.in(i);
  if (type.dtype != dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be ", DTypeName(dtype), " and is ", DTypeName(type.dtype)));
  }
  if (type.shape.rank() < 1 || type.num_elements() < 1) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is empty: ", type.ToString()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckF32(const OpTypes& types, size_t i, absl::string_view name) {
  return CheckTensor(types, i, name, DType::kF32);
}

absl::Status CheckI32(const OpTypes& types, size_t i, absl::string_view name) {
  return CheckTensor(types, i, name, DType::kI32);
}

absl::Status CheckAlike(const OpTypes& types, size_t i, absl::string_view name_i, size_t j,
                        absl::string_view name_j) {
  if (types.in(i) == types.in(j)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name_i, " and ", name_j, " must be alike; they are ", types.in(i).ToString(),
                   " and ", types.in(j).ToString()));
}

}  // namespace plumb
