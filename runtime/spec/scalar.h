// SPDX-License-Identifier: Apache-2.0
// Scalars of the formula language: what is folded to a number when a model is compiled. Pure.
#ifndef PLUMB_RUNTIME_SPEC_SCALAR_H_
#define PLUMB_RUNTIME_SPEC_SCALAR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/spec/formula.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// Where an expression stands, which decides the names that it may use.
struct ScalarScope {
  const ModelDims* dims = nullptr;
  const PlacementSpec* placement = nullptr;             // whose `let`s hold; may be null
  int64_t layer = 0;                                    // 1..n_layer; 0 outside the layers
  int64_t sublayer = 0;                                 // 1..n_sublayer; 0 outside the sublayers
  std::vector<std::pair<std::string, double>> indices;  // of ranges, the innermost last

  // The value of a name; nullopt if it is no scalar here. An error if its `let` cannot be
  // evaluated.
  absl::StatusOr<std::optional<double>> Lookup(const std::string& name) const;
  std::vector<std::string> Names() const;  // for suggestions
  // What to say after `unknown name "nam"`: a suggestion, or where the name is known.
  std::string Hint(const std::string& name, const std::vector<std::string>& known) const;
  std::string Where() const;  // " at layer 2, sublayer 4", or ""
};

// A name that the language gives a value, in some section or in all: "n_layer", "layer".
bool IsBuiltInScalar(const std::string& name);

// Functions of numbers, which work on tensors too, elementwise: sqrt, exp, log, abs, tanh, sigmoid,
// erf, min, max.
bool IsScalarFunction(const std::string& name);
// All of the language's functions: also those of tensors alone, such as dot, and sum and softmax.
bool IsFunction(const std::string& name);
std::vector<std::string> FunctionNames();

// The operators and functions on numbers. Errors say what is wrong with `expr` and leave the place
// to the caller: kInvalidArgument for a wrong number of arguments, kOutOfRange where the operands
// have no result (division by zero, a root of a negative number).
absl::StatusOr<double> ApplyScalarOperator(const Expr& expr, absl::Span<const double> operands);
// The message of such an error, with the layer where it is the operands' doing.
std::string DescribeScalarError(const absl::Status& error, const ScalarScope& scope);

// A whole expression. Errors point into its text.
absl::StatusOr<double> EvaluateScalar(const Expression& expression, const ScalarScope& scope);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_SCALAR_H_
