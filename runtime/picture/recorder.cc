#include "runtime/picture/recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

// Of a mark or a label; what is longer would not be read, and may have been built to be long.
constexpr size_t kLongestFormula = 60;

std::string LastPart(absl::string_view name) {
  return std::string(name.substr(name.rfind('.') + 1));
}

// `text` as a factor of a product.
std::string Factor(const std::string& text) {
  const bool is_sum = absl::StrContains(text, " + ") || absl::StrContains(text, " - ");
  return is_sum ? absl::StrCat("(", text, ")") : text;
}

// What a sublayer's fields say that makes it another than the plain one.
absl::StatusOr<std::vector<std::string>> FieldMarks(const SublayerSite& site) {
  std::vector<std::string> marks;
  if (site.spec->kind == SublayerSpec::Kind::kConv) {
    marks.push_back(absl::StrCat(site.spec->conv.width, " tokens"));
  }
  if (site.spec->kind != SublayerSpec::Kind::kAttention) return marks;
  PLUMB_ASSIGN_OR_RETURN(const AttentionNumbers numbers,
                         EvaluateAttention(site.spec->attention, site.scope));
  if (numbers.window > 0) marks.push_back(absl::StrCat("window of ", numbers.window));
  if (numbers.score_cap > 0) {
    marks.push_back(absl::StrCat("scores to ±", absl::StrFormat("%.3g", numbers.score_cap)));
  }
  if (site.spec->attention.sinks) marks.push_back("sinks");
  return marks;
}

}  // namespace

TensorHandle FlowRecorder::Add(Tensor tensor) {
  tensor.section = section_;
  if (inside_ && tensor.formula.empty()) {
    tensor.formula = FormulaOf(tensor);
    for (const Reading& reading : tensor.inputs) {
      const Tensor& input = at(reading.tensor);
      if (input.formula.empty()) tensor.outside.insert(reading.tensor);
      tensor.outside.insert(input.outside.begin(), input.outside.end());
    }
  }
  if (tensor.formula.size() > kLongestFormula) tensor.formula = "…";
  tensors_.push_back(std::move(tensor));
  return static_cast<TensorHandle>(tensors_.size() - 1);
}

TensorHandle FlowRecorder::AddNode(FlowKind kind, std::string label, std::vector<Reading> inputs) {
  Tensor tensor;
  tensor.kind = kind;
  tensor.label = std::move(label);
  tensor.inputs = std::move(inputs);
  return Add(std::move(tensor));
}

TensorHandle FlowRecorder::AddParameter(std::string text) {
  Tensor tensor;
  tensor.role = Tensor::Role::kParameter;
  tensor.kind = FlowKind::kParameter;
  tensor.label = text;
  tensor.formula = std::move(text);
  return Add(std::move(tensor));
}

FlowRecorder::Reading FlowRecorder::Read(TensorHandle handle, double coefficient) const {
  const Tensor& tensor = at(handle);
  using Role = Tensor::Role;
  Reading reading;
  if (tensor.section == section_ &&
      (tensor.role == Role::kScaled || tensor.role == Role::kStream)) {
    reading = tensor.inputs[0];
    reading.coefficient *= coefficient;
    return reading;
  }
  reading.tensor = handle;
  reading.coefficient = coefficient;
  if (tensor.role == Role::kStream) reading.stream = tensor.label;
  return reading;
}

TensorHandle FlowRecorder::Embed() {
  return SetStream("", "x", AddNode(FlowKind::kEnter, kEmbeddingLabel, {}));
}

// One value that is there by two names is one term.
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
  if (all_parameters) return AddParameter(FormulaOfSum(sum.inputs, constant));
  if (sum.inputs.size() == 1 && constant == 0) sum.role = Tensor::Role::kScaled;
  return Add(std::move(sum));
}

TensorHandle FlowRecorder::Multiply(TensorHandle a, TensorHandle b) {
  if (IsParameter(a)) std::swap(a, b);
  if (IsParameter(a)) {
    return AddParameter(absl::StrCat(Factor(at(a).formula), " * ", Factor(at(b).formula)));
  }
  if (IsParameter(b)) return AddNode(FlowKind::kGain, at(b).formula, {Read(a)});
  return AddNode(FlowKind::kMultiply, "", {Read(a), Read(b)});
}

TensorHandle FlowRecorder::Apply(const std::string& function, TensorHandle a) {
  if (IsParameter(a)) return AddParameter(absl::StrCat(function, "(", at(a).formula, ")"));
  return AddNode(FlowKind::kFunction, function, {Read(a)});
}

TensorHandle FlowRecorder::Learned(const LearnedSite& site) {
  return AddParameter(LastPart(site.name));
}

absl::StatusOr<TensorHandle> FlowRecorder::Norm(const NormSite& site, TensorHandle a) {
  if (site.norm->plugin->identity()) return a;
  return AddNode(FlowKind::kNorm, LastPart(site.name), {Read(a)});
}

absl::StatusOr<TensorHandle> FlowRecorder::Sublayer(const SublayerSite& site, TensorHandle input,
                                                    AtPoint at_point) {
  Tensor sublayer;
  sublayer.kind = FlowKind::kSublayer;
  sublayer.label = site.spec->name;
  sublayer.inputs = {Read(input)};
  PLUMB_ASSIGN_OR_RETURN(sublayer.marks, FieldMarks(site));
  for (const char* point : PointsOf(site.spec->kind)) {
    PLUMB_RETURN_IF_ERROR(Splice(point, input, at_point, &sublayer.marks, &sublayer.inputs));
  }
  return Add(std::move(sublayer));
}

absl::Status FlowRecorder::Head(TensorHandle x, AtPoint at_point) {
  Tensor head;
  head.kind = FlowKind::kLeave;
  head.label = kHeadLabel;
  head.inputs = {Read(x)};
  PLUMB_RETURN_IF_ERROR(Splice(kHeadPoint, x, at_point, &head.marks, &head.inputs));
  head_ = Add(std::move(head));
  return absl::OkStatus();
}

absl::Status FlowRecorder::Splice(absl::string_view point, TensorHandle input, AtPoint at_point,
                                  std::vector<std::string>* marks, std::vector<Reading>* inputs) {
  inside_ = true;
  input_ = input;
  Tensor offered;
  offered.role = Tensor::Role::kPoint;
  offered.formula = LastPart(point);
  const TensorHandle before = Add(std::move(offered));
  const absl::StatusOr<TensorHandle> after = at_point(point, before);
  inside_ = false;
  if (!after.ok()) return after.status();
  if (*after == before) return absl::OkStatus();
  marks->push_back(absl::StrCat(at(before).formula, " = ", FormulaOf(Read(*after))));
  for (const TensorHandle tensor : at(*after).outside) {
    if (tensor == input) continue;
    Reading reading = Read(tensor);
    reading.label = at(before).formula;
    inputs->push_back(std::move(reading));
  }
  return absl::OkStatus();
}

std::string FlowRecorder::FormulaOf(const Reading& reading) const {
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
                                : !reading.stream.empty()  ? reading.stream
                                                           : "…");
  }
  if (constant != 0 || terms.empty()) append(constant, "");
  return text;
}

std::string FlowRecorder::FormulaOf(const Tensor& tensor) const {
  if (tensor.kind == FlowKind::kAdd) return FormulaOfSum(tensor.inputs, tensor.constant);
  std::vector<std::string> operands;
  for (const Reading& reading : tensor.inputs) operands.push_back(FormulaOf(reading));
  if (tensor.kind == FlowKind::kGain || tensor.kind == FlowKind::kMultiply) {
    if (tensor.kind == FlowKind::kGain) operands.insert(operands.begin(), tensor.label);
    for (std::string& operand : operands) operand = Factor(operand);
    return absl::StrJoin(operands, " * ");
  }
  return absl::StrCat(tensor.label, "(", absl::StrJoin(operands, ", "), ")");
}

TensorHandle FlowRecorder::SetStream(const std::string&, const std::string& stream,
                                     TensorHandle value) {
  if (values_.count(stream) == 0) streams_.push_back(stream);
  Tensor named;
  named.role = Tensor::Role::kStream;
  named.label = stream;
  named.inputs = {Read(value)};
  return values_[stream] = Add(std::move(named));
}

void FlowRecorder::BeginLayer(int64_t layer_index, TensorHandle) {
  if (layer_index == 0) ends_.push_back(values_);
  section_ = layer_index + 1;
}

void FlowRecorder::EndLayer(int64_t layer_index, TensorHandle) {
  ends_.push_back(values_);
  section_ = layer_index + 2;
}

// One section as a graph of its own: streams come in as nodes at the top, then the nodes in the
// order in which they were recorded, then those by which streams leave.
class FlowRecorder::Extraction {
 public:
  Extraction(const FlowRecorder& recorder, int64_t index) : recorder_(recorder), index_(index) {}

  FlowSection Run() {
    const bool is_end = index_ + 1 == recorder_.sections();
    std::vector<std::pair<std::string, Reading>> leaving;
    if (is_end) {
      Need({recorder_.head_});
    } else {
      leaving = Leaving();
      std::vector<TensorHandle> read;
      for (const auto& [stream, reading] : leaving) {
        if (reading.stream.empty()) read.push_back(reading.tensor);
      }
      Need(std::move(read));
    }
    for (const std::string& stream : recorder_.streams_) {
      if (read_.count(stream) > 0 || (index_ > 0 && !is_end)) Enter(stream);
    }
    for (const TensorHandle tensor : needed_) Place(tensor);
    for (const auto& [stream, reading] : leaving) {
      FlowNode leave;
      leave.kind = FlowKind::kLeave;
      leave.label = stream;
      leave.inputs = {EdgeTo(reading)};
      section_.nodes.push_back(std::move(leave));
    }
    return std::move(section_);
  }

 private:
  // The values with which streams leave: what was set here, or the stream as it came in.
  std::vector<std::pair<std::string, Reading>> Leaving() const {
    std::vector<std::pair<std::string, Reading>> leaving;
    for (const std::string& stream : recorder_.streams_) {
      const TensorHandle value = recorder_.ends_[static_cast<size_t>(index_)].at(stream);
      Reading reading;
      if (recorder_.at(value).section == index_) {
        reading = recorder_.at(value).inputs[0];
      } else {
        reading.stream = stream;
      }
      leaving.emplace_back(stream, std::move(reading));
    }
    return leaving;
  }

  // Marks tensors and all that they are made of in this section.
  void Need(std::vector<TensorHandle> open) {
    while (!open.empty()) {
      const TensorHandle next = open.back();
      open.pop_back();
      if (!needed_.insert(next).second) continue;
      for (const Reading& reading : recorder_.at(next).inputs) {
        if (reading.stream.empty()) {
          open.push_back(reading.tensor);
        } else {
          read_.insert(reading.stream);
        }
      }
    }
  }

  void Enter(const std::string& stream) {
    FlowNode enter;
    enter.kind = FlowKind::kEnter;
    enter.label = stream;
    entered_[stream] = static_cast<int>(section_.nodes.size());
    section_.nodes.push_back(std::move(enter));
  }

  void Place(TensorHandle handle) {
    const Tensor& tensor = recorder_.at(handle);
    FlowNode node;
    node.kind = tensor.kind;
    node.label = tensor.label;
    node.constant.low = node.constant.high = tensor.constant;
    node.marks = tensor.marks;
    for (const Reading& reading : tensor.inputs) node.inputs.push_back(EdgeTo(reading));
    placed_[handle] = static_cast<int>(section_.nodes.size());
    section_.nodes.push_back(std::move(node));
  }

  FlowEdge EdgeTo(const Reading& reading) const {
    FlowEdge edge;
    edge.from = reading.stream.empty() ? placed_.at(reading.tensor) : entered_.at(reading.stream);
    edge.coefficient.low = edge.coefficient.high = reading.coefficient;
    edge.label = reading.label;
    return edge;
  }

  const FlowRecorder& recorder_;
  const int64_t index_;
  FlowSection section_;
  std::set<TensorHandle> needed_;
  std::set<std::string> read_;  // streams
  std::map<std::string, int> entered_;
  std::map<TensorHandle, int> placed_;
};

FlowSection FlowRecorder::Section(int64_t index) const { return Extraction(*this, index).Run(); }

}  // namespace plumb
