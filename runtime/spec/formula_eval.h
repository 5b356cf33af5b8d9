// FormulaEval: runs the statements of one scope against variables and a backend. Internal to the
// walk of spec/interpret.h. Thread-compatible.
#ifndef PLUMB_RUNTIME_SPEC_FORMULA_EVAL_H_
#define PLUMB_RUNTIME_SPEC_FORMULA_EVAL_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/spec/interpret.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// What an expression is: a number, or a sum of tensors not yet emitted. Sums stay lazy, so that
// "alpha * x + f(x)" reaches the backend as one Combine.
struct Quantity {
  bool is_scalar = true;
  double constant = 0;  // the number, or the sum's constant
  std::vector<Term> terms;
  bool learned = false;  // a learned vector [width], else [batch, seq, width]
  int64_t width = 0;

  static Quantity Scalar(double value);
  static Quantity Tensor(TensorHandle tensor, int64_t width, bool learned = false);
};

struct Variable {
  Quantity value;
  bool read = false;
  const Statement* setter = nullptr;  // null: set by the walk, not by a statement
};
using Variables = std::map<std::string, Variable>;

// One section of a placement, at one place of the model.
struct FormulaScope {
  enum class Kind { kBegin, kEach, kBlock, kInside, kEnd } kind;
  const ResolvedModel* model;
  const BlockSpec* block;  // gives norms to slots, and placement
  ScalarScope scalars;
  std::string prefix;       // of names: "layers.3.attention"
  std::string description;  // for errors: `placement "mine", each`
  int64_t channels;         // size of a per_channel learned vector here
  int64_t heads = 0;        // of a per_head one; 0 = there are no heads here
  // Sublayers that may be called, by the name that calls them.
  std::map<std::string, SublayerSite> sublayers;
};

class FormulaEval {
 public:
  // Bookkeeping over the whole model, kept by the walk.
  struct Census {
    std::map<std::string, int> slots_applied;      // by full name, for "_2"
    std::map<std::string, int64_t> learned_sizes;  // by full name
    std::set<std::string> norm_names;              // every name that was given
  };
  // Runs a sublayer; the walk supplies it, because it runs statements inside in turn.
  using CallSublayer =
      absl::FunctionRef<absl::StatusOr<TensorHandle>(const SublayerSite& site, TensorHandle input)>;

  FormulaEval(const FormulaScope& scope, FormulaBackend* backend, Census* census,
              CallSublayer call_sublayer)
      : scope_(scope), backend_(backend), census_(census), call_sublayer_(call_sublayer) {}

  // Runs `statements` in order. Names in `streams` live on; others are local and end here. Every
  // sublayer of the scope must have been called once at the end, and every value read.
  absl::Status Run(const std::vector<Statement>& statements, Variables* streams);

 private:
  absl::Status Execute(const Statement& statement);
  absl::Status Assign(const Statement& statement, Quantity value);
  absl::StatusOr<Quantity> Evaluate(const Expr& expr);
  absl::StatusOr<Quantity> EvaluateName(const Expr& expr);
  absl::StatusOr<Quantity> EvaluateCall(const Expr& expr);
  absl::StatusOr<Quantity> EvaluateOperator(const Expr& expr);
  absl::StatusOr<Quantity> Sum(const Expr& expr, const Quantity& a, const Quantity& b, double sign);
  absl::StatusOr<Quantity> Product(const Expr& expr, const Quantity& a, const Quantity& b);
  absl::StatusOr<Quantity> ApplySublayer(const Expr& expr, const SublayerSite& site);
  absl::StatusOr<Quantity> ApplyNorm(const Expr& expr);
  absl::StatusOr<Quantity> Finite(const Expr& expr, Quantity quantity) const;
  // Says that a sublayer is not called, at the last of the statements.
  absl::Status NeverCalled(const SublayerSite& site, const std::string& name,
                           const std::vector<Statement>& statements);
  absl::StatusOr<Quantity> LearnedValue(const Expr& expr, const LearnedSpec& learned);
  absl::StatusOr<Quantity> OneTensorArgument(const Expr& expr);
  TensorHandle Materialize(const Quantity& quantity);
  Variable* FindVariable(const std::string& name);
  std::vector<std::string> KnownNames() const;
  // What to say after `unknown name "nam"`.
  std::string HintFor(const std::string& name) const;
  absl::Status Error(const Expr& expr, absl::string_view message) const;
  absl::Status ErrorAtOffset(size_t offset, absl::string_view message) const;

  const FormulaScope& scope_;
  FormulaBackend* backend_;
  Census* census_;
  CallSublayer call_sublayer_;
  const std::vector<Statement>* statements_ = nullptr;
  const Statement* current_ = nullptr;  // one of statements_
  Variables* streams_ = nullptr;
  Variables locals_;
  std::map<std::string, int> calls_;  // of sublayers
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_FORMULA_EVAL_H_
