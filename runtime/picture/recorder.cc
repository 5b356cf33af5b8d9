// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/picture/bundle.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

// Max length of a mark or label. A longer one would be unreadable, and may be an attack.
constexpr size_t kMaxFormula = 60;

std::string LastPart(absl::string_view name) {
  return std::string(name.substr(name.rfind('.') + 1));
}

// Returns all parts except the last: "layers.3.attention" for "layers.3.attention.norm".
std::string FirstParts(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

// Returns `text` as a factor of a product.
std::string Factor(const std::string& text) {
  const bool is_sum = absl::StrContains(text, " + ") || absl::StrContains(text, " - ");
  return is_sum ? absl::StrCat("(", text, ")") : text;
}

bool IsComparison(const std::string& function) {
  return absl::StrContains("< <= > >= == !=", function);
}

// Returns the text in a box: "tanh", "^ 2", "max 0".
std::string FunctionLabel(const Function& function) {
  if (function.name == "reciprocal") return "1 / …";
  if (function.name == "part") {
    return absl::StrCat("part ", NumberText(function.numbers[0]), " of ",
                        NumberText(function.numbers[1]));
  }
  if (function.name == "slice") {
    return absl::StrCat(NumberText(function.numbers[1]), " channels from ",
                        NumberText(function.numbers[0]));
  }
  const std::string name = function.name == "pow" ? "^" : function.name;
  if (function.numbers.empty()) return name;
  return absl::StrCat(name, " ", absl::StrJoin(function.numbers, " "));
}

// Returns the text in a formula: "tanh(gate)", "gate ^ 2".
std::string FunctionFormula(const Function& function, std::vector<std::string> operands) {
  if (function.name == "constant") return NumberText(function.numbers[0]);
  if (function.name == "position") return "position";
  if (function.name == "reciprocal") return absl::StrCat("1 / ", Factor(operands[0]));
  const bool is_infix = function.name == "pow" || IsComparison(function.name);
  if (is_infix && !function.numbers.empty()) {
    return absl::StrCat(Factor(operands[0]),
                        function.name == "pow" ? " ^ " : absl::StrCat(" ", function.name, " "),
                        NumberText(function.numbers[0]));
  }
  for (const double number : function.numbers) operands.push_back(NumberText(number));
  return absl::StrCat(function.name, "(", absl::StrJoin(operands, ", "), ")");
}

// Returns marks for the fields by which a sublayer differs from the plain one.
absl::StatusOr<std::vector<std::string>> FieldMarks(const SublayerSite& site) {
  std::vector<std::string> marks;
  if (site.spec->kind == SublayerSpec::Kind::kConv) {
    marks.push_back(absl::StrCat(site.spec->conv.width, " tokens"));
  }
  if (site.spec->kind == SublayerSpec::Kind::kLinearAttention) {
    marks.push_back(site.spec->linear_attention.delta ? "delta rule" : "linear attention");
  }
  if (site.spec->kind == SublayerSpec::Kind::kExperts) {
    PLUMB_ASSIGN_OR_RETURN(const ExpertsNumbers numbers,
                           EvaluateExperts(site.spec->experts, site.scope));
    marks.push_back(absl::StrCat(numbers.top_k, " of ", numbers.n_expert, " experts"));
    if (numbers.shared_d_ff > 0) marks.push_back("shared expert");
  }
  if (site.spec->kind != SublayerSpec::Kind::kAttention) return marks;
  PLUMB_ASSIGN_OR_RETURN(const AttentionNumbers numbers,
                         EvaluateAttention(site.spec->attention, site.scope));
  if (numbers.window > 0) marks.push_back(absl::StrCat("window of ", numbers.window));
  if (numbers.score_cap > 0) {
    marks.push_back(absl::StrCat("scores to ±", absl::StrFormat("%.3g", numbers.score_cap)));
  }
  if (site.spec->attention.sinks) marks.push_back("sinks");
  if (site.spec->attention.decay) marks.push_back("decay");
  return marks;
}

}  // namespace

TensorHandle FlowRecorder::Add(Tensor tensor) {
  tensor.section = section_;
  if (inside_ && tensor.formula.empty() && tensor.role != Tensor::Role::kName) {
    tensor.formula = ToFormula(tensor);
    for (const Reading& reading : tensor.inputs) {
      const Tensor& input = at(reading.tensor);
      const bool is_of_another = input.inside_of != kNone && !IsParameter(reading.tensor);
      if (input.formula.empty() || is_of_another) {
        tensor.outside.insert(reading.tensor);
      } else {
        tensor.outside.insert(input.outside.begin(), input.outside.end());
      }
    }
  }
  if (tensor.formula.size() > kMaxFormula) tensor.formula = "…";
  tensors_.push_back(std::move(tensor));
  return static_cast<TensorHandle>(tensors_.size() - 1);
}

TensorHandle FlowRecorder::AddNode(FlowKind kind, std::string label, std::vector<Reading> inputs,
                                   std::string place) {
  Tensor tensor;
  tensor.kind = kind;
  tensor.place = std::move(place);
  tensor.label = std::move(label);
  tensor.inputs = std::move(inputs);
  return Add(std::move(tensor));
}

std::string FlowRecorder::GetPlace(absl::Span<const Reading> readings) const {
  for (const Reading& reading : readings) {
    if (!at(reading.tensor).place.empty()) return at(reading.tensor).place;
  }
  return "";
}

TensorHandle FlowRecorder::AddParameter(std::string text, std::string place) {
  Tensor tensor;
  tensor.place = std::move(place);
  tensor.role = Tensor::Role::kParameter;
  tensor.kind = FlowKind::kParameter;
  tensor.label = text;
  tensor.formula = std::move(text);
  return Add(std::move(tensor));
}

FlowRecorder::Reading FlowRecorder::Read(TensorHandle handle, double coefficient) {
  const Tensor& tensor = at(handle);
  using Role = Tensor::Role;
  Reading reading;
  if (tensor.section == section_ && (tensor.role == Role::kScaled || tensor.role == Role::kName)) {
    reading = tensor.inputs[0];
    reading.coefficient *= coefficient;
    return reading;
  }
  reading.tensor = handle;
  reading.coefficient = coefficient;
  if (tensor.role == Role::kName) {
    reading.name = tensor.label;
    read_later_.insert(handle);
  }
  return reading;
}

TensorHandle FlowRecorder::Embed() {
  return SetName("x", AddNode(FlowKind::kEnter, kEmbeddingLabel, {}));
}

// Merges terms that refer to the same tensor under two names.
void FlowRecorder::AddTerm(Reading term, std::vector<Reading>* terms) {
  for (Reading& known : *terms) {
    if (known.tensor != term.tensor || !known.label.empty()) continue;
    known.coefficient += term.coefficient;
    return;
  }
  terms->push_back(std::move(term));
}

TensorHandle FlowRecorder::Combine(absl::Span<const Term> terms, double constant) {
  Tensor sum;
  sum.kind = FlowKind::kAdd;
  sum.constant = constant;
  bool all_parameters = true;
  for (const Term& term : terms) {
    if (term.coefficient == 0) continue;
    all_parameters = all_parameters && IsParameter(term.tensor);
    AddTerm(Read(term.tensor, term.coefficient), &sum.inputs);
  }
  if (all_parameters) return AddParameter(FormulaOfSum(sum.inputs, constant), GetPlace(sum.inputs));
  if (sum.inputs.size() == 1 && constant == 0) sum.role = Tensor::Role::kScaled;
  return Add(std::move(sum));
}

TensorHandle FlowRecorder::Multiply(TensorHandle a, TensorHandle b) {
  if (IsParameter(a)) std::swap(a, b);
  if (IsParameter(a)) {
    return AddParameter(absl::StrCat(Factor(at(a).formula), " * ", Factor(at(b).formula)),
                        GetPlace({Read(a), Read(b)}));
  }
  if (IsParameter(b)) return AddNode(FlowKind::kGain, at(b).formula, {Read(a)}, at(b).place);
  return AddNode(FlowKind::kMultiply, "", {Read(a), Read(b)});
}

TensorHandle FlowRecorder::Apply(const Function& function,
                                 absl::Span<const TensorHandle> operands) {
  std::vector<Reading> inputs;
  bool all_parameters = true;
  for (const TensorHandle operand : operands) {
    inputs.push_back(Read(operand));
    all_parameters = all_parameters && IsParameter(operand);
  }
  if (all_parameters) {
    std::vector<std::string> texts;
    for (const Reading& input : inputs) texts.push_back(ToFormula(input));
    return AddParameter(FunctionFormula(function, texts), GetPlace(inputs));
  }
  // A value weighted by a part of a softmax is shown as weighted by the softmax.
  const Tensor& first = at(inputs[0].tensor);
  const bool is_weight = function.name == "part" && first.kind == FlowKind::kFunction &&
                         first.label == "softmax" && inputs[0].name.empty();
  Tensor tensor;
  if (is_weight) tensor.role = Tensor::Role::kScaled;
  tensor.kind = FlowKind::kFunction;
  tensor.label = FunctionLabel(function);
  tensor.inputs = std::move(inputs);
  return Add(std::move(tensor));
}

TensorHandle FlowRecorder::TokenEmbedding(const TokenEmbeddingSite& site) {
  return AddParameter(site.table, site.name);
}
TensorHandle FlowRecorder::Step() { return AddParameter("step", ""); }

TensorHandle FlowRecorder::Drop(const DropSite& site, TensorHandle a) {
  const std::string label = absl::StrCat(site.path ? "drop_path " : "drop ", NumberText(site.p));
  return AddNode(FlowKind::kFunction, label, {Read(a)});
}

TensorHandle FlowRecorder::Learned(const LearnedSite& site) {
  const LearnedPlace& place = *site.place;
  std::vector<int64_t> indices(place.extents.size());
  int64_t rest = site.index;
  for (size_t i = indices.size(); i-- > 0;) {
    indices[i] = place.firsts[i] + rest % place.extents[i];
    rest /= place.extents[i];
  }
  const std::string name = LastPart(place.name);
  if (indices.empty()) return AddParameter(name, place.name);
  return AddParameter(absl::StrCat(name, "[", absl::StrJoin(indices, ", "), "]"), place.name);
}

absl::StatusOr<TensorHandle> FlowRecorder::Linear(const LinearSite& site, TensorHandle a) {
  const std::string last = LastPart(site.name);
  const std::string& name = site.spec->name;
  const bool indexed = last != name && absl::StrContains(site.name, absl::StrCat(".", name, "."));
  return AddNode(FlowKind::kLinear, indexed ? absl::StrCat(name, "[", last, "]") : last, {Read(a)},
                 indexed ? FirstParts(FirstParts(site.name)) : FirstParts(site.name));
}

absl::StatusOr<TensorHandle> FlowRecorder::Norm(const NormSite& site,
                                                absl::Span<const TensorHandle> inputs) {
  if (site.norm->plugin->identity()) return inputs[0];
  std::vector<Reading> readings;
  for (const TensorHandle input : inputs) readings.push_back(Read(input));
  const bool indexed = absl::StrContains(site.slot, "[");
  return AddNode(FlowKind::kNorm, indexed ? site.slot : LastPart(site.name), std::move(readings),
                 indexed ? FirstParts(FirstParts(site.name)) : FirstParts(site.name));
}

absl::StatusOr<TensorHandle> FlowRecorder::Sublayer(const SublayerSite& site,
                                                    absl::Span<const TensorHandle> inputs,
                                                    AtPoint at_point) {
  Tensor sublayer;
  sublayer.kind = FlowKind::kSublayer;
  sublayer.label = site.spec->name;
  for (size_t i = 0; i < inputs.size(); ++i) {
    sublayer.inputs.push_back(Read(inputs[i]));
    if (inputs.size() == 3) sublayer.inputs.back().label = std::string(1, "qkv"[i]);
  }
  PLUMB_ASSIGN_OR_RETURN(sublayer.marks, FieldMarks(site));
  const size_t first = tensors_.size();
  for (const char* point : ListPoints(*site.spec)) {
    if (absl::StartsWith(point, "shared.")) continue;  // the same statements as for other experts
    PLUMB_RETURN_IF_ERROR(Splice(point, inputs, at_point, &sublayer.marks, &sublayer.inputs));
  }
  for (size_t i = first; i < tensors_.size(); ++i) {
    tensors_[i].inside_of = static_cast<TensorHandle>(tensors_.size());
  }
  return Add(std::move(sublayer));
}

absl::Status FlowRecorder::Head(TensorHandle x, AtPoint at_point) {
  Tensor head;
  head.kind = FlowKind::kLeave;
  head.label = kHeadLabel;
  head.inputs = {Read(x)};
  PLUMB_RETURN_IF_ERROR(Splice(kHeadPoint, {x}, at_point, &head.marks, &head.inputs));
  head_ = Add(std::move(head));
  return absl::OkStatus();
}

absl::Status FlowRecorder::Splice(absl::string_view point, absl::Span<const TensorHandle> given,
                                  AtPoint at_point, std::vector<std::string>* marks,
                                  std::vector<Reading>* inputs) {
  inside_ = true;
  input_ = given[0];
  Tensor offered;
  offered.role = Tensor::Role::kPoint;
  offered.formula = LastPart(point);
  const TensorHandle before = Add(std::move(offered));
  const absl::StatusOr<TensorHandle> after = at_point(point, before);
  inside_ = false;
  if (!after.ok()) return after.status();
  if (*after == before) return absl::OkStatus();
  const std::string& name = at(before).formula;
  const std::string formula = ToFormula(Read(*after));
  if (formula != name) marks->push_back(absl::StrCat(name, " = ", formula));
  for (const TensorHandle tensor : at(*after).outside) {
    if (std::count(given.begin(), given.end(), tensor) > 0) continue;
    Reading reading = Read(tensor);
    reading.label = at(before).formula;
    inputs->push_back(std::move(reading));
  }
  return absl::OkStatus();
}

std::string FlowRecorder::ToFormula(const Reading& reading) const {
  return FormulaOfSum({reading}, 0);
}

std::string FlowRecorder::FormulaOfSum(const std::vector<Reading>& terms, double constant) const {
  std::string text;
  const auto append = [&text](double value, const std::string& operand) {
    absl::StrAppend(&text, value < 0 ? (text.empty() ? "-" : " - ") : text.empty() ? "" : " + ");
    const std::string size = absl::StrFormat("%.3g", value < 0 ? -value : value);
    if (operand.empty()) {
      text += size;
    } else {
      absl::StrAppend(&text, size == "1" ? "" : absl::StrCat(size, " * "),
                      value == 1 ? operand : Factor(operand));
    }
  };
  for (const Reading& reading : terms) {
    const std::string& formula = at(reading.tensor).formula;
    append(reading.coefficient, !formula.empty()           ? formula
                                : reading.tensor == input_ ? "input"
                                : !reading.name.empty()    ? reading.name
                                                           : "…");
  }
  if (constant != 0 || terms.empty()) append(constant, "");
  return text;
}

std::string FlowRecorder::ToFormula(const Tensor& tensor) const {
  if (tensor.kind == FlowKind::kAdd) return FormulaOfSum(tensor.inputs, tensor.constant);
  std::vector<std::string> operands;
  for (const Reading& reading : tensor.inputs) operands.push_back(ToFormula(reading));
  if (tensor.kind == FlowKind::kGain || tensor.kind == FlowKind::kMultiply) {
    if (tensor.kind == FlowKind::kGain) operands.insert(operands.begin(), tensor.label);
    for (std::string& operand : operands) operand = Factor(operand);
    return absl::StrJoin(operands, " * ");
  }
  return absl::StrCat(tensor.label, "(", absl::StrJoin(operands, ", "), ")");
}

TensorHandle FlowRecorder::SetName(const std::string& name, TensorHandle value) {
  const auto known = values_.find(name);
  if (known == values_.end()) {
    names_.push_back(name);
  } else if (at(known->second).section != section_) {
    carried_.insert(WithoutIndices(name));
  }
  Tensor named;
  named.role = Tensor::Role::kName;
  named.label = name;
  named.inputs = {Read(value)};
  return values_[name] = Add(std::move(named));
}

bool FlowRecorder::IsStream(const std::string& name) const {
  const std::string base = WithoutIndices(name);
  if (base != name && carried_.count(base) == 0) return false;
  return std::any_of(read_later_.begin(), read_later_.end(),
                     [&](TensorHandle tensor) { return WithoutIndices(at(tensor).label) == base; });
}

std::vector<std::string> FlowRecorder::streams() const {
  std::vector<std::string> streams;
  for (const std::string& name : names_) {
    const std::string base = WithoutIndices(name);
    if (!IsStream(name) || std::count(streams.begin(), streams.end(), base) > 0) continue;
    streams.push_back(base);
  }
  if (streams.empty()) streams.push_back("x");
  return streams;
}

void FlowRecorder::BeginLayer(int64_t layer_index, TensorHandle) {
  if (layer_index == 0) ends_.push_back(values_);
  section_ = layer_index + 1;
}

void FlowRecorder::EndLayer(int64_t layer_index, TensorHandle) {
  ends_.push_back(values_);
  section_ = layer_index + 2;
}

}  // namespace plumb
