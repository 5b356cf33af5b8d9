// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/quantity.h"

#include "absl/strings/str_cat.h"

namespace plumb {

Quantity Quantity::Number(double value) {
  Quantity q;
  q.constant = value;
  return q;
}

Quantity Quantity::Tensor(TensorHandle tensor, int64_t width, Level level) {
  Quantity q;
  q.level = level;
  q.terms.push_back({1.0, tensor});
  q.width = width;
  return q;
}

std::string TypeName(const Quantity& q) {
  if (q.is_number()) return "a number";
  if (q.is_token()) return absl::StrCat("a tensor [batch, seq, ", q.width, "]");
  return q.width == 1 ? "a learned scalar" : absl::StrCat("learned [", q.width, "]");
}

}  // namespace plumb
