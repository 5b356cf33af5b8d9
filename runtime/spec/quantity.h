// SPDX-License-Identifier: Apache-2.0
// Quantity: value of an expression: a number, or a sum of tensors that is not emitted yet. Internal
// to the walk of spec/interpret.h.
#ifndef PLUMB_RUNTIME_SPEC_QUANTITY_H_
#define PLUMB_RUNTIME_SPEC_QUANTITY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/spec/formula_backend.h"

namespace plumb {

// Sums are lazy, so that "alpha * x + f(x)" reaches the backend as one Combine.
struct Quantity {
  // Kind of value. A result has the highest level and the greatest width of its operands.
  enum class Level {
    kNumber,  // known when the model is loaded
    kVector,  // [width], the same for each token: learned, or the training step
    kToken    // [batch, seq, width]
  };
  Level level = Level::kNumber;
  double constant = 0;  // the number, or the sum's constant
  std::vector<Term> terms;
  int64_t width = 1;

  bool is_number() const { return level == Level::kNumber; }
  bool is_token() const { return level == Level::kToken; }

  static Quantity Number(double value);
  static Quantity Tensor(TensorHandle tensor, int64_t width, Level level = Level::kToken);
};

// Returns "a number", "a learned scalar", "learned [8]" or "a tensor [batch, seq, 8]".
std::string TypeName(const Quantity& quantity);

struct Variable {
  Quantity value;
  bool read = false;
  int32_t setting = -1;  // index in Settings; -1: set by the walk, not by a statement
};
using Variables = std::map<std::string, Variable>;

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_QUANTITY_H_
