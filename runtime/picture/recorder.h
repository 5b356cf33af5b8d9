// SPDX-License-Identifier: Apache-2.0
// FlowRecorder: a FormulaBackend that records how each tensor of the whole stack is made, without
// computing it, and extracts the part of one section. Thread-compatible.
#ifndef PLUMB_RUNTIME_PICTURE_RECORDER_H_
#define PLUMB_RUNTIME_PICTURE_RECORDER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/picture/flow.h"
#include "runtime/spec/formula_backend.h"

namespace plumb {

class FlowRecorder : public FormulaBackend {
 public:
  TensorHandle Embed() override;
  TensorHandle Combine(absl::Span<const Term> terms, double constant) override;
  TensorHandle Multiply(TensorHandle a, TensorHandle b) override;
  TensorHandle Apply(const Function& function, absl::Span<const TensorHandle> operands) override;
  TensorHandle TokenEmbedding(const TokenEmbeddingSite& site) override;
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
  TensorHandle SetName(const std::string& name, TensorHandle value) override;
  void BeginLayer(int64_t layer_index, TensorHandle x) override;
  void EndLayer(int64_t layer_index, TensorHandle x) override;

  // Returns a part of the recording: section 0 is "begin", section i + 1 is layer i, the last one
  // is "end". Requires: RunStack was called with this backend.
  FlowSection Section(int64_t index) const;
  int64_t sections() const { return static_cast<int64_t>(ends_.size()) + 1; }
  // Returns the names that are lines of a picture, without indices: "x" and everything else that is
  // carried from layer to layer, in the order of their first assignment. Returns "x" if there are
  // none.
  std::vector<std::string> streams() const;

 private:
  // Operand of an operation: `coefficient` times a tensor.
  struct Reading {
    TensorHandle tensor = 0;
    double coefficient = 1;
    std::string label;
    std::string name;  // name that has this value on entry to the section: "x", "h[3]"
  };
  static constexpr TensorHandle kNone = -1;
  struct Tensor {
    enum class Role {
      kNode,       // node of the picture
      kScaled,     // its only input, scaled; readers take over the coefficient
      kName,       // value of the name `label` after a statement: its only input
      kParameter,  // made only of learned values and numbers
      kPoint,      // tensor that a sublayer passes to a point
    };
    Role role = Role::kNode;
    FlowKind kind = FlowKind::kAdd;
    std::string label;
    std::vector<Reading> inputs;
    double constant = 0;
    std::vector<std::string> marks;
    std::string place;  // place of parameters
    int64_t section = 0;
    // For parameters, points and values made inside a sublayer, which appear in marks.
    std::string formula;
    // Operands of the formula that are not inputs of the sublayer, or are from inside another one.
    std::set<TensorHandle> outside;
    TensorHandle inside_of = kNone;  // the sublayer, or kNone
  };
  const Tensor& at(TensorHandle handle) const { return tensors_[static_cast<size_t>(handle)]; }
  bool IsParameter(TensorHandle handle) const {
    return at(handle).role == Tensor::Role::kParameter;
  }
  TensorHandle Add(Tensor tensor);
  TensorHandle AddNode(FlowKind kind, std::string label, std::vector<Reading> inputs,
                       std::string place = "");
  TensorHandle AddParameter(std::string text, std::string place);
  // Returns the first place that is not "".
  std::string GetPlace(absl::Span<const Reading> readings) const;
  // Returns true if a name is a line from section to section; other names are read from afar.
  bool IsStream(const std::string& name) const;
  Reading Read(TensorHandle handle, double coefficient = 1);
  static void AddTerm(Reading term, std::vector<Reading>* terms);
  // Runs the statements at `point` and describes them in `marks`. Adds tensors that they read from
  // outside the sublayer to `inputs`.
  absl::Status Splice(absl::string_view point, absl::Span<const TensorHandle> given,
                      AtPoint at_point, std::vector<std::string>* marks,
                      std::vector<Reading>* inputs);
  // Returns the text of an operand, a sum, or any other tensor in a formula: "q_norm(q)".
  std::string ToFormula(const Reading& reading) const;
  std::string FormulaOfSum(const std::vector<Reading>& terms, double constant) const;
  std::string ToFormula(const Tensor& tensor) const;

  class Extraction;

  std::vector<Tensor> tensors_;
  std::vector<std::string> names_;              // in the order of their first assignment
  std::map<std::string, TensorHandle> values_;  // current values, keyed by name
  // Values at the end of each section except the last.
  std::vector<std::map<std::string, TensorHandle>> ends_;
  std::set<std::string> carried_;      // names without index that a later section assigns again
  std::set<TensorHandle> read_later_;  // tensors of role kName that a later section reads
  int64_t section_ = 0;
  bool inside_ = false;
  TensorHandle input_ = 0;  // first input of the current sublayer
  TensorHandle head_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_RECORDER_H_
