// The sums and functions of formulas as ops. Part of BuildForward (build.h). Pure but for the
// builder, to which they append.
#ifndef PLUMB_RUNTIME_MODEL_FORMULA_OPS_H_
#define PLUMB_RUNTIME_MODEL_FORMULA_OPS_H_

#include <string>

#include "absl/types/span.h"
#include "runtime/graph/builder.h"
#include "runtime/spec/interpret.h"

namespace plumb {

// sum of coefficient * tensor, plus a constant; broadcast.
ValueId EmitSum(GraphBuilder* b, absl::Span<const Term> terms, double constant,
                const std::string& name);

// All functions of interpret.h but part. `scope` is the prefix of names: "layers.3.".
ValueId EmitFunction(GraphBuilder* b, const Function& function,
                     absl::Span<const TensorHandle> operands, const std::string& scope);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_FORMULA_OPS_H_
