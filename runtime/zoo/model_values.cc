// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/model_values.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/zoo/model_fields.h"

namespace plumb {
namespace {

using textproto::Field;
using textproto::FieldType;
using textproto::Message;

// Text that a description has in the place of an expression of the family.
struct Capture {
  Expression expression;
  std::string text;
};

// Comparison of a piece of a family with a description, which collects the captures of its
// templates.
class PieceMatcher {
 public:
  // `agrees` decides whether a capture is possible. `claimed` are the paths of elements that belong
  // to other pieces.
  PieceMatcher(std::function<bool(const Capture&)> agrees, const std::set<std::string>* claimed)
      : agrees_(std::move(agrees)), claimed_(claimed) {}

  // Returns true if the description has all that the piece sets.
  bool Match(const TemplateRule& piece, const Message& model) {
    bool all = MatchFields(piece.set, "", model, "");
    for (const ComputedFieldRule& computed : piece.computed) {
      std::string path = computed.path.value;
      for (const auto& [own, other] : elements_) {
        if (absl::StartsWith(path, own)) path = absl::StrCat(other, path.substr(own.size()));
      }
      const std::optional<std::string> text = FieldText(model, path);
      const bool is_constant = computed.text.expressions.empty();
      if (!text.has_value() && !is_constant) continue;  // the default
      if (text.has_value() && MatchText(computed.text, *text)) continue;
      all = false;
      unmatched.push_back(absl::StrCat(path, " = ", computed.text.text.value));
    }
    return all;
  }

  std::vector<Capture> captures;
  std::vector<std::string> unmatched;
  int weight = 0;  // number of values that match

  // Returns the paths of the matched elements that have no name.
  std::set<std::string> Elements() const {
    std::set<std::string> paths;
    for (const auto& [own, other] : elements_) paths.insert(other);
    return paths;
  }

 private:
  // Returns the path of a field of the message at `path`, or of its element, by its name if it has
  // one.
  static std::string PathOf(const std::string& path, const Message& message, const Field& field,
                            int index) {
    const std::string at = absl::StrCat(path, path.empty() ? "" : ".", field.name);
    if (!field.repeated()) return at;
    std::string name;
    if (field.type == FieldType::kMessage) name = GetName(message.GetMessage(field, index));
    return name.empty() ? absl::StrCat(at, "[", index, "]") : absl::StrCat(at, "[", name, "]");
  }

  bool MatchFields(const Message& piece, const std::string& own, const Message& model,
                   const std::string& other) {
    bool all = true;
    for (const Field& field : piece.Type().fields) {
      if (absl::string_view(field.name) == "doc") continue;
      int next = 0;  // elements without a name keep their order
      for (int i = 0; i < piece.Size(field); ++i) {
        const bool is_message = field.type == FieldType::kMessage;
        const int count = field.repeated() || is_message ? model.Size(field) : 1;
        int at = next;
        const auto matches = [&] {
          const std::string path = PathOf(other, model, field, at);
          return is_message
                     ? MatchMessage(piece.GetMessage(field, i), PathOf(own, piece, field, i),
                                    model.GetMessage(field, at), path, field.repeated(), &all)
                     : MatchValue(FieldText(piece, PathOf("", piece, field, i)),
                                  FieldText(model, PathOf("", model, field, at)));
        };
        while (at < count && !matches()) ++at;
        if (at == count) {
          all = false;
          const std::string wanted =
              is_message ? "" : absl::StrCat(" = ", *FieldText(piece, PathOf("", piece, field, i)));
          unmatched.push_back(absl::StrCat(PathOf(own, piece, field, i), wanted));
        } else if (!is_message || GetName(piece.GetMessage(field, i)).empty()) {
          next = at + 1;
        }
      }
    }
    return all;
  }

  // Returns true if `model` is the message of the description that belongs to the piece's: the one
  // with its name, or one without a name that has all of its values.
  bool MatchMessage(const Message& piece, const std::string& own, const Message& model,
                    const std::string& other, bool is_element, bool* all) {
    const std::string name = GetName(piece);
    if (!name.empty() && name != GetName(model)) return false;
    if (!is_element || !name.empty()) {
      *all = MatchFields(piece, own, model, other) && *all;
      return true;
    }
    if (claimed_->count(other) > 0) return false;
    PieceMatcher before = *this;
    const bool matches = MatchFields(piece, own, model, other);
    if (!matches) *this = std::move(before);
    if (matches) elements_.emplace_back(own, other);
    return matches;
  }

  bool MatchValue(const std::optional<std::string>& piece,
                  const std::optional<std::string>& model) {
    if (!piece.has_value() || !model.has_value()) return false;
    const absl::StatusOr<TextTemplate> text = ParseTemplate({*piece, {}});
    return text.ok() && MatchText(*text, *model);
  }

  // Returns true if the text is the template with other texts in place of its expressions.
  bool MatchText(const TextTemplate& pattern, absl::string_view text) {
    const size_t n = pattern.expressions.size();
    if (!absl::StartsWith(text, pattern.literals[0]) || (n == 0 && text != pattern.literals[0])) {
      return false;
    }
    std::vector<Capture> found;
    size_t at = pattern.literals[0].size();
    for (size_t i = 0; i < n; ++i) {
      const std::string& next = pattern.literals[i + 1];
      const bool is_last = i + 1 == n;
      if (is_last && !absl::EndsWith(text, next)) return false;
      const size_t end = is_last ? text.size() - next.size() : text.find(next, at + 1);
      if (end > text.size() || end <= at) return false;
      found.push_back({pattern.expressions[i], std::string(text.substr(at, end - at))});
      if (!agrees_(found.back())) return false;
      at = end + next.size();
    }
    captures.insert(captures.end(), found.begin(), found.end());
    // An expression alone can have any value, unless it is a name.
    const bool is_open = n == 1 && pattern.literals[0].empty() && pattern.literals[1].empty();
    if (!is_open || pattern.expressions[0].root.kind == Expr::Kind::kName) ++weight;
    return true;
  }

  std::function<bool(const Capture&)> agrees_;
  const std::set<std::string>* claimed_;
  std::vector<std::pair<std::string, std::string>> elements_;  // paths in piece and description
};

// Value of a scalar that a condition requires.
struct Literal {
  std::string name;
  std::optional<double> value;  // nullopt: any but 0
};

// Adds the literals whose conjunction is the condition, or its negation if it does not hold.
// Returns false if other conditions belong to it.
bool GetLiterals(const Expr& condition, bool holds, std::vector<Literal>* literals) {
  const std::vector<Expr>& args = condition.args;
  if (condition.kind == Expr::Kind::kNumber) return (condition.number != 0) == holds;
  if (condition.kind == Expr::Kind::kName) {
    literals->push_back({condition.name, holds ? std::nullopt : std::optional<double>(0)});
    return true;
  }
  if (condition.name == "not") return GetLiterals(args[0], !holds, literals);
  if (condition.name == (holds ? "and" : "or")) {
    const bool left = GetLiterals(args[0], holds, literals);
    return GetLiterals(args[1], holds, literals) && left;
  }
  if (condition.name != "==" || !holds || args[0].kind != Expr::Kind::kName ||
      args[1].kind != Expr::Kind::kNumber) {
    return false;
  }
  literals->push_back({args[0].name, args[1].number});
  return true;
}

bool AlmostEqual(double a, double b) {
  constexpr double kTolerance = 1e-12;
  return std::abs(a - b) <= kTolerance * std::max(1.0, std::abs(b));
}

// Returns the fact that a scalar has: "norm_attr.eps" for the field "norm[ln].attr[eps].number".
std::string GetFact(const ScalarRule& rule) {
  if (rule.name.value == "n_layer") return "n_layer";  // its field may be that of a group of layers
  const std::string& path = rule.model_field.path.value;
  const std::vector<absl::string_view> parts = absl::StrSplit(path, absl::ByAnyChar("[]"));
  const bool is_attribute =
      parts.size() == 5 && parts[0] == "norm" && parts[2] == ".attr" && parts[4] == ".number";
  return is_attribute ? absl::StrCat("norm_attr.", parts[3]) : path;
}

class ModelReader {
 public:
  ModelReader(const Family& family, const v1::Model& model,
              const std::map<std::string, double>& facts)
      : family_(family), model_(model) {
    facts_.scalars = facts;
    facts_.scalars.emplace("n_layer", model.n_layer());
    for (const v1::Layers& group : model.layers()) {
      const int count = group.has_repeat() ? group.repeat() : group.block_size();
      for (int i = 0; i < count; ++i) AddLayer(group.block(i % group.block_size()));
    }
    while (static_cast<int64_t>(layers_.size()) < facts_.n_layer()) AddLayer(model.block());
  }

  ModelValues Read() {
    ReadModelFields();
    std::vector<Matched> conditional;
    for (const TemplateRule& piece : family_.model) {
      std::vector<Literal> literals;
      if (!piece.when.has_value() ||
          (GetLiterals(piece.when->root, true, &literals) && literals.empty())) {
        LearnPiece(piece);
      }
    }
    for (const TemplateRule& piece : family_.model) {
      if (!piece.when.has_value()) continue;
      const int64_t last = piece.per_layer ? facts_.n_layer() : 0;
      for (int64_t layer = piece.per_layer ? 1 : 0; layer <= last; ++layer) {
        PieceMatcher matcher = NewMatcher(layer);
        const bool matches =
            matcher.Match(piece, layer == 0 ? model_ : layers_[static_cast<size_t>(layer - 1)]);
        conditional.push_back({&*piece.when, layer, std::move(matcher), matches});
      }
    }
    // A piece may contain all of another one, whose condition does not hold.
    std::stable_sort(
        conditional.begin(), conditional.end(),
        [](const Matched& a, const Matched& b) { return a.matcher.weight > b.matcher.weight; });
    for (const Matched& piece : conditional) {
      if (piece.matches && piece.matcher.weight > 0) LearnCondition(piece);
    }
    for (const Matched& piece : conditional) {
      if (!piece.matches && piece.layer == 0) LearnAbsence(*piece.when);
    }
    for (const auto& [name, by_layer] : by_layer_) {
      if (static_cast<int64_t>(by_layer.size()) < facts_.n_layer()) continue;
      for (const auto& [layer, value] : by_layer) known_.by_layer[name].push_back(value);
    }
    Solve();
    const ConfigValues all = Complete();
    for (const ScalarRule& rule : family_.scalars) {
      const std::string& name = rule.name.value;
      if (!rule.on_export.has_value()) continue;
      if (all.scalars.count(name) > 0) known_.scalars[name] = all.scalars.at(name);
      if (all.by_layer.count(name) > 0) known_.by_layer[name] = all.by_layer.at(name);
    }
    return {std::move(known_), std::move(unread_)};
  }

 private:
  // Piece with a condition, compared with the model or with one layer (from 1).
  struct Matched {
    const Expression* when;
    int64_t layer;
    PieceMatcher matcher;
    bool matches;
  };
  // Value that an expression must have.
  struct Equation {
    Expression expression;
    int64_t layer;
    double value;
  };

  void AddLayer(const v1::Block& block) {
    v1::Model& layer = layers_.emplace_back(model_);
    layer.clear_layers();
    *layer.add_layers()->add_block() = block;
  }

  PieceMatcher NewMatcher(int64_t layer) const {
    return PieceMatcher([this, layer](const Capture& capture) { return Agrees(capture, layer); },
                        &claimed_);
  }

  // Returns the values of an expression in the layers from `first` to `last`; empty if one has
  // none.
  static std::vector<double> EvaluateIn(const Expression& expression, const ConfigValues& values,
                                        int64_t first, int64_t last) {
    std::vector<double> results;
    for (int64_t layer = first; layer <= last; ++layer) {
      const absl::StatusOr<double> value = Evaluate(expression, values, layer);
      if (!value.ok()) return {};
      results.push_back(*value);
    }
    return results;
  }

  // Returns the values that a text gives a scalar, by layer: one, or those of all layers if no
  // layer is given and it has one for each; empty if the text is not a number.
  std::map<int64_t, double> ValuesOf(const std::string& text, const ScalarRule* rule,
                                     int64_t layer) const {
    const absl::StatusOr<Expression> expression = ParseExpression({text, {}});
    if (!expression.ok()) return {};
    const bool all = rule != nullptr && rule->per_layer && layer == 0;
    const int64_t first = all ? 1 : layer;
    const std::vector<double> values =
        EvaluateIn(*expression, facts_, first, all ? facts_.n_layer() : layer);
    std::map<int64_t, double> by_layer;
    for (size_t i = 0; i < values.size(); ++i)
      by_layer[first + static_cast<int64_t>(i)] = values[i];
    return by_layer;
  }

  std::optional<double> Known(const std::string& name, int64_t layer) const {
    const auto scalar = known_.scalars.find(name);
    if (scalar != known_.scalars.end()) return scalar->second;
    const auto by_layer = by_layer_.find(name);
    if (by_layer == by_layer_.end() || by_layer->second.count(layer) == 0) return std::nullopt;
    return by_layer->second.at(layer);
  }

  static std::string NameOf(const Expression& expression) {
    const Expr& root = expression.root;
    return root.kind == Expr::Kind::kName && root.index.empty() ? root.name : "";
  }

  // Returns true if the text can be the value of the expression.
  bool Agrees(const Capture& capture, int64_t layer) const {
    const std::string name = NameOf(capture.expression);
    if (const auto* word = FindRule(family_.string_variables, name); word != nullptr) {
      return word->numbers || std::any_of(word->choices.begin(), word->choices.end(),
                                          [&capture](const MappingRule& choice) {
                                            return choice.text.text.value == capture.text;
                                          });
    }
    const auto values = ValuesOf(capture.text, FindRule(family_.scalars, name), layer);
    for (const auto& [at, value] : values) {
      const std::optional<double> known = Known(name, at);
      if (known.has_value() && !AlmostEqual(*known, value)) return false;
    }
    return !values.empty();
  }

  void Learn(const Capture& capture, int64_t layer) {
    const std::string name = NameOf(capture.expression);
    if (const auto* word = FindRule(family_.string_variables, name); word != nullptr) {
      known_.string_variables.emplace(name, capture.text);
      for (const MappingRule& choice : word->choices) {
        std::vector<Literal> literals;
        if (!choice.when.has_value() || choice.text.text.value != capture.text) continue;
        GetLiterals(choice.when->root, true, &literals);
        Require(literals, layer);
        return;
      }
      return;
    }
    const ScalarRule* const rule = FindRule(family_.scalars, name);
    for (const auto& [at, value] : ValuesOf(capture.text, rule, layer)) {
      if (rule == nullptr) {
        equations_.push_back({capture.expression, at, value});
      } else {
        Set(*rule, at, value);
      }
    }
  }

  // Notes the value of a scalar, unless it has one. Layer 0 stands for all layers.
  void Set(const ScalarRule& rule, int64_t layer, double value) {
    const std::string& name = rule.name.value;
    if (rule.per_layer && layer == 0) {
      for (layer = 1; layer <= facts_.n_layer(); ++layer) Set(rule, layer, value);
      return;
    }
    const bool is_new = rule.per_layer ? by_layer_[name].emplace(layer, value).second
                                       : known_.scalars.emplace(name, value).second;
    if (is_new && rule.value.has_value()) equations_.push_back({*rule.value, layer, value});
  }

  void Require(const std::vector<Literal>& literals, int64_t layer) {
    for (const Literal& literal : literals) {
      const ScalarRule* const rule = FindRule(family_.scalars, literal.name);
      if (rule == nullptr) continue;
      const bool is_flag =
          rule->kind == v1::Scalar::FLAG || !rule->choices.empty() || rule->per_layer;
      if (literal.value.has_value() || is_flag) Set(*rule, layer, literal.value.value_or(1));
    }
  }

  // Returns true if the literal is known to hold, or not to hold.
  std::optional<bool> Holds(const Literal& literal, int64_t layer) const {
    const std::optional<double> known = Known(literal.name, layer);
    if (!known.has_value()) return std::nullopt;
    return literal.value.has_value() ? AlmostEqual(*known, *literal.value) : *known != 0;
  }

  void ReadModelFields() {
    const auto learn = [this](const SourceText& name, const std::optional<std::string>& text) {
      const absl::StatusOr<Expression> expression = ParseExpression({name.value, {}});
      if (!text.has_value() || !expression.ok()) return;
      const Capture capture{*expression, *text};
      if (Agrees(capture, 0)) Learn(capture, 0);
    };
    for (const ScalarRule& rule : family_.scalars) {
      const auto fact = facts_.scalars.find(GetFact(rule));
      if (fact != facts_.scalars.end()) {
        Set(rule, 0, fact->second);
      } else if (!rule.model_field.path.value.empty()) {
        learn(rule.name, FieldText(model_, rule.model_field.path.value));
      }
    }
    for (const StringVariableRule& rule : family_.string_variables) {
      if (rule.model_field.path.value.empty()) continue;
      learn(rule.name, FieldText(model_, rule.model_field.path.value));
    }
  }

  // Reads a piece that belongs to every model of the family.
  void LearnPiece(const TemplateRule& piece) {
    PieceMatcher matcher = NewMatcher(0);
    matcher.Match(piece, model_);
    for (const Capture& capture : matcher.captures) Learn(capture, 0);
    for (const std::string& path : matcher.Elements()) claimed_.insert(path);
    unread_.insert(unread_.end(), matcher.unmatched.begin(), matcher.unmatched.end());
  }

  // Reads a piece that the model has, unless its condition is known not to hold.
  void LearnCondition(const Matched& piece) {
    std::vector<Literal> literals;
    GetLiterals(piece.when->root, true, &literals);
    for (const Literal& literal : literals) {
      if (Holds(literal, piece.layer) == false) return;
    }
    for (const Capture& capture : piece.matcher.captures) {
      if (!Agrees(capture, piece.layer)) return;
    }
    Require(literals, piece.layer);
    for (const Capture& capture : piece.matcher.captures) Learn(capture, piece.layer);
  }

  // Notes the value of the only literal that can be the reason why the model lacks a piece.
  void LearnAbsence(const Expression& when) {
    std::vector<Literal> literals, open;
    if (!GetLiterals(when.root, true, &literals)) return;
    for (const Literal& literal : literals) {
      const std::optional<bool> holds = Holds(literal, 0);
      if (holds == false) return;
      if (!holds.has_value()) open.push_back(literal);
    }
    if (open.size() != 1 || open[0].value.value_or(0) != 0) return;
    open[0].value = open[0].value.has_value() ? std::nullopt : std::optional<double>(0);
    Require(open, 0);
  }

  // Returns the known values and those that follow from them, with values on export or defaults for
  // the others.
  ConfigValues Complete() const {
    ConfigValues all = known_;
    const int64_t n_layer = facts_.n_layer();
    // A value on export may read scalars that follow. It has no effect if they depend on it.
    bool added = true, uses_exported = true;
    while (added || std::exchange(uses_exported, false)) {
      added = false;
      for (const ScalarRule& rule : family_.scalars) {
        const std::string& name = rule.name.value;
        const bool is_exported = uses_exported && rule.on_export.has_value();
        const std::optional<Expression>& value = rule.value.has_value() ? rule.value
                                                 : is_exported          ? rule.on_export
                                                                        : rule.absent;
        if (!value.has_value() || all.scalars.count(name) + all.by_layer.count(name) > 0) continue;
        std::vector<double> values =
            EvaluateIn(*value, all, rule.per_layer ? 1 : 0, rule.per_layer ? n_layer : 0);
        if (values.empty()) continue;
        added = true;
        if (rule.per_layer) {
          all.by_layer[name] = std::move(values);
        } else {
          all.scalars[name] = values[0];
        }
      }
    }
    return all;
  }

  static bool Holds(const Equation& equation, const ConfigValues& values) {
    const absl::StatusOr<double> value = Evaluate(equation.expression, values, equation.layer);
    return value.ok() && AlmostEqual(*value, equation.value);
  }

  int64_t CountWrong() const {
    const ConfigValues all = Complete();
    return std::count_if(equations_.begin(), equations_.end(),
                         [&all](const Equation& equation) { return !Holds(equation, all); });
  }

  // Returns true if config.json can state the value.
  bool CanBe(const ScalarRule& rule, double value) const {
    if (rule.choices.empty()) {
      return (rule.kind != v1::Scalar::FLAG || value == 0 || value == 1) &&
             (rule.kind != v1::Scalar::SIZE || value >= 1);
    }
    return std::any_of(rule.choices.begin(), rule.choices.end(), [&](const ScalarChoice& choice) {
      const absl::StatusOr<double> stated = Evaluate(choice.value, known_);
      return stated.ok() && *stated == value;
    });
  }

  // Changes defaults to small whole numbers or values of equations, one at a time, until all
  // equations hold. Values on export stay.
  void Solve() {
    std::set<double> candidates;
    for (const Equation& equation : equations_) candidates.insert(equation.value);
    for (int64_t i = std::max<int64_t>(8, facts_.n_layer()); i >= 0; --i) {
      candidates.insert(static_cast<double>(i));
    }
    for (int64_t wrong = CountWrong(); wrong > 0;) {
      std::pair<std::string, double> best;
      int64_t fewest = wrong;
      for (const ScalarRule& rule : family_.scalars) {
        const std::string& name = rule.name.value;
        if (rule.per_layer || rule.value.has_value() || rule.on_export.has_value() ||
            known_.scalars.count(name) > 0) {
          continue;
        }
        for (const double value : candidates) {
          if (!CanBe(rule, value)) continue;
          known_.scalars[name] = value;
          const int64_t count = CountWrong();
          if (count < fewest) best = {name, value};
          fewest = std::min(fewest, count);
        }
        known_.scalars.erase(name);
      }
      if (fewest == wrong) break;
      known_.scalars.insert(best);
      wrong = fewest;
    }
    std::set<std::string> texts;
    const ConfigValues all = Complete();
    for (const Equation& equation : equations_) {
      if (!Holds(equation, all)) texts.insert(equation.expression.text.value);
    }
    unread_.insert(unread_.end(), texts.begin(), texts.end());
  }

  const Family& family_;
  const v1::Model& model_;
  ConfigValues facts_;             // for expressions of the description
  std::vector<v1::Model> layers_;  // the description with one layer each
  std::set<std::string> claimed_;
  ConfigValues known_;
  std::map<std::string, std::map<int64_t, double>> by_layer_;  // known values, by layer from 1
  std::vector<Equation> equations_;
  std::vector<std::string> unread_;
};

}  // namespace

ModelValues ReadModelValues(const Family& family, const v1::Model& model,
                            const std::map<std::string, double>& facts) {
  return ModelReader(family, model, facts).Read();
}

}  // namespace plumb
