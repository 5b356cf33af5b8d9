// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/op_operands.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace plumb {

std::string LeafName(size_t i) { return absl::StrCat("in", i); }

std::map<std::string, ReferenceTensor> NamedLeaves(const std::vector<ReferenceTensor>& inputs) {
  std::map<std::string, ReferenceTensor> leaves;
  for (size_t i = 0; i < inputs.size(); ++i) leaves[LeafName(i)] = inputs[i];
  return leaves;
}

ReferenceTensor Zeros(const TensorType& type) {
  ReferenceTensor tensor;
  tensor.type = type;
  const size_t n = static_cast<size_t>(type.num_elements());
  (IsFloating(type.dtype) ? tensor.f.resize(n) : tensor.i.resize(n));
  return tensor;
}

bool Identical(const ReferenceTensor& a, const ReferenceTensor& b) {
  return a.type == b.type && a.i == b.i && a.f.size() == b.f.size() &&
         (a.f.empty() || std::memcmp(a.f.data(), b.f.data(), a.f.size() * sizeof(double)) == 0);
}

bool IsUpdated(const OpDef& op, size_t i) {
  return std::any_of(op.updates.begin(), op.updates.end(),
                     [i](const auto& update) { return update.second == static_cast<int>(i); });
}

}  // namespace plumb
