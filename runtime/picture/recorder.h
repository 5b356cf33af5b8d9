// SPDX-License-Identifier: Apache-2.0
// FlowRecorder: a FormulaBackend that computes nothing and remembers what was made of what, over
// the whole stack; and Section, the part of that which one layer is. Thread-compatible.
#ifndef PLUMB_RUNTIME_PICTURE_RECORDER_H_
#define PLUMB_RUNTIME_PICTURE_RECORDER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/picture/flow.h"
#include "runtime/spec/interpret.h"

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

  // Section 0 is "begin", section i + 1 layer i, the last one "end".
  // REQUIRES: the stack has been run.
  FlowSection Section(int64_t index) const;
  int64_t sections() const { return static_cast<int64_t>(ends_.size()) + 1; }
  // The names that are lines of a picture, without indices: "x" and what else is carried from layer
  // to layer, in the order in which they were set first. "x" alone where there are none.
  std::vector<std::string> streams() const;

 private:
  // A value as an operation reads it: `coefficient` times a tensor.
  struct Reading {
    TensorHandle tensor = 0;
    double coefficient = 1;
    std::string label;
    std::string name;  // whose value it is, as it came into the section: "x", "h[3]"
  };
  static constexpr TensorHandle kNone = -1;
  struct Tensor {
    enum class Role {
      kNode,       // of the picture
      kScaled,     // its only input; readers take over the coefficient
      kName,       // what a name stands for from a statement on: its only input; `label`
      kParameter,  // made of learned values and numbers alone
      kPoint,      // what a sublayer offers at a point
    };
    Role role = Role::kNode;
    FlowKind kind = FlowKind::kAdd;
    std::string label;
    std::vector<Reading> inputs;
    double constant = 0;
    std::vector<std::string> marks;
    std::string place;  // of parameters
    int64_t section = 0;
    // Of parameters, points and what is made inside a sublayer, which marks show.
    std::string formula;
    std::set<TensorHandle> outside;  // what that is made of that the sublayer was not given
    TensorHandle inside_of = kNone;  // the sublayer
  };
  const Tensor& at(TensorHandle handle) const { return tensors_[static_cast<size_t>(handle)]; }
  bool IsParameter(TensorHandle handle) const {
    return at(handle).role == Tensor::Role::kParameter;
  }
  TensorHandle Add(Tensor tensor);
  TensorHandle AddNode(FlowKind kind, std::string label, std::vector<Reading> inputs,
                       std::string place = "");
  TensorHandle AddParameter(std::string text, std::string place);
  // Of the first of them that has one.
  std::string PlaceOf(absl::Span<const Reading> readings) const;
  // Whether a name is a line from section to section, and not read from afar.
  bool IsStream(const std::string& name) const;
  Reading Read(TensorHandle handle, double coefficient = 1);
  static void AddTerm(Reading term, std::vector<Reading>* terms);
  // Runs what is spliced in at `point`, and says it in `marks`. What it reads from outside the
  // sublayer is added to `inputs`.
  absl::Status Splice(absl::string_view point, absl::Span<const TensorHandle> given,
                      AtPoint at_point, std::vector<std::string>* marks,
                      std::vector<Reading>* inputs);
  // How a formula writes what is read, a sum, and any other tensor: "q_norm(q)".
  std::string FormulaOf(const Reading& reading) const;
  std::string FormulaOfSum(const std::vector<Reading>& terms, double constant) const;
  std::string FormulaOf(const Tensor& tensor) const;

  class Extraction;

  std::vector<Tensor> tensors_;
  std::vector<std::string> names_;              // in the order in which they were set first
  std::map<std::string, TensorHandle> values_;  // of the names
  // The same at the end of each section but the last.
  std::vector<std::map<std::string, TensorHandle>> ends_;
  std::set<std::string> carried_;      // names without index that a later section sets again
  std::set<TensorHandle> read_later_;  // of kName: in a later section
  int64_t section_ = 0;
  bool inside_ = false;
  TensorHandle input_ = 0;  // of the sublayer that is being run, the first
  TensorHandle head_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_RECORDER_H_
