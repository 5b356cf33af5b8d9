// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/config_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/strict_json.h"
#include "runtime/spec/scalar.h"
#include "runtime/zoo/model_fields.h"
#include "runtime/zoo/tensor_names.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownBytes = 60;
constexpr size_t kMaxNumbers = 1 << 16;

// Returns a value of config.json for a message.
std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kShownBytes) text = absl::StrCat(text.substr(0, kShownBytes), "...");
  return QuoteName(text);
}

// Returns the value at a path, which may be null, or nullptr.
const Json* Walk(const Json& config, absl::string_view path) {
  const Json* at = &config;
  for (const absl::string_view name : absl::StrSplit(path, '.')) {
    size_t index;
    if (at->is_array() && absl::SimpleAtoi(name, &index)) {
      at = index < at->size() ? &(*at)[index] : nullptr;
    } else {
      at = FindMember(*at, name);
    }
    if (at == nullptr) return nullptr;
  }
  return at;
}

// Returns the text that choices are compared with.
std::string TextOfValue(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class Reader {
 public:
  Reader(const Family& family, const Json& config) : family_(family), config_(config) {}

  absl::StatusOr<ConfigValues> Read(const std::string& file) {
    for (const ScalarRule& rule : family_.scalars) {
      PLUMB_RETURN_IF_ERROR(ReadScalar(rule));
      // Everything after n_layer depends on it.
      if (rule.name.value == "n_layer" && !errors_.empty()) break;
    }
    if (errors_.empty()) {
      for (const StringVariableRule& rule : family_.string_variables)
        PLUMB_RETURN_IF_ERROR(ReadStringVariable(rule));
    }
    if (errors_.empty()) PLUMB_RETURN_IF_ERROR(FindUnsupported());
    if (errors_.empty()) return std::move(values_);
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", errors_.size() == 1 ? "" : "\n  ",
                                                   ListDiagnostics(errors_, "\n  ")));
  }

 private:
  template <class... Words>
  void AddError(const Words&... words) {
    errors_.push_back(absl::StrCat(words...));
  }

  // Field that has a value, and its path.
  struct Found {
    const Json* value;
    std::string field;
  };

  // Returns all fields that exist and are not null, without duplicates.
  std::vector<Found> FindAll(const std::vector<std::string>& fields) const {
    std::vector<Found> found;
    for (const std::string& field : fields) {
      const Json* value = FindField(config_, field);
      const bool is_new = std::none_of(found.begin(), found.end(), [&field](const Found& other) {
        return other.field == field;
      });
      if (value != nullptr && is_new) found.push_back({value, field});
    }
    return found;
  }

  bool IsNull(const std::vector<std::string>& fields) const {
    return std::any_of(fields.begin(), fields.end(), [this](const std::string& field) {
      const Json* const found = Walk(config_, field);
      return found != nullptr && found->is_null();
    });
  }

  // Reports that two fields with the same meaning differ.
  void NoteConflict(const Found& one, const Found& other) {
    AddError("\"", one.field, "\" is ", Shown(*one.value), " and \"", other.field, "\" is ",
             Shown(*other.value),
             ", and both set the same property of the model: remove the one that does not hold, or "
             "name it with --allow-unread");
  }

  // Returns the choice for a value, or null after an error, unless `otherwise` has the value.
  template <class Choice>
  const Choice* FindChoice(const std::vector<Choice>& choices, const Json& value,
                           const std::string& field, bool otherwise) {
    const std::string text = TextOfValue(value);
    std::vector<std::string> known;
    for (const Choice& choice : choices) {
      if (choice.is == text) return &choice;
      known.push_back(absl::StrCat("\"", choice.is, "\""));
    }
    if (otherwise) return nullptr;
    AddError("\"", field, "\" is ", Shown(value), "; plumb's ", family_.name, " has ",
             absl::StrJoin(known, ", "));
    return nullptr;
  }

  // Returns the value that the fields state, or nullopt after an error that was reported.
  template <class Value, class Rule>
  absl::StatusOr<std::optional<Value>> ReadFields(const Rule& rule, const std::vector<Found>& all) {
    std::optional<Value> value;
    for (const Found& found : all) {
      PLUMB_ASSIGN_OR_RETURN(const std::optional<Value> read,
                             Convert(rule, *found.value, found.field));
      if (!read.has_value()) return std::nullopt;
      if (value.has_value() && *value != *read) NoteConflict(all.front(), found);
      if (!value.has_value()) value = read;
    }
    return value;
  }

  absl::Status ReadScalar(const ScalarRule& rule) {
    if (errors_.size() > kShownDiagnostics) return absl::OkStatus();
    const std::vector<Found> all = FindAll(rule.fields);
    const Json* const found = all.empty() ? nullptr : all.front().value;
    const std::optional<Expression>& computed = rule.value.has_value() ? rule.value
                                                : rule.null.has_value() && IsNull(rule.fields)
                                                    ? rule.null
                                                    : rule.absent;
    if (found == nullptr && !computed.has_value()) {
      AddError("\"", rule.fields.front(), "\" is missing");
      return absl::OkStatus();
    }
    double otherwise = 0;
    if (found == nullptr && !rule.value.has_value() && !rule.null.has_value() &&
        IsNull(rule.fields) && absl::SimpleAtod(computed->text.value, &otherwise) &&
        otherwise != 0) {
      AddError("\"", rule.fields.front(), "\" is null, which is not ", computed->text.value,
               ", its value if it is missing: remove it, or state its value");
      return absl::OkStatus();
    }
    if (rule.per_layer) {
      return ReadByLayer(rule, computed, found, all.empty() ? "" : all.front().field);
    }
    std::optional<double> value;
    if (found == nullptr) {
      // The cause has been reported already.
      if (!errors_.empty()) return absl::OkStatus();
      PLUMB_ASSIGN_OR_RETURN(value, Evaluate(*computed, values_));
      Check(rule, *value, absl::StrCat(rule.name.value, " = ", computed->text.value));
    } else {
      PLUMB_ASSIGN_OR_RETURN(value, ReadFields<double>(rule, all));
    }
    if (value.has_value()) values_.scalars[rule.name.value] = *value;
    if (rule.name.value == "n_layer" && value.has_value() && *value > kMaxImportedLayers) {
      AddError(rule.fields.empty() ? rule.name.value : rule.fields.front(), " is ", *value,
               "; at most ", kMaxImportedLayers, " layers are read");
    }
    return absl::OkStatus();
  }

  absl::Status ReadByLayer(const ScalarRule& rule, const std::optional<Expression>& computed,
                           const Json* found, const std::string& field) {
    const auto layers = values_.scalars.find("n_layer");
    if (layers == values_.scalars.end()) return absl::OkStatus();  // reported as missing
    std::vector<double> by_layer;
    const int64_t n_layer = values_.n_layer();
    std::set<int64_t> listed;
    if (rule.lists_layers && found != nullptr) {
      const bool is_list = found->is_array() && found->size() <= kMaxNumbers;
      for (size_t i = 0; is_list && i < found->size(); ++i) {
        if ((*found)[i].is_number_integer()) listed.insert((*found)[i].get<int64_t>());
      }
      if (!is_list || listed.size() != found->size()) {
        AddError("\"", field, "\" must be a list of different layers, is ", Shown(*found));
        return absl::OkStatus();
      }
    } else if (found != nullptr &&
               (!found->is_array() || static_cast<int64_t>(found->size()) != n_layer)) {
      AddError("\"", field, "\" must be a list with an element for each of ", n_layer,
               " layers, is ", Shown(*found));
      return absl::OkStatus();
    }
    for (int64_t i = 0; i < n_layer; ++i) {
      std::optional<double> value;
      const std::string of_layer = rule.fields.empty() ? "" : FillTensorName(rule.fields[0], i, 0);
      const Json* const single = FindField(config_, of_layer);
      if (found == nullptr && single != nullptr) {
        PLUMB_ASSIGN_OR_RETURN(value, Convert(rule, *single, of_layer));
      } else if (found == nullptr) {
        // The cause has been reported already.
        if (!errors_.empty()) return absl::OkStatus();
        PLUMB_ASSIGN_OR_RETURN(value, Evaluate(*computed, values_, i + 1));
      } else if (rule.lists_layers) {
        value = listed.count(i) > 0 ? 1 : 0;
      } else {
        PLUMB_ASSIGN_OR_RETURN(value, Convert(rule, (*found)[static_cast<size_t>(i)],
                                              absl::StrCat(field, "[", i, "]")));
      }
      if (!value.has_value()) return absl::OkStatus();
      by_layer.push_back(*value);
    }
    values_.by_layer[rule.name.value] = std::move(by_layer);
    return absl::OkStatus();
  }

  // Returns nullopt after an error that was reported.
  absl::StatusOr<std::optional<double>> Convert(const ScalarRule& rule, const Json& value,
                                                const std::string& field) {
    if (!rule.choices.empty()) {
      const ScalarChoice* const choice =
          FindChoice(rule.choices, value, field, rule.otherwise.has_value());
      if (choice == nullptr && !rule.otherwise.has_value()) return std::nullopt;
      return Evaluate(choice != nullptr ? choice->value : *rule.otherwise, values_);
    }
    const bool wants_flag = rule.kind == v1::Scalar::FLAG;
    if (wants_flag != value.is_boolean() || (!wants_flag && !value.is_number())) {
      AddError("\"", field, "\" must be ", wants_flag ? "true or false" : "a number", ", is ",
               Shown(value));
      return std::nullopt;
    }
    const double number = wants_flag ? (value.get<bool>() ? 1 : 0) : value.get<double>();
    if (!Check(rule, number, absl::StrCat("\"", field, "\""))) return std::nullopt;
    return number;
  }

  bool Check(const ScalarRule& rule, double value, const std::string& what) {
    if (rule.kind != v1::Scalar::SIZE && rule.kind != v1::Scalar::COUNT) return true;
    const double min = rule.kind == v1::Scalar::SIZE ? 1 : 0;
    const bool good =
        value >= min && value <= std::numeric_limits<int32_t>::max() && value == std::floor(value);
    if (!good) {
      AddError(what, " must be a whole number in ", min, "..", std::numeric_limits<int32_t>::max(),
               ", is ", PlainNumber(value));
    }
    return good;
  }

  absl::Status ReadStringVariable(const StringVariableRule& rule) {
    if (rule.fields.empty()) {
      for (const MappingRule& choice : rule.choices) {
        PLUMB_ASSIGN_OR_RETURN(const double holds, Evaluate(*choice.when, values_));
        if (holds == 0) continue;
        PLUMB_ASSIGN_OR_RETURN(values_.string_variables[rule.name.value],
                               Render(choice.text, values_));
        return absl::OkStatus();
      }
      values_.string_variables[rule.name.value] = rule.absent.value_or("");
      return absl::OkStatus();
    }
    std::optional<std::string> text = rule.absent;
    if (const std::vector<Found> all = FindAll(rule.fields); !all.empty()) {
      PLUMB_ASSIGN_OR_RETURN(text, ReadFields<std::string>(rule, all));
    } else if (!text.has_value()) {
      AddError("\"", rule.fields.front(), "\" is missing");
    }
    if (text.has_value()) values_.string_variables[rule.name.value] = *text;
    return absl::OkStatus();
  }

  // Returns the text that a field stands for, or nullopt after an error that was reported.
  absl::StatusOr<std::optional<std::string>> Convert(const StringVariableRule& rule,
                                                     const Json& value, const std::string& field) {
    if (rule.numbers) return FormatNumbers(value, field);
    const MappingRule* const choice = FindChoice(rule.choices, value, field, /*otherwise=*/false);
    if (choice == nullptr) return std::nullopt;
    return Render(choice->text, values_);
  }

  std::optional<std::string> FormatNumbers(const Json& value, const std::string& field) {
    std::vector<std::string> numbers;
    bool good = value.is_array() && value.size() <= kMaxNumbers;
    for (size_t i = 0; good && i < value.size(); ++i) {
      const Json& number = value[i];
      good = number.is_number() && std::isfinite(number.get<double>());
      if (good) numbers.push_back(PlainNumber(number.get<double>()));
    }
    if (good) return absl::StrJoin(numbers, ", ");
    AddError("\"", field, "\" must be a list of at most ", kMaxNumbers, " numbers, is ",
             Shown(value));
    return std::nullopt;
  }

  absl::Status FindUnsupported() {
    PLUMB_RETURN_IF_ERROR(FindReasons(family_.unsupported, &errors_));
    return FindReasons(family_.warnings, &values_.warnings);
  }

  // Adds the reasons of the rules whose condition holds.
  absl::Status FindReasons(const std::vector<UnsupportedRule>& rules,
                           std::vector<std::string>* reasons) {
    for (const UnsupportedRule& rule : rules) {
      std::set<std::string> names;
      CollectNames(rule.when.root, Expr::Kind::kName, &names);
      bool in_layers = names.count("layer") > 0;
      for (const auto& each : values_.by_layer) in_layers |= names.count(each.first) > 0;
      const int64_t last = in_layers ? values_.n_layer() : 0;
      for (int64_t layer = in_layers ? 1 : 0; layer <= last; ++layer) {
        PLUMB_ASSIGN_OR_RETURN(const double holds, Evaluate(rule.when, values_, layer));
        if (holds == 0) continue;
        PLUMB_ASSIGN_OR_RETURN(std::string reason, Render(rule.reason, values_, layer));
        reasons->push_back(std::move(reason));
        break;
      }
    }
    return absl::OkStatus();
  }

  const Family& family_;
  const Json& config_;
  ConfigValues values_;
  std::vector<std::string> errors_;
};

absl::StatusOr<double> EvaluateNode(const Expression& whole, const Expr& expr,
                                    const ConfigValues& values, int64_t layer, int64_t head) {
  const SourceText& text = whole.text;
  if (expr.kind == Expr::Kind::kNumber) return expr.number;
  if (expr.kind == Expr::Kind::kName && expr.index.empty()) {
    if (expr.name == "layer" && layer > 0) return static_cast<double>(layer);
    if (expr.name == "head" && head >= 0) return static_cast<double>(head);
    if (const auto found = values.scalars.find(expr.name); found != values.scalars.end()) {
      return found->second;
    }
    const auto by_layer = values.by_layer.find(expr.name);
    if (by_layer != values.by_layer.end() && layer > 0) {
      return by_layer->second[static_cast<size_t>(layer - 1)];
    }
    std::vector<std::string> known;
    for (const auto& each : values.scalars) known.push_back(each.first);
    const bool has_layers = expr.name == "layer" || by_layer != values.by_layer.end();
    return ErrorInText(text, expr.offset,
                       has_layers ? absl::StrCat(expr.name, " has no value outside of the layers")
                                  : absl::StrCat("unknown scalar \"", expr.name, "\"",
                                                 DidYouMean(expr.name, known)));
  }
  const bool computes = expr.kind == Expr::Kind::kUnary || expr.kind == Expr::Kind::kBinary ||
                        (expr.kind == Expr::Kind::kCall && IsScalarFunction(expr.name));
  if (!computes) {
    return ErrorInText(
        text, expr.offset,
        absl::StrCat(
            "\"", expr.ToString(),
            "\" cannot be used in a family; it has numbers, its scalars and functions of them"));
  }
  std::vector<double> operands;
  for (const Expr& arg : expr.args) {
    PLUMB_ASSIGN_OR_RETURN(const double value, EvaluateNode(whole, arg, values, layer, head));
    operands.push_back(value);
  }
  absl::StatusOr<double> value = ApplyScalarOperator(expr, operands);
  if (value.ok()) return value;
  return ErrorInText(text, expr.offset, value.status().message());
}

// Returns the shortest period of the values, at most half their number; 0: none.
size_t FindPeriod(const std::vector<double>& values) {
  for (size_t period = 1; 2 * period <= values.size(); ++period) {
    bool repeats = true;
    for (size_t i = period; i < values.size() && repeats; ++i) {
      repeats = values[i] == values[i - period];
    }
    if (repeats) return period;
  }
  return 0;
}

}  // namespace

const Json* FindField(const Json& config, absl::string_view path) {
  const Json* const found = Walk(config, path);
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool EraseField(absl::string_view path, Json* config) {
  const size_t dot = path.rfind('.');
  const bool is_inside = dot != absl::string_view::npos;
  const Json* const parent = is_inside ? Walk(*config, path.substr(0, dot)) : config;
  if (parent == nullptr || !parent->is_object()) return false;
  const std::string name(is_inside ? path.substr(dot + 1) : path);
  return const_cast<Json*>(parent)->erase(name) > 0;
}

absl::StatusOr<ConfigValues> ReadConfigValues(const Family& family, const Json& config,
                                              const std::string& file) {
  return Reader(family, config).Read(file);
}

absl::StatusOr<double> Evaluate(const Expression& expression, const ConfigValues& values,
                                int64_t layer, int64_t head) {
  return EvaluateNode(expression, expression.root, values, layer, head);
}

absl::StatusOr<bool> Holds(const std::optional<Expression>& when, const ConfigValues& values,
                           int64_t layer) {
  if (!when.has_value()) return true;
  PLUMB_ASSIGN_OR_RETURN(const double value, Evaluate(*when, values, layer));
  return value != 0;
}

absl::StatusOr<int64_t> EvaluateCount(const Expression& expression, const ConfigValues& values,
                                      int64_t layer, int64_t head) {
  constexpr double kMax = 9007199254740992.0;  // 2^53: integers up to it are exact
  PLUMB_ASSIGN_OR_RETURN(const double value, Evaluate(expression, values, layer, head));
  if (value < 0 || value > kMax || value != std::floor(value)) {
    return ErrorInText(expression.text, 0,
                       absl::StrCat("must be a whole number from 0, is ", PlainNumber(value)));
  }
  return static_cast<int64_t>(value);
}

std::string ExpressionByLayer(const std::vector<double>& values) {
  const size_t period = FindPeriod(values);
  if (period == 1 || values.size() == 1) return PlainNumber(values[0]);
  std::map<double, std::vector<std::string>> where;
  const size_t count = period > 0 ? period : values.size();
  for (size_t i = 0; i < count; ++i) {
    if (values[i] == 0) continue;
    where[values[i]].push_back(period > 0
                                   ? absl::StrCat("layer % ", period, " == ", (i + 1) % period)
                                   : absl::StrCat("layer == ", i + 1));
  }
  std::vector<std::string> terms;
  for (const auto& [value, conditions] : where) {
    terms.push_back(
        absl::StrCat(PlainNumber(value), " * (", absl::StrJoin(conditions, " or "), ")"));
  }
  return terms.empty() ? "0" : absl::StrJoin(terms, " + ");
}

absl::StatusOr<std::string> Render(const TextTemplate& text, const ConfigValues& values,
                                   int64_t layer) {
  std::string rendered = text.literals[0];
  for (size_t i = 0; i < text.expressions.size(); ++i) {
    const Expr& root = text.expressions[i].root;
    const bool is_name = root.kind == Expr::Kind::kName && root.index.empty();
    const auto word =
        is_name ? values.string_variables.find(root.name) : values.string_variables.end();
    const auto by_layer = is_name ? values.by_layer.find(root.name) : values.by_layer.end();
    if (word != values.string_variables.end()) {
      absl::StrAppend(&rendered, word->second);
    } else if (by_layer != values.by_layer.end() && layer == 0) {
      absl::StrAppend(&rendered, ExpressionByLayer(by_layer->second));
    } else {
      PLUMB_ASSIGN_OR_RETURN(const double value, Evaluate(text.expressions[i], values, layer));
      absl::StrAppend(&rendered, PlainNumber(value));
    }
    absl::StrAppend(&rendered, text.literals[i + 1]);
  }
  return rendered;
}

}  // namespace plumb
