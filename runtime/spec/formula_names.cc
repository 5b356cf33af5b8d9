// SPDX-License-Identifier: Apache-2.0
// Resolution of the names in a formula: variables, learned values, scalars.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/spec/formula_eval.h"

namespace plumb {
namespace {

constexpr int64_t kMaxLearnedValues = 10000;  // at one place; each becomes a value of the graph

// Returns "a, b, c" with the first few names.
std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kMax = 12;
  std::string text = absl::StrJoin(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMax)),
      ", ");
  return names.size() > kMax ? absl::StrCat(text, ", ...") : text;
}

// Returns the model's table of that name, or null.
const TokenTable* FindTokenTable(const ResolvedModel& model, const std::string& name) {
  const auto it = std::find_if(model.token_tables.begin(), model.token_tables.end(),
                               [&name](const TokenTable& table) { return table.name == name; });
  return it == model.token_tables.end() ? nullptr : &*it;
}

// Returns the read of a table. `layer` is in 1..n_layer if the table is per_layer, and otherwise
// ignored.
TokenEmbeddingSite ToSite(const TokenTable& table, int64_t layer) {
  TokenEmbeddingSite site;
  site.table = table.name;
  site.name = absl::StrCat("embedding.", table.name);
  if (table.per_layer) absl::StrAppend(&site.name, ".", layer - 1);
  site.width = table.width;
  return site;
}

}  // namespace

Variable* FormulaEval::FindVariable(const std::string& name) {
  for (Variables* variables : {&locals_, &walk_.streams, &walk_.indexed}) {
    if (const auto it = variables->find(name); it != variables->end()) return &it->second;
  }
  return nullptr;
}

const LearnedSpec* FormulaEval::FindLearned(const std::string& name) const {
  for (const LearnedSpec& learned : scope_.block->placement->learned) {
    if (learned.name == name) return &learned;
  }
  return nullptr;
}

const LinearSpec* FormulaEval::FindLinear(const std::string& name) const {
  for (const LinearSpec& linear : scope_.block->placement->linear) {
    if (linear.name == name) return &linear;
  }
  return nullptr;
}

Quantity FormulaEval::Read(Variable* variable) {
  variable->read = true;
  walk_.settings.Reads(variable->setting);
  return variable->value;
}

absl::Status FormulaEval::CheckExpertRows(const Expr& expr) const {
  if (!scope_.in_experts || locals_.count(expr.name) > 0) return absl::OkStatus();
  const LearnedSpec* learned = FindLearned(expr.name);
  const bool is_call = expr.kind == Expr::Kind::kCall;
  const bool is_of_tokens = expr.name == "drop" || expr.name == "drop_path" || expr.name == "shift";
  const bool has_rows = is_call ? is_of_tokens || !IsFunction(expr.name)
                                : expr.name == "input" || expr.name == "position" ||
                                      walk_.streams.count(expr.name) > 0 ||
                                      !IndexedNames(expr.name).empty() ||
                                      FindTokenTable(*scope_.model, expr.name) != nullptr ||
                                      (learned != nullptr && learned->per_channel);
  if (!has_rows) return absl::OkStatus();
  return Error(expr,
               absl::StrCat("inside experts there is no \"", expr.name, "\": rows are tokens ",
                            "sorted by expert, and statements use the point's tensor, ",
                            "functions, numbers and learned scalars"));
}

absl::StatusOr<Quantity> FormulaEval::EvaluateName(const Expr& expr) {
  PLUMB_RETURN_IF_ERROR(CheckExpertRows(expr));
  if (Variable* variable = FindVariable(expr.name)) return Read(variable);
  if (const LearnedSpec* learned = FindLearned(expr.name)) return LearnedValue(expr, *learned);
  PLUMB_ASSIGN_OR_RETURN(const std::optional<double> scalar, scalars_.Lookup(expr.name));
  if (scalar.has_value()) return Quantity::Number(*scalar);
  if (expr.name == "step") {
    return Quantity::Tensor(backend_->Step(), 1, Quantity::Level::kVector);
  }
  if (expr.name == "position") return Quantity::Tensor(backend_->Apply({"position", {}}, {}), 1);
  if (const TokenTable* table = FindTokenTable(*scope_.model, expr.name)) {
    if (!table->per_layer) return TableRows(*table, 0);
    return Error(
        expr, absl::StrCat("\"", expr.name, "\" is a table a layer; write ", expr.name, "[layer]"));
  }
  if (scope_.sublayers.count(expr.name) > 0) {
    return Error(expr,
                 absl::StrCat("\"", expr.name, "\" is a sublayer; call it: ", expr.name, "(x)"));
  }
  if (FindLinear(expr.name) != nullptr) {
    return Error(expr,
                 absl::StrCat("\"", expr.name, "\" is a projection; call it: ", expr.name, "(x)"));
  }
  if (IsFunction(expr.name)) {
    return Error(expr,
                 absl::StrCat("\"", expr.name, "\" is a function; call it: ", expr.name, "(...)"));
  }
  if (const std::vector<std::string> set = IndexedNames(expr.name); !set.empty()) {
    return Error(expr, absl::StrCat("\"", expr.name, "\" has an index; there are ", Listed(set)));
  }
  return Error(expr, absl::StrCat("unknown name \"", expr.name, "\"", HintFor(expr.name)));
}

absl::StatusOr<Quantity> FormulaEval::EvaluateIndexed(const Expr& expr) {
  PLUMB_RETURN_IF_ERROR(CheckExpertRows(expr));
  if (const LearnedSpec* learned = FindLearned(expr.name)) return LearnedValue(expr, *learned);
  PLUMB_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, Indices(expr.index));
  const std::string name = absl::StrCat(expr.name, "[", absl::StrJoin(indices, ", "), "]");
  if (const auto it = walk_.indexed.find(name); it != walk_.indexed.end()) return Read(&it->second);
  if (const TokenTable* table = FindTokenTable(*scope_.model, expr.name)) {
    return TableOfLayer(expr, *table, indices);
  }
  if (FindVariable(expr.name) != nullptr) {
    return Error(expr, absl::StrCat("\"", expr.name, "\" has no index; parts of its channels are ",
                                    "part(", expr.name, ", i, n)"));
  }
  if (const std::vector<std::string> known = IndexedNames(expr.name); !known.empty()) {
    return Error(expr, absl::StrCat("\"", name, "\" is not set", scalars_.Where(), "; there are ",
                                    Listed(known)));
  }
  PLUMB_ASSIGN_OR_RETURN(const std::optional<double> scalar, scalars_.Lookup(expr.name));
  if (scalar.has_value()) {
    return Error(expr, absl::StrCat("\"", expr.name, "\" is a number; it has no index"));
  }
  return Error(expr,
               absl::StrCat("\"", name, "\" is not set", scalars_.Where(), HintFor(expr.name)));
}

// Returns the names that are set with an index: "h[0]", "h[1]".
std::vector<std::string> FormulaEval::IndexedNames(const std::string& name) const {
  std::vector<std::string> names;
  const std::string prefix = name + "[";
  for (auto it = walk_.indexed.lower_bound(prefix);
       it != walk_.indexed.end() && it->first.compare(0, prefix.size(), prefix) == 0; ++it) {
    names.push_back(it->first);
  }
  return names;
}

Quantity FormulaEval::TableRows(const TokenTable& table, int64_t layer) {
  const TokenEmbeddingSite site = ToSite(table, layer);
  return Quantity::Tensor(backend_->TokenEmbedding(site), site.width);
}

absl::StatusOr<Quantity> FormulaEval::TableOfLayer(const Expr& expr, const TokenTable& table,
                                                   const std::vector<int64_t>& indices) {
  if (!table.per_layer) {
    return Error(expr, absl::StrCat("\"", table.name,
                                    "\" is one table for all layers; it has no "
                                    "index"));
  }
  const int64_t n_layer = scope_.model->dims.n_layer;
  if (indices.size() != 1 || indices[0] < 1 || indices[0] > n_layer) {
    return Error(expr, absl::StrCat("\"", table.name, "\" has a table for each layer, ", table.name,
                                    "[1] to ", table.name, "[", n_layer, "]", scalars_.Where()));
  }
  return TableRows(table, indices[0]);
}

absl::StatusOr<Quantity> FormulaEval::LearnedValue(const Expr& expr, const LearnedSpec& learned) {
  if (expr.index.size() != learned.index.size()) {
    std::vector<std::string> indices;
    for (const RangeText& range : learned.index) indices.push_back(range.range.variable);
    return Error(expr, learned.index.empty()
                           ? absl::StrCat("\"", learned.name,
                                          "\" has no index; declare one: index: \"i = 1..n\"")
                           : absl::StrCat("\"", learned.name, "\" has an index: ", learned.name,
                                          "[", absl::StrJoin(indices, ", "), "]"));
  }
  PLUMB_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, Indices(expr.index));
  PLUMB_ASSIGN_OR_RETURN(const auto place, GetPlace(expr, learned));
  LearnedSite site{place, 0};
  for (size_t k = 0; k < indices.size(); ++k) {
    const int64_t i = indices[k] - place->firsts[k];
    if (i < 0 || i >= place->extents[k]) {
      return Error(expr.index[k],
                   absl::StrCat(learned.name, ": ", learned.index[k].range.variable, " is in ",
                                place->firsts[k], "..", place->firsts[k] + place->extents[k] - 1,
                                ", and this is ", indices[k], scalars_.Where()));
    }
    site.index = site.index * place->extents[k] + i;
  }
  return Quantity::Tensor(backend_->Learned(site), place->width, Quantity::Level::kVector);
}

absl::StatusOr<std::shared_ptr<const LearnedPlace>> FormulaEval::GetPlace(
    const Expr& expr, const LearnedSpec& learned) {
  int64_t width = learned.per_channel ? scope_.channels : 1;
  if (learned.per_head) {
    if (scope_.heads == 0) {
      return Error(expr,
                   absl::StrCat("\"", learned.name,
                                "\" is learned per head; there are heads only inside attention"));
    }
    width = scope_.heads;
  }
  std::shared_ptr<const LearnedPlace>& known =
      walk_.learned[absl::StrCat(scope_.prefix, ".", learned.name)];
  if (known != nullptr) {
    if (known->width == width) return known;
    return Error(expr, absl::StrCat("\"", learned.name, "\" has ", known->width,
                                    " elements elsewhere in this sublayer and would have ", width,
                                    " here; use two names"));
  }
  auto place = std::make_shared<LearnedPlace>();
  place->name = absl::StrCat(scope_.prefix, ".", learned.name);
  place->width = width;
  place->weight_decay = learned.weight_decay;
  ScalarScope scalars = scope_.scalars;
  int64_t count = 1;
  for (const RangeText& text : learned.index) {
    const auto end = [&](const Expr& end_expr) {
      return EvaluateScalar({text.text, end_expr}, scalars);
    };
    PLUMB_ASSIGN_OR_RETURN(const double first, end(text.range.first));
    PLUMB_ASSIGN_OR_RETURN(const double last, end(text.range.last));
    const bool whole = first == std::floor(first) && last == std::floor(last);
    if (!whole || last < first || last - first >= static_cast<double>(kMaxRangeValues) ||
        std::abs(first) > 1e9) {
      return ErrorInText(
          text.text, text.range.offset,
          absl::StrCat("learned \"", learned.name, "\": ", first, "..", last, scalars.Where(),
                       " is not a range of 1 to ", kMaxRangeValues, " whole numbers"));
    }
    place->firsts.push_back(static_cast<int64_t>(first));
    place->extents.push_back(static_cast<int64_t>(last - first) + 1);
    count *= place->extents.back();
    if (count > kMaxLearnedValues) {
      return ErrorInText(text.text, text.range.offset,
                         absl::StrCat("learned \"", learned.name, "\" would have ", count,
                                      " values", scalars.Where(), "; at most ", kMaxLearnedValues));
    }
  }
  for (int64_t flat = 0; flat < count; ++flat) {
    scalars.indices = scope_.scalars.indices;
    int64_t inner = count, rest = flat;
    for (size_t k = 0; k < place->extents.size(); ++k) {
      inner /= place->extents[k];
      const int64_t index = place->firsts[k] + rest / inner;
      scalars.indices.emplace_back(learned.index[k].range.variable, static_cast<double>(index));
      rest %= inner;
    }
    PLUMB_ASSIGN_OR_RETURN(const double value, EvaluateScalar(learned.init, scalars));
    if (!std::isfinite(static_cast<float>(value))) {
      return ErrorInText(
          learned.init.text, learned.init.root.offset,
          absl::StrCat("an initial value of ", value, " is too large for f32", scalars.Where()));
    }
    place->init.push_back(value);
  }
  return known = std::move(place);
}

std::vector<std::string> FormulaEval::KnownNames() const {
  std::vector<std::string> names = scalars_.Names();
  for (const auto& [name, variable] : locals_) names.push_back(name);
  for (const auto& [name, variable] : walk_.streams) names.push_back(name);
  for (const auto& [name, variable] : walk_.indexed)
    names.push_back(name.substr(0, name.find('[')));
  for (const LearnedSpec& learned : scope_.block->placement->learned) names.push_back(learned.name);
  for (const TokenTable& table : scope_.model->token_tables) names.push_back(table.name);
  return names;
}

std::string FormulaEval::HintFor(const std::string& name) const {
  const bool is_in_layers =
      scope_.kind == FormulaScope::Kind::kEach || scope_.kind == FormulaScope::Kind::kBlock;
  const std::string begin = absl::StrCat(
      "; to keep its value from layer to layer, write also begin: \"", name, " = 0 * x\"");
  for (const Statement& statement : *statements_) {
    if (statement.target != name) continue;
    const std::string hint = is_in_layers && statement.index.empty() ? begin : "";
    if (&statement > current_) return absl::StrCat("; it is set further down", hint);
    if (&statement < current_) {
      return absl::StrCat("; the condition under which it is set does not hold", scalars_.Where());
    }
    if (!hint.empty()) return absl::StrCat("; it has no value before this", hint);
  }
  if (name == "input") return "; it is what a sublayer was given, and has a value only inside one";
  std::string hint = scalars_.Hint(name, KnownNames());
  if (!hint.empty()) return hint;
  if (absl::StrContains(name, "norm")) return absl::StrCat("; a norm is called: ", name, "(x)");
  std::vector<std::string> here;
  for (const auto& [local, variable] : locals_) here.push_back(local);
  for (const auto& [stream, variable] : walk_.streams) here.push_back(stream);
  for (const auto& [indexed, variable] : walk_.indexed) here.push_back(indexed);
  for (const LearnedSpec& learned : scope_.block->placement->learned) here.push_back(learned.name);
  for (const Statement& let : scope_.block->placement->lets) here.push_back(let.target);
  const std::vector<std::string> numbers = scalars_.Names();
  for (const char* const place : {"layer", "sublayer"}) {
    if (std::count(numbers.begin(), numbers.end(), place) > 0) here.push_back(place);
  }
  return absl::StrCat("; here there are ", Listed(here), ", and the model's dimensions");
}

}  // namespace plumb
