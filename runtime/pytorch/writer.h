// SPDX-License-Identifier: Apache-2.0
// CodeWriter: FormulaBackend that writes the statements of a model as Python functions: one for the
// begin and the end of the stack, one per layer, one per sublayer. Thread-compatible.
//
// Operations are expressions until a statement names their result, so that the code has the
// statements of the formulas, in their order. Functions refer to modules and parameters by plumb's
// names, relative to the module that the function belongs to.
#ifndef PLUMB_RUNTIME_PYTORCH_WRITER_H_
#define PLUMB_RUNTIME_PYTORCH_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/pytorch/code.h"
#include "runtime/spec/formula_backend.h"

namespace plumb {

// Module or parameter that a function uses.
struct Member {
  std::string path;  // relative to the function's module: "attention.norm", "norm.2"
  std::string make;  // marked code: "RMSNorm(16)"
  std::optional<ClassTable::Instance> instance;  // instead of `make`
};

// Function under construction.
struct PythonFunction {
  std::string owner;  // prefix of the names of the module's parameters; "": the model
  std::vector<std::string> lines;
  std::vector<Member> members;
  std::set<std::string> reads;  // names from outside that it reads: "e", "h[3]", "step"
  std::set<std::string> sets;   // streams and indexed names that it sets: "x", "h[3]"
  std::set<std::string> own;    // other names that it sets
  std::map<TensorHandle, std::string> aliases;
  std::string indent;  // of further lines
  std::string point;   // name of the point's tensor, in statements inside a sublayer
  bool is_sublayer = false;

  void Read(const std::string& name) {
    if (sets.count(name) == 0) reads.insert(name);
  }
};

class CodeWriter : public FormulaBackend {
 public:
  explicit CodeWriter(const ResolvedModel& model);

  TensorHandle Embed() override;
  TensorHandle Combine(absl::Span<const Term> terms, double constant) override;
  TensorHandle Multiply(TensorHandle a, TensorHandle b) override;
  TensorHandle Apply(const Function& function, absl::Span<const TensorHandle> given) override;
  TensorHandle Step() override { return AddName("step", "step", 1); }
  TensorHandle Drop(const DropSite& site, TensorHandle a) override;
  TensorHandle Learned(const LearnedSite& site) override;
  absl::StatusOr<TensorHandle> Linear(const LinearSite& site, TensorHandle a) override;
  absl::StatusOr<TensorHandle> Norm(const NormSite& site,
                                    absl::Span<const TensorHandle> inputs) override;
  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                        absl::Span<const TensorHandle> inputs,
                                        AtPoint at_point) override;
  absl::Status Head(TensorHandle x, AtPoint at_point) override;
  TensorHandle TokenEmbedding(const TokenEmbeddingSite& site) override;
  TensorHandle SetName(const std::string& name, TensorHandle value) override {
    return Set(name, name, value);
  }
  TensorHandle SetLocal(const std::string& name, TensorHandle value) override;
  void BeginLayer(int64_t layer_index, TensorHandle x) override;
  void EndLayer(int64_t layer_index, TensorHandle x) override;

  // Result of the walk. Requires: RunStack returned OK with this backend.
  const PythonFunction& begin() const { return begin_; }
  const PythonFunction& end() const { return end_; }
  std::vector<PythonFunction>& layers() { return layers_; }
  ClassTable& classes() { return classes_; }
  // Instance of each norm, by its id.
  const std::map<std::string, std::shared_ptr<const NormInstance>>& norms() const { return norms_; }
  // Returns a formula's name as it is in the function's code.
  static std::string PythonName(const PythonFunction& function, const std::string& name);

 private:
  // Operation. `code` has "$0" for an operand in any context, "@0" for one that is an atom, "~0"
  // for one with its channels repeated to the width of the result.
  struct Node {
    enum class Kind { kCode, kName, kCombine, kMultiply } kind = Kind::kCode;
    std::string code;  // kName: the name
    int level = 3;
    std::vector<TensorHandle> operands;
    std::vector<double> coefficients;  // kCombine
    double constant = 0;               // kCombine
    int version = 0;                   // kName
    std::string key;                   // kName: name in current_
    std::string hint;                  // name for a value that is used twice
    int64_t width = 1;
  };
  // Python code and its precedence: 0 sum, 1 product, 2 power, 3 atom.
  struct Code {
    std::string text;
    int level;
  };
  struct Assignment {
    std::string name, key;
    TensorHandle value, made;
  };

  friend class SublayerWriter;

  const Node& node(TensorHandle id) const { return nodes_[static_cast<size_t>(id)]; }
  TensorHandle AddNode(std::string code, std::vector<TensorHandle> operands, std::string hint,
                       int64_t width, int level = 3, Node::Kind kind = Node::Kind::kCode);
  TensorHandle AddName(const std::string& name, const std::string& key, int64_t width);
  int64_t MaxWidth(absl::Span<const TensorHandle> operands) const;

  Code Render(TensorHandle id);
  Code RenderName(const Node& node);
  // Returns the code of a stream or an indexed name.
  std::string NameCode(const std::string& name) const;
  Code RenderCombine(const Node& node);
  Code RenderMultiply(const Node& node);
  // Returns the operands as "a, b", or "*[.. for k in range(..)]".
  std::string RenderList(const Node& call);
  std::string At(TensorHandle id, int level);
  // Returns the operand with its channels repeated to `width`.
  std::string Widened(TensorHandle id, int64_t width, int level);
  // Adds the node's uses of operands to `uses`, and names those that are used twice.
  void CountUses(TensorHandle id, std::map<TensorHandle, int>* uses) const;
  void Hoist(TensorHandle id, const std::map<TensorHandle, int>& uses);

  TensorHandle Set(const std::string& name, const std::string& key, TensorHandle value);
  void Flush();
  void Line(const std::string& line);
  // Writes "name = code" and returns the name.
  TensorHandle Let(const std::string& name, const std::string& code, int64_t width);
  // Writes the statements at a point for a tensor that exists under a name, and returns it.
  TensorHandle RunPoint(absl::string_view point, const std::string& name, TensorHandle tensor,
                        AtPoint at_point);

  // Makes a member of the current function and returns its code: "self.attention.norm".
  std::string UseMember(const std::string& name, const std::string& make,
                        std::optional<ClassTable::Instance> instance = std::nullopt);
  // Makes a module and returns the code of its result for the arguments: "self.attention.norm(x)".
  std::string Call(const std::string& name, const std::string& make, const std::string& arguments);
  absl::Status CheckMember(const std::string& name, const std::string& path) const;
  std::string CallConv(const std::string& name, const ConvSpec& spec, int64_t channels,
                       const std::string& x);

  const ResolvedModel& model_;
  std::vector<Node> nodes_;
  std::map<std::string, int> current_;  // version of each name
  std::vector<Assignment> pending_;     // of one statement
  size_t pending_end_ = 0;              // size of nodes_ after the last of them
  PythonFunction begin_, end_;
  std::vector<PythonFunction> layers_;
  PythonFunction* function_ = &begin_;
  std::map<TensorHandle, std::string> hoisted_;
  ClassTable classes_;
  std::map<std::string, std::shared_ptr<const NormInstance>> norms_;  // the first of each id
  int64_t functions_ = 0;
  absl::Status status_;  // first error
};

// Returns "h" for "h[3]" and "h[4]", and drops names without an index.
std::set<std::string> IndexedNames(const std::set<std::string>& names);
// Returns the code of a function of one tensor: "F.relu(x)". Errors: kUnimplemented.
absl::StatusOr<std::string> CallCode(const std::string& function, const std::string& x);
// Returns marked code that makes a projection: "nn.Linear(16, 64, bias=False)".
std::string LinearCode(int64_t in, int64_t out, bool bias);
// Returns the lines of __init__ that make the members, and the modules that contain them.
std::vector<std::string> InitLines(const std::vector<Member>& members);
// Returns the code of a list of modules, which has `count` items.
std::string ModuleList(const std::vector<std::string>& items, const std::string& count);
// Returns formulas' names, each after a comma, as they are in the function's code.
std::string AfterCommas(const std::set<std::string>& names, const PythonFunction& function);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PYTORCH_WRITER_H_
