// SPDX-License-Identifier: Apache-2.0
// FormulaEval: runs the statements of one scope against variables and a backend. Internal to the
// walk of spec/interpret.h. Thread-compatible.
//
// The methods are in formula_eval.cc (statements), formula_names.cc (names and learned values),
// formula_calls.cc (calls of sublayers, norms and projections), formula_operators.cc and
// formula_functions.cc.
#ifndef PLUMB_RUNTIME_SPEC_FORMULA_EVAL_H_
#define PLUMB_RUNTIME_SPEC_FORMULA_EVAL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/spec/formula_backend.h"
#include "runtime/spec/resolved_model.h"
#include "runtime/spec/settings.h"

namespace plumb {

// Value of a formula. Sums are lazy, so that "alpha * x + f(x)" reaches the backend as one Combine.
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

// One section of a placement, applied at one point of the model.
struct FormulaScope {
  enum class Kind { kBegin, kEach, kBlock, kInside, kEnd } kind;
  const ResolvedModel* model;
  const BlockSpec* block;  // supplies the placement and the norms of slots
  ScalarScope scalars;
  std::string prefix;       // prefix of parameter names: "layers.3.attention"
  std::string description;  // for errors: `placement "mine", each`
  int64_t channels;         // size of a per_channel learned vector here
  int64_t heads = 0;        // size of a per_head learned vector; 0: no heads here
  std::string point;        // kInside: name of the point's tensor, which has `channels` channels
  bool point_may_change_width = false;
  bool in_experts = false;  // rows are tokens sorted by expert, not those of other tensors
  // Sublayers that may be called, keyed by the name used in calls.
  std::map<std::string, SublayerSite> sublayers;
};

// Max number of values in a range. A longer range is assumed to be an error.
inline constexpr int64_t kMaxRangeValues = 10000;

class FormulaEval {
 public:
  // State that the walk keeps from scope to scope.
  struct Walk {
    Variables streams;                         // "x", and the names set in "begin"
    Variables indexed;                         // keyed by name and index: "h[3]"
    std::map<std::string, int> slots_applied;  // keyed by full name; makes the suffix "_2"
    std::set<std::string> site_names;          // every name given to a norm or projection
    std::map<std::string, std::shared_ptr<const LearnedPlace>> learned;
    Settings settings;
    int64_t operations = 0;
  };
  // Callback that runs a sublayer. The walk supplies it, since a sublayer runs `inside` statements.
  using CallSublayer = absl::FunctionRef<absl::StatusOr<TensorHandle>(
      const SublayerSite& site, absl::Span<const TensorHandle> inputs)>;

  FormulaEval(const FormulaScope& scope, FormulaBackend* backend, Walk* walk,
              CallSublayer call_sublayer)
      : scope_(scope),
        scalars_(scope.scalars),
        backend_(backend),
        walk_(*walk),
        call_sublayer_(call_sublayer) {}

  // Names known only in this scope. May be set before Run and read after it.
  Variables& locals() { return locals_; }

  // Runs `statements` in order. Streams and indexed names outlive the scope. Fails unless every
  // sublayer of the scope is called exactly once.
  absl::Status Run(const std::vector<Statement>& statements);

 private:
  // Result of a statement for one value of its range's index.
  struct Assignment {
    std::string name;   // "h[3]"
    std::string point;  // "h.3"
    Quantity value;
    int32_t setting;
  };
  // Use of a name that has its own parameters at each place in the text.
  struct Site {
    std::string name;
    bool again = false;  // true if a range evaluates this place again
  };

  // formula_eval.cc
  absl::Status Execute(const Statement& statement);
  absl::StatusOr<bool> Holds(const Statement& statement);
  absl::StatusOr<Assignment> Evaluate(const Statement& statement);
  absl::Status Assign(const Statement& statement, Assignment assignment);
  absl::Status CheckTarget(const Statement& statement) const;
  // Fails if the scope is inside experts and `expr` needs the rows of other tensors.
  absl::Status CheckExpertRows(const Expr& expr) const;
  absl::Status Bind(const std::string& variable, size_t offset);
  absl::StatusOr<Quantity> Evaluate(const Expr& expr);
  // Fails if the whole walk exceeds its limit of evaluated operations.
  absl::Status CountOperations(const Expr& expr, int64_t count);
  // formula_names.cc
  absl::StatusOr<Quantity> EvaluateName(const Expr& expr);
  absl::StatusOr<Quantity> EvaluateIndexed(const Expr& expr);
  Quantity TableRows(const TokenTable& table, int64_t layer);
  absl::StatusOr<Quantity> TableOfLayer(const Expr& expr, const TokenTable& table,
                                        const std::vector<int64_t>& indices);
  absl::StatusOr<Quantity> LearnedValue(const Expr& expr, const LearnedSpec& learned);
  absl::StatusOr<std::shared_ptr<const LearnedPlace>> GetPlace(const Expr& expr,
                                                               const LearnedSpec& learned);
  // formula_eval.cc
  absl::StatusOr<int64_t> Integer(const Expr& expr, absl::string_view what);
  static std::string StepHint(const Expr& expr);  // hint after "decided when the model is loaded"
  absl::StatusOr<std::vector<int64_t>> Indices(const std::vector<Expr>& index);
  struct Bounds {
    int64_t first, last;
  };
  absl::StatusOr<Bounds> Ends(const Expr& first, const Expr& last);
  // formula_names.cc
  Variable* FindVariable(const std::string& name);
  const LearnedSpec* FindLearned(const std::string& name) const;
  const LinearSpec* FindLinear(const std::string& name) const;
  Quantity Read(Variable* variable);
  std::vector<std::string> IndexedNames(const std::string& name) const;
  std::vector<std::string> KnownNames() const;
  std::string HintFor(const std::string& name) const;  // hint after `unknown name "nam"`
  // formula_eval.cc
  absl::Status NeverCalled(const SublayerSite& site, const std::string& name,
                           const std::vector<Statement>& statements);

  // formula_calls.cc
  absl::StatusOr<Quantity> EvaluateCall(const Expr& expr);
  absl::Status CheckCallable(const Expr& expr);
  absl::StatusOr<Quantity> ApplySublayer(const Expr& expr, const SublayerSite& site);
  absl::StatusOr<Quantity> ApplyNorm(const Expr& expr, absl::Span<const Quantity> arguments);
  absl::StatusOr<Quantity> ApplyNormOfTwo(const Expr& expr);
  absl::Status CheckNormInputs(const Expr& expr, const NormBinding& norm,
                               absl::Span<const Quantity> arguments) const;
  absl::StatusOr<Quantity> ApplyLinear(const Expr& expr, const LinearSpec& linear,
                                       const Quantity& argument);
  absl::StatusOr<const NormBinding*> GetNorm(const Expr& expr) const;
  absl::StatusOr<Quantity> TensorArgument(const Expr& call, const Expr& argument);
  absl::StatusOr<Quantity> OneTensorArgument(const Expr& expr);
  absl::StatusOr<Site> FindSite(const Expr& expr);
  std::string NewName(const std::string& wanted);

  // formula_operators.cc, formula_functions.cc
  absl::StatusOr<Quantity> EvaluateOperator(const Expr& expr);
  absl::StatusOr<Quantity> ApplyOperator(const Expr& expr, std::vector<Quantity> operands);
  absl::StatusOr<Quantity> ApplyFunction(const Expr& expr, std::vector<Quantity> operands);
  absl::StatusOr<Quantity> ApplyTensorFunction(const Expr& expr);
  absl::StatusOr<Quantity> Part(const Expr& expr);
  absl::StatusOr<Quantity> Slice(const Expr& expr);
  absl::StatusOr<Quantity> Shift(const Expr& expr);
  absl::StatusOr<Quantity> Concat(const Expr& expr);
  absl::StatusOr<Quantity> Concatenated(const Expr& expr, const std::vector<Quantity>& parts);
  absl::StatusOr<Quantity> DotProduct(const Expr& expr);
  absl::StatusOr<Quantity> DropOut(const Expr& expr);
  absl::StatusOr<Quantity> EvaluateReduce(const Expr& expr);
  absl::StatusOr<Quantity> Softmax(const Expr& expr, const std::vector<Quantity>& scores,
                                   const std::vector<Quantity>& values);
  absl::StatusOr<Quantity> SoftmaxOfNumbers(const Expr& expr, const std::vector<Quantity>& scores,
                                            const std::vector<Quantity>& values);
  absl::StatusOr<Quantity> Sum(const Expr& expr, const Quantity& a, const Quantity& b, double sign);
  absl::StatusOr<Quantity> Product(const Expr& expr, const Quantity& a, const Quantity& b);
  absl::StatusOr<Quantity> Quotient(const Expr& expr, Quantity a, const Quantity& b);
  absl::StatusOr<Quantity> Power(const Expr& expr, const Quantity& a, const Quantity& b);
  absl::StatusOr<Quantity> Extremum(const Expr& expr, const std::vector<Quantity>& operands);
  absl::StatusOr<Quantity> Compare(const Expr& expr, const Quantity& a, const Quantity& b);
  absl::StatusOr<Quantity> Finite(const Expr& expr, Quantity quantity) const;
  // Fails unless one width divides the other. Returns a quantity of the broadcast type, without
  // terms.
  absl::StatusOr<Quantity> Broadcast(const Expr& expr, const Quantity& a, const Quantity& b) const;
  Quantity Applied(const Function& function, absl::Span<const TensorHandle> operands,
                   const Quantity& type);
  TensorHandle Materialize(const Quantity& quantity);

  absl::Status Error(const Expr& expr, absl::string_view message) const;
  absl::Status ErrorAtOffset(size_t offset, absl::string_view message) const;

  const FormulaScope& scope_;
  ScalarScope scalars_;  // scalars of the scope, and indices of ranges
  FormulaBackend* backend_;
  Walk& walk_;
  CallSublayer call_sublayer_;
  const std::vector<Statement>* statements_ = nullptr;
  const Statement* current_ = nullptr;  // points into *statements_
  Variables locals_;
  std::map<std::string, int> calls_;                   // number of calls of each sublayer
  std::set<std::pair<TensorHandle, int64_t>> splits_;  // (tensor, parts) already split
  // Names already given, keyed by statement, offset in its text, and indices.
  std::map<std::tuple<const Statement*, size_t, std::string>, std::string> sites_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_FORMULA_EVAL_H_
