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
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/pytorch/code.h"
#include "runtime/spec/formula_backend.h"

namespace plumb {

// Module or parameter that a function uses.
struct Member {
  std::string path;  // relative to the function's module: "attention.norm", "norm.2"
  std::string make;  // marked code: "RMSNorm(16)"
};

// Function under construction.
struct PythonFunction {
  std::string owner;  // prefix of the names of the module's parameters; "": the model
  std::vector<std::string> lines;
  std::vector<Member> members;
  std::set<std::string> reads;       // names from outside that it reads: "e", "h", "step"
  std::set<std::string> sets;        // streams that it sets
  std::set<std::string> dicts_read;  // indexed names of which it reads values set outside
  std::set<std::string> dicts_set;
  std::set<std::string> keys_set;  // "h[3]"
  std::set<std::string> own;       // names that it defines itself
  std::map<TensorHandle, std::string> aliases;
  std::string indent;  // of further lines
  std::string point;   // name of the point's tensor, in statements inside a sublayer
  PythonFunction* outer = nullptr;

  bool is_sublayer() const { return outer != nullptr; }
};

class CodeWriter : public FormulaBackend {
 public:
  explicit CodeWriter(const ResolvedModel& model);
  ~CodeWriter() override;

  TensorHandle Embed() override;
  TensorHandle Combine(absl::Span<const Term> terms, double constant) override;
  TensorHandle Multiply(TensorHandle a, TensorHandle b) override;
  TensorHandle Apply(const Function& function, absl::Span<const TensorHandle> operands) override;
  TensorHandle Step() override;
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
  TensorHandle SetName(const std::string& name, TensorHandle value) override;
  TensorHandle SetLocal(const std::string& name, TensorHandle value) override;
  void BeginLayer(int64_t layer_index, TensorHandle x) override;
  void EndLayer(int64_t layer_index, TensorHandle x) override;

  // Result of the walk. Requires: RunStack returned OK with this backend.
  absl::Status status() const { return status_; }
  PythonFunction& begin() { return begin_; }
  PythonFunction& end() { return end_; }
  std::vector<PythonFunction>& layers() { return layers_; }
  ClassTable& classes() { return classes_; }
  const ClassTable& classes() const { return classes_; }
  // Returns a formula's name as it is in the function's code.
  static std::string PythonName(const PythonFunction& function, const std::string& name);
  // Replaces the marks of instances of sublayers by the code that makes them.
  std::string WithInstances(const std::string& code) const;
  // Helpers that the code uses, and an instance of each norm, by its id.
  const std::set<std::string>& helpers() const { return helpers_; }
  const std::map<std::string, std::shared_ptr<const NormInstance>>& norms() const { return norms_; }
  const std::map<std::string, TokenEmbeddingSite>& tables() const { return tables_; }

 private:
  // Operation. `code` has "$0" for an operand in any context, "@0" for one that is an atom.
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
    bool per_token = false, is_scalar = false;  // is_scalar: without dimensions
    bool is_leaf = false;
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
  TensorHandle Add(Node node);
  TensorHandle AddCode(std::string code, int level, std::vector<TensorHandle> operands,
                       std::string hint);
  TensorHandle AddName(const std::string& name, const std::string& key, TensorHandle like);
  int64_t MaxWidth(absl::Span<const TensorHandle> operands) const;

  Code Render(TensorHandle id);
  Code RenderName(const Node& node);
  Code RenderCombine(const Node& node);
  Code RenderMultiply(const Node& node);
  std::string RenderList(absl::Span<const TensorHandle> operands);
  std::string At(TensorHandle id, int level);
  // Returns the operand with its channels repeated to `width`.
  std::string Widened(TensorHandle id, int64_t width, int level);
  // Adds the node's uses of operands to `uses`, and names those that are used twice.
  void CountUses(TensorHandle id, std::map<TensorHandle, int>* uses) const;
  void Hoist(TensorHandle id, const std::map<TensorHandle, int>& uses);

  TensorHandle Set(const std::string& name, const std::string& key, TensorHandle value);
  void Flush();
  void Write(const Assignment& assignment);
  void Line(const std::string& line);
  void WriteIndexed(const std::vector<Assignment>& group);
  // Writes "name = code" and returns the name.
  TensorHandle Let(const std::string& name, const std::string& code, int64_t width);
  // Writes the statements at a point for a tensor that exists under a name, and returns it.
  absl::StatusOr<TensorHandle> RunPoint(absl::string_view point, const std::string& name,
                                        TensorHandle tensor, AtPoint at_point);

  void UseMember(const std::string& name, const std::string& make);
  std::string MemberCode(const std::string& name) const;
  void ReadOutside(PythonFunction* function, const std::string& name);
  absl::StatusOr<std::string> NormCode(const NormSite& site);
  // Makes a convolution and returns its code.
  std::string ConvCode(const std::string& name, const ConvSpec& spec, int64_t channels);
  void Fail(absl::Status status);

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
  std::vector<ClassTable::Instance> instances_;
  std::set<std::string> helpers_;
  std::map<std::string, std::shared_ptr<const NormInstance>> norms_;  // the first of each id
  std::map<std::string, TokenEmbeddingSite> tables_;
  int64_t functions_ = 0;
  absl::Status status_;
};

// Fails if no module or parameter can have the name.
absl::Status CheckName(absl::string_view name);
// Splits "h[1, 2]" into "h" and "1, 2"; the second is empty without an index.
std::pair<std::string, std::string> SplitIndex(const std::string& name);
// Returns the lines of __init__ that make the members, and the modules that contain them unless
// they are in `made`.
std::vector<std::string> InitLines(const std::vector<Member>& members,
                                   std::set<std::string> made = {});
// Returns a path as code: "attention.norm", "norm[2]" for "norm.2".
std::string PathCode(const std::string& path);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PYTORCH_WRITER_H_
