// SPDX-License-Identifier: Apache-2.0
// Scalars of the formula language, which are folded to numbers when a model is compiled. Stateless.
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

// Context of an expression, which decides the names that it may use.
struct ScalarScope {
  const ModelDims* dims = nullptr;           // one that is 0 is not known yet, and has no name
  const PlacementSpec* placement = nullptr;  // the placement that defines `let`s; may be null
  int64_t layer = 0;                         // 1..n_layer; 0 outside the layers
  int64_t sublayer = 0;                      // 1..n_sublayer; 0 outside the sublayers
  int64_t point_width = 0;                   // channels at a point inside a sublayer; 0 elsewhere
  std::vector<std::pair<std::string, double>> indices;  // from ranges, innermost last

  // Returns the value of a name, or nullopt if it is no scalar here. Fails if its `let` cannot be
  // evaluated.
  absl::StatusOr<std::optional<double>> Lookup(const std::string& name) const;
  std::vector<std::string> Names() const;  // for suggestions
  // Returns the text after `unknown name "nam"`: a suggestion, or where the name is known.
  std::string Hint(const std::string& name, const std::vector<std::string>& known) const;
  std::string Where() const;  // " at layer 2, sublayer 4", or ""
};

// Returns true for names with a built-in value in some section: "n_layer", "layer".
bool IsBuiltInScalar(const std::string& name);

// Returns true for the functions of numbers, which also apply elementwise to tensors: sqrt, exp,
// log, abs, cos, tanh, min, max and others.
bool IsScalarFunction(const std::string& name);
// Returns true for any function of the language, including those of tensors only (dot, sum,
// softmax).
bool IsFunction(const std::string& name);
std::vector<std::string> FunctionNames();

// Applies an operator or function to numbers. Errors describe `expr` without a location, which the
// caller adds: kInvalidArgument for a wrong number of arguments, kOutOfRange if the operands have
// no result (division by zero, root of a negative number).
absl::StatusOr<double> ApplyScalarOperator(const Expr& expr, absl::Span<const double> operands);
// Returns the message of such an error, followed by the layer if it depends on the operands.
std::string DescribeScalarError(const absl::Status& error, const ScalarScope& scope);

// Evaluates a whole expression. Errors point into its text.
absl::StatusOr<double> EvaluateScalar(const Expression& expression, const ScalarScope& scope);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_SCALAR_H_
