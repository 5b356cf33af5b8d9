// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/tensor_plan.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/zoo/tensor_names.h"

namespace plumb {
namespace {

absl::StatusOr<AxisSlice> MakeSlice(const std::optional<SliceRule>& rule,
                                    const ConfigValues& values, const TensorNumbers& numbers) {
  const int64_t layer = numbers.layer + 1, head = numbers.head;
  AxisSlice part;
  if (!rule.has_value()) return part;
  if (rule->groups.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(part.groups, EvaluateCount(*rule->groups, values, layer, head));
  }
  if (rule->first.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(part.first, EvaluateCount(*rule->first, values, layer, head));
  }
  PLUMB_ASSIGN_OR_RETURN(part.count, EvaluateCount(rule->count, values, layer, head));
  return part;
}

absl::StatusOr<TensorPiece> Resolve(const TensorRule& rule, const ConfigValues& values,
                                    const WantedTensor& wanted, const TensorNumbers& numbers) {
  const int64_t layer = numbers.layer;
  TensorPiece piece;
  piece.name = wanted.name;
  piece.shape = wanted.shape;
  piece.transpose = rule.transpose;
  piece.depthwise = rule.depthwise;
  if (rule.flat_rows.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(piece.flat_rows, EvaluateCount(*rule.flat_rows, values, layer + 1));
  }
  if (rule.fill.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(piece.fill, Evaluate(*rule.fill, values, layer + 1));
    return piece;
  }
  const bool stacked = NamesExperts(rule.source.value);
  constexpr int64_t kMaxExperts = 65536;  // each is a name
  const int64_t count = stacked && wanted.shape.rank() > 0 ? wanted.shape[0] : 1;
  if (count > kMaxExperts) {
    return absl::InvalidArgumentError(absl::StrCat(wanted.name, wanted.shape.ToString(),
                                                   ": has more than ", kMaxExperts, " experts"));
  }
  for (int64_t i = 0; i < count; ++i) {
    piece.sources.push_back(FillTensorName(rule.source.value, layer, i, numbers.head));
  }
  if (!stacked) piece.older = FillTensorName(rule.older, layer, 0);
  PLUMB_ASSIGN_OR_RETURN(piece.rows, MakeSlice(rule.rows, values, numbers));
  PLUMB_ASSIGN_OR_RETURN(piece.columns, MakeSlice(rule.columns, values, numbers));
  return piece;
}

class Planner {
 public:
  Planner(const Family& family, const ConfigValues& values, const CheckpointDirectory& checkpoint)
      : family_(family), values_(values), checkpoint_(checkpoint) {
    for (const CheckpointTensor& tensor : checkpoint.tensors()) {
      by_name_.emplace(Short(tensor.entry->name), &tensor);
    }
  }

  absl::StatusOr<TensorPlan> Plan(std::vector<TensorPiece> pieces) {
    for (TensorPiece& piece : pieces) Add(std::move(piece));
    CheckCovered();
    PLUMB_RETURN_IF_ERROR(FindSurplus());
    if (errors_.empty()) return std::move(plan_);
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint_.path(), ": its tensors are not those that config.json makes of ",
                     family_.name, ":\n  ", ListDiagnostics(errors_, "\n  ")));
  }

 private:
  template <class... Words>
  void AddError(const Words&... words) {
    errors_.push_back(absl::StrCat(words...));
  }

  absl::string_view Short(absl::string_view name) const {
    return WithoutPrefix(name, family_.prefixes);
  }

  const CheckpointTensor* Find(absl::string_view name) const {
    const auto at = by_name_.find(Short(name));
    return at == by_name_.end() ? nullptr : at->second;
  }

  void Add(TensorPiece piece) {
    PlannedTensor planned;
    planned.dtype = "F32";
    bool good = true;
    for (const std::string& name : piece.sources) {
      const CheckpointTensor* found = Find(name);
      if (found == nullptr && !piece.older.empty()) found = Find(piece.older);
      if (found == nullptr) {
        if (missing_.insert(name).second) {
          AddError("missing: ", name, ", for ", piece.name, piece.shape.ToString());
        }
        good = false;
        continue;
      }
      used_.insert(found);
      good = Check(piece, *found, planned.sources) && good;
      planned.sources.push_back(found);
    }
    if (!good) return;
    if (!planned.sources.empty()) planned.dtype = planned.sources[0]->entry->dtype;
    for (const CheckpointTensor* source : planned.sources) {
      covered_[source] += piece.shape.num_elements() / static_cast<int64_t>(piece.sources.size());
    }
    planned.piece = std::move(piece);
    plan_.tensors.push_back(std::move(planned));
  }

  bool Check(const TensorPiece& piece, const CheckpointTensor& found,
             const std::vector<const CheckpointTensor*>& before) {
    const TensorEntry& entry = *found.entry;
    if (entry.dtype != "F32" && entry.dtype != "BF16" && entry.dtype != "F16") {
      AddError("of another type: ", QuoteName(entry.name), " is ", entry.dtype,
               "; F32, BF16 and F16 are read");
      return false;
    }
    const std::string why = piece.WhyNot(entry.shape);
    if (!why.empty()) {
      AddError("misshapen: ", QuoteName(entry.name), " is ", entry.shape.ToString(), ", and ", why,
               "; ", piece.name, " is ", piece.shape.ToString());
      return false;
    }
    if (before.empty()) return true;
    const TensorEntry& first = *before[0]->entry;
    if (first.dtype == entry.dtype && first.shape == entry.shape) return true;
    AddError("of another type: ", QuoteName(entry.name), " is ", entry.dtype,
             entry.shape.ToString(), ", ", QuoteName(first.name), " ", first.dtype,
             first.shape.ToString(),
             "; plumb makes one tensor of them, so they must be of one type and shape");
    return false;
  }

  // Reports sources with elements that no piece uses, since they would be lost silently.
  void CheckCovered() {
    if (!errors_.empty()) return;
    for (const auto& [source, elements] : covered_) {
      const int64_t all = source->entry->shape.num_elements();
      if (elements == all) continue;
      AddError("misshapen: ", QuoteName(source->entry->name), " is ",
               source->entry->shape.ToString(), ", ", all, " elements, and the model takes ",
               elements);
    }
  }

  absl::Status FindSurplus() {
    for (const CheckpointTensor& tensor : checkpoint_.tensors()) {
      if (used_.count(&tensor) > 0) continue;
      PLUMB_ASSIGN_OR_RETURN(const IgnoredRule* rule, RuleToIgnore(tensor));
      if (rule == nullptr) {
        AddError("surplus: ", QuoteName(tensor.entry->name), " ", tensor.entry->dtype,
                 tensor.entry->shape.ToString());
        continue;
      }
      CheckSame(tensor, *rule);
      CheckValue(tensor, *rule);
      plan_.ignored.push_back({&tensor, rule->reason});
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const IgnoredRule*> RuleToIgnore(const CheckpointTensor& tensor) const {
    for (const IgnoredRule& rule : family_.ignored) {
      const std::optional<TensorNumbers> numbers =
          MatchTensorName(Short(rule.name.value), Short(tensor.entry->name));
      if (!numbers.has_value()) continue;
      PLUMB_ASSIGN_OR_RETURN(const bool holds, Holds(rule.when, values_, Layer(numbers->layer)));
      if (holds) return &rule;
    }
    return nullptr;
  }

  // Returns the layer as expressions count it, or 0 if there is no such layer.
  int64_t Layer(int64_t layer) const {
    return layer >= 0 && layer < values_.n_layer() ? layer + 1 : 0;
  }

  void CheckSame(const CheckpointTensor& tensor, const IgnoredRule& rule) {
    if (rule.same_as.empty()) return;
    const CheckpointTensor* other = Find(rule.same_as);
    if (other == nullptr) return;  // reported as missing
    const TensorEntry &a = *tensor.entry, &b = *other->entry;
    std::string computed_a, computed_b;
    if (a.dtype == b.dtype && a.shape == b.shape &&
        tensor.Data(&computed_a) == other->Data(&computed_b)) {
      return;
    }
    AddError("surplus: ", QuoteName(a.name), " must be equal to ", QuoteName(b.name),
             ", but differs");
  }

  void CheckValue(const CheckpointTensor& tensor, const IgnoredRule& rule) {
    if (!rule.value.has_value()) return;
    const TensorEntry& entry = *tensor.entry;
    std::string computed;
    const absl::string_view data = tensor.Data(&computed);
    constexpr double kRounding = 1.0 / 128;  // of bf16, and of small numbers in f16
    for (int64_t i = 0; i < entry.shape.num_elements(); ++i) {
      const double value = ElementAt(entry.dtype, data, i);
      if (std::abs(value - *rule.value) <= kRounding * std::abs(*rule.value)) continue;
      AddError("another value: ", QuoteName(entry.name), " is ", value,
               ", and plumb computes with ", *rule.value);
      return;
    }
  }

  const Family& family_;
  const ConfigValues& values_;
  const CheckpointDirectory& checkpoint_;
  std::map<absl::string_view, const CheckpointTensor*> by_name_;  // by name without prefix
  TensorPlan plan_;
  std::vector<std::string> errors_;
  std::set<std::string> missing_;
  std::set<const CheckpointTensor*> used_;
  std::map<const CheckpointTensor*, int64_t> covered_;
};

}  // namespace

absl::StatusOr<std::vector<TensorPiece>> ResolvePieces(const Family& family,
                                                       const ConfigValues& values,
                                                       absl::Span<const WantedTensor> wanted) {
  std::vector<TensorPiece> pieces;
  std::vector<std::string> errors;
  for (const WantedTensor& tensor : wanted) {
    const size_t before = pieces.size();
    for (const TensorRule& rule : family.tensors) {
      const std::optional<TensorNumbers> numbers = MatchTensorName(rule.to.value, tensor.name);
      if (!numbers.has_value()) continue;
      PLUMB_ASSIGN_OR_RETURN(const bool holds, Holds(rule.when, values, numbers->layer + 1));
      if (!holds) continue;
      PLUMB_ASSIGN_OR_RETURN(TensorPiece piece, Resolve(rule, values, tensor, *numbers));
      pieces.push_back(std::move(piece));
    }
    if (pieces.size() - before != 1) {
      errors.push_back(absl::StrCat(tensor.name, tensor.shape.ToString(),
                                    pieces.size() == before ? ": no rule of the file makes it"
                                                            : ": two rules of the file make it"));
    }
  }
  if (errors.empty()) return pieces;
  return absl::InvalidArgumentError(absl::StrCat(family.file, ": does not fit its own model:\n  ",
                                                 ListDiagnostics(errors, "\n  ")));
}

absl::StatusOr<std::vector<std::pair<std::string, double>>> ConstantTensors(
    const Family& family, const ConfigValues& values) {
  std::vector<std::pair<std::string, double>> tensors;
  for (const IgnoredRule& rule : family.ignored) {
    if (!rule.value.has_value()) continue;
    for (int64_t layer = 0; layer < values.n_layer(); ++layer) {
      const std::string name = FillTensorName(rule.name.value, layer, /*expert=*/0);
      if (!tensors.empty() && tensors.back().first == name) continue;  // not of a layer
      PLUMB_ASSIGN_OR_RETURN(const bool holds, Holds(rule.when, values, layer + 1));
      if (holds) tensors.emplace_back(name, *rule.value);
    }
  }
  return tensors;
}

absl::StatusOr<TensorPlan> PlanTensors(const Family& family, const ConfigValues& values,
                                       absl::Span<const WantedTensor> wanted,
                                       const CheckpointDirectory& checkpoint) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<TensorPiece> pieces, ResolvePieces(family, values, wanted));
  return Planner(family, values, checkpoint).Plan(std::move(pieces));
}

}  // namespace plumb
