// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/op_checks.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/kernels/gemv/quantize.h"

namespace plumb {

namespace {

absl::Status CheckTensor(const OpTypes& types, size_t i, absl::string_view name, bool dtype_fits,
                         absl::string_view wanted) {
  if (!types.has(i)) return absl::InvalidArgumentError(absl::StrCat(name, " is missing"));
  const TensorType& type = types.in(i);
  if (!dtype_fits) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be ", wanted, " and is ", DTypeName(type.dtype)));
  }
  if (type.shape.rank() < 1 || type.num_elements() < 1) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is empty: ", type.ToString()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckF32(const OpTypes& types, size_t i, absl::string_view name) {
  return CheckTensor(types, i, name, types.has(i) && types.in(i).dtype == DType::kF32, "f32");
}

absl::Status CheckI32(const OpTypes& types, size_t i, absl::string_view name) {
  return CheckTensor(types, i, name, types.has(i) && types.in(i).dtype == DType::kI32, "i32");
}

absl::Status CheckFloat(const OpTypes& types, size_t i, absl::string_view name) {
  return CheckTensor(types, i, name, types.has(i) && IsFloating(types.in(i).dtype), "f32 or bf16");
}

absl::Status CheckInt8Matrix(const OpTypes& types, size_t i, absl::string_view name, int64_t rows,
                             int64_t width) {
  PLUMB_RETURN_IF_ERROR(
      CheckTensor(types, i, name, types.has(i) && types.in(i).dtype == DType::kI8, "i8"));
  PLUMB_RETURN_IF_ERROR(CheckF32(types, i + 1, "scales"));
  const Shape matrix = {rows, width};
  const auto check = [&](const TensorType& type, const TensorType& wanted,
                         absl::string_view what) -> absl::Status {
    if (type == wanted) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(what, " of a matrix ", matrix.ToString(),
                                                   " must be ", wanted.ToString(), ", not ",
                                                   type.ToString()));
  };
  PLUMB_RETURN_IF_ERROR(check(types.in(i), Int8Elements(matrix), name));
  return check(types.in(i + 1), Int8Scales(matrix), "scales");
}

std::vector<const TensorType*> GetTypes(const ReferenceArgs& args) {
  std::vector<const TensorType*> types;
  for (const ReferenceTensor* in : args.inputs)
    types.push_back(in == nullptr ? nullptr : &in->type);
  return types;
}

absl::Status CheckMatching(const OpTypes& types, size_t i, absl::string_view name_i, size_t j,
                           absl::string_view name_j) {
  if (types.in(i) == types.in(j)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name_i, " and ", name_j, " must have the same type; they are ",
                   types.in(i).ToString(), " and ", types.in(j).ToString()));
}

int64_t RowOffset(const Attrs& attrs) { return attrs.Has("offset") ? attrs.GetInt("offset") : 0; }

absl::Status CheckRowOffset(const Attrs& attrs, int64_t rows) {
  const int64_t offset = RowOffset(attrs);
  if (offset >= 0 && offset < rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("offset = ", offset, " is not in 0..", rows - 1, ", the rows of the table"));
}

absl::Status CheckIds(const int32_t* ids, int64_t n, int64_t rows) {
  for (int64_t t = 0; t < n; ++t) {
    if (ids[t] < 0 || ids[t] >= rows) {
      return absl::InvalidArgumentError(absl::StrCat("token ", ids[t], " at position ", t,
                                                     " is outside the vocabulary [0, ", rows, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPositions(const int32_t* positions, int64_t batch, int64_t tokens,
                            int64_t capacity) {
  for (int64_t row = 0; row < batch; ++row) {
    const int32_t* at = positions + row * tokens;
    for (int64_t t = 0; t < tokens; ++t) {
      if (at[t] < 0 || at[t] >= capacity) {
        return absl::OutOfRangeError(absl::StrCat("position ", at[t], " of row ", row,
                                                  " is outside the cache, which holds ", capacity,
                                                  " tokens"));
      }
      if (at[t] != at[0] + t) {
        return absl::InvalidArgumentError(absl::StrCat("position ", at[t], " of row ", row,
                                                       " does not follow position ", at[t - 1]));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb
