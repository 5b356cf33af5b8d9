// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/op_cases.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace plumb {

CaseInput Random(Shape shape, double low, double high) {
  CaseInput input;
  input.type = F32(std::move(shape));
  input.low = low;
  input.high = high;
  return input;
}

CaseInput RandomBf16(Shape shape, double low, double high) {
  CaseInput input = Random(std::move(shape), low, high);
  input.type.dtype = DType::kBF16;
  return input;
}

OpCase InBf16(OpCase c, const std::vector<size_t>& inputs) {
  for (const size_t i : inputs) {
    if (i < c.inputs.size() && !c.inputs[i].absent) c.inputs[i].type.dtype = DType::kBF16;
  }
  c.name = absl::StrCat(c.name, " bf16");
  return c;
}

CaseInput Values(Shape shape, std::vector<double> values) {
  CaseInput input;
  input.type = F32(std::move(shape));
  input.values = std::move(values);
  return input;
}

CaseInput Ints(Shape shape, std::vector<int32_t> ints) {
  CaseInput input;
  input.type = I32(std::move(shape));
  input.ints = std::move(ints);
  return input;
}

CaseInput Absent() {
  CaseInput input;
  input.absent = true;
  return input;
}

}  // namespace plumb
