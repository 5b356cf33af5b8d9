#include "runtime/zoo/config_values.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/mistakes.h"
#include "runtime/base/status.h"
#include "runtime/base/suggest.h"
#include "runtime/base/utf8.h"
#include "runtime/io/strict_json.h"
#include "runtime/spec/scalar.h"
#include "runtime/zoo/family_template.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownBytes = 60;

// A value of config.json in a message.
std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kShownBytes) text = absl::StrCat(text.substr(0, kShownBytes), "...");
  return QuoteName(text);
}

// What a choice is compared with.
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
      // Whatever comes is counted by it.
      if (rule.name.value == "n_layer" && !mistakes_.empty()) break;
    }
    if (mistakes_.empty()) {
      for (const WordRule& rule : family_.words) PLUMB_RETURN_IF_ERROR(ReadWord(rule));
    }
    if (mistakes_.empty()) PLUMB_RETURN_IF_ERROR(FindRefusals());
    if (mistakes_.empty()) return std::move(values_);
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", mistakes_.size() == 1 ? "" : "\n  ",
                                                   ListMistakes(mistakes_, "\n  ")));
  }

 private:
  void Mistake(const std::string& text) { mistakes_.push_back(text); }

  // The first of the fields that is there, and its path.
  std::pair<const Json*, std::string> Find(const std::vector<std::string>& fields) const {
    for (const std::string& field : fields) {
      if (const Json* found = FindField(config_, field)) return {found, field};
    }
    return {nullptr, fields.empty() ? "" : fields.front()};
  }

  absl::Status ReadScalar(const ScalarRule& rule) {
    if (mistakes_.size() > kShownMistakes) return absl::OkStatus();
    const auto [found, field] = Find(rule.fields);
    const std::optional<Expression>& computed = rule.value.has_value() ? rule.value : rule.absent;
    if (found == nullptr && !computed.has_value()) {
      Mistake(absl::StrCat("\"", field, "\" is missing"));
      return absl::OkStatus();
    }
    if (rule.per_layer) return ReadByLayer(rule, found, field);
    std::optional<double> value;
    if (found == nullptr) {
      // What a mistake left without a value is not asked for again.
      if (!mistakes_.empty()) return absl::OkStatus();
      PLUMB_ASSIGN_OR_RETURN(value, Evaluate(*computed, values_));
      Check(rule, *value, absl::StrCat(rule.name.value, " = ", computed->text.value));
    } else {
      PLUMB_ASSIGN_OR_RETURN(value, Convert(rule, *found, field));
    }
    if (value.has_value()) values_.scalars[rule.name.value] = *value;
    if (rule.name.value == "n_layer" && value.has_value() && *value > kMaxImportedLayers) {
      Mistake(absl::StrCat("\"", field, "\" is ", *value, "; at most ", kMaxImportedLayers,
                           " layers are read"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadByLayer(const ScalarRule& rule, const Json* found, const std::string& field) {
    const auto layers = values_.scalars.find("n_layer");
    if (layers == values_.scalars.end()) return absl::OkStatus();  // it is missing, and said so
    std::vector<double> by_layer;
    const int64_t n_layer = values_.n_layer();
    if (found != nullptr &&
        (!found->is_array() || static_cast<int64_t>(found->size()) != n_layer)) {
      Mistake(absl::StrCat("\"", field, "\" must be a list with an element for each of ", n_layer,
                           " layers, is ", Shown(*found)));
      return absl::OkStatus();
    }
    for (int64_t i = 0; i < n_layer; ++i) {
      std::optional<double> value;
      if (found == nullptr) {
        const Expression& computed = rule.value.has_value() ? *rule.value : *rule.absent;
        PLUMB_ASSIGN_OR_RETURN(value, Evaluate(computed, values_, i + 1));
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

  // nullopt: a mistake.
  absl::StatusOr<std::optional<double>> Convert(const ScalarRule& rule, const Json& value,
                                                const std::string& field) {
    if (!rule.choices.empty()) {
      const std::string text = TextOfValue(value);
      std::vector<std::string> known;
      for (const ScalarChoice& choice : rule.choices) {
        if (choice.is == text) return AsOptional(Evaluate(choice.value, values_));
        known.push_back(absl::StrCat("\"", choice.is, "\""));
      }
      if (rule.otherwise.has_value()) return AsOptional(Evaluate(*rule.otherwise, values_));
      Mistake(absl::StrCat("\"", field, "\" is ", Shown(value), "; plumb's ", family_.name, " has ",
                           absl::StrJoin(known, ", ")));
      return std::nullopt;
    }
    const bool wants_flag = rule.kind == ScalarKind::kFlag;
    if (wants_flag != value.is_boolean() || (!wants_flag && !value.is_number())) {
      Mistake(absl::StrCat("\"", field, "\" must be ", wants_flag ? "true or false" : "a number",
                           ", is ", Shown(value)));
      return std::nullopt;
    }
    const double number = wants_flag ? (value.get<bool>() ? 1 : 0) : value.get<double>();
    if (!Check(rule, number, absl::StrCat("\"", field, "\""))) return std::nullopt;
    return number;
  }

  static absl::StatusOr<std::optional<double>> AsOptional(const absl::StatusOr<double>& value) {
    if (!value.ok()) return value.status();
    return std::optional<double>(*value);
  }

  bool Check(const ScalarRule& rule, double value, const std::string& what) {
    if (rule.kind != ScalarKind::kSize && rule.kind != ScalarKind::kCount) return true;
    const double least = rule.kind == ScalarKind::kSize ? 1 : 0;
    const bool good = value >= least && value <= std::numeric_limits<int32_t>::max() &&
                      value == std::floor(value);
    if (!good) {
      Mistake(absl::StrCat(what, " must be a whole number in ", least, "..",
                           std::numeric_limits<int32_t>::max(), ", is ", PlainNumber(value)));
    }
    return good;
  }

  absl::Status ReadWord(const WordRule& rule) {
    if (rule.fields.empty()) {
      for (const WordChoice& choice : rule.choices) {
        PLUMB_ASSIGN_OR_RETURN(const double holds, Evaluate(*choice.when, values_));
        if (holds == 0) continue;
        values_.words[rule.name.value] = choice.text;
        return absl::OkStatus();
      }
      values_.words[rule.name.value] = rule.absent.value_or("");
      return absl::OkStatus();
    }
    const auto [found, field] = Find(rule.fields);
    if (found == nullptr) {
      if (rule.absent.has_value()) {
        values_.words[rule.name.value] = *rule.absent;
      } else {
        Mistake(absl::StrCat("\"", field, "\" is missing"));
      }
      return absl::OkStatus();
    }
    const std::string text = TextOfValue(*found);
    std::vector<std::string> known;
    for (const WordChoice& choice : rule.choices) {
      if (choice.is == text) {
        values_.words[rule.name.value] = choice.text;
        return absl::OkStatus();
      }
      known.push_back(absl::StrCat("\"", choice.is, "\""));
    }
    Mistake(absl::StrCat("\"", field, "\" is ", Shown(*found), "; plumb's ", family_.name, " has ",
                         absl::StrJoin(known, ", ")));
    return absl::OkStatus();
  }

  absl::Status FindRefusals() {
    for (const RefusalRule& rule : family_.refusals) {
      std::set<std::string> names;
      CollectNames(rule.when.root, Expr::Kind::kName, &names);
      bool in_layers = names.count("layer") > 0;
      for (const auto& each : values_.by_layer) in_layers |= names.count(each.first) > 0;
      const int64_t last = in_layers ? values_.n_layer() : 0;
      for (int64_t layer = in_layers ? 1 : 0; layer <= last; ++layer) {
        PLUMB_ASSIGN_OR_RETURN(const double holds, Evaluate(rule.when, values_, layer));
        if (holds == 0) continue;
        PLUMB_ASSIGN_OR_RETURN(std::string reason, Render(rule.reason, values_, layer));
        Mistake(reason);
        break;
      }
    }
    return absl::OkStatus();
  }

  const Family& family_;
  const Json& config_;
  ConfigValues values_;
  std::vector<std::string> mistakes_;
};

absl::StatusOr<double> EvaluateNode(const Expression& whole, const Expr& expr,
                                    const ConfigValues& values, int64_t layer) {
  const Text& text = whole.text;
  if (expr.kind == Expr::Kind::kNumber) return expr.number;
  if (expr.kind == Expr::Kind::kName && expr.index.empty()) {
    if (expr.name == "layer" && layer > 0) return static_cast<double>(layer);
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
    return ErrorInText(text, expr.offset,
                       absl::StrCat("\"", expr.ToString(), "\" is no number of a family's"));
  }
  std::vector<double> operands;
  for (const Expr& arg : expr.args) {
    PLUMB_ASSIGN_OR_RETURN(const double value, EvaluateNode(whole, arg, values, layer));
    operands.push_back(value);
  }
  absl::StatusOr<double> value = ApplyScalarOperator(expr, operands);
  if (value.ok()) return value;
  return ErrorInText(text, expr.offset, value.status().message());
}

}  // namespace

const Json* FindField(const Json& config, absl::string_view path) {
  const Json* at = &config;
  for (const absl::string_view name : absl::StrSplit(path, '.')) {
    at = FindMember(*at, name);
    if (at == nullptr || at->is_null()) return nullptr;
  }
  return at;
}

absl::StatusOr<ConfigValues> ReadConfigValues(const Family& family, const Json& config,
                                              const std::string& file) {
  return Reader(family, config).Read(file);
}

absl::StatusOr<double> Evaluate(const Expression& expression, const ConfigValues& values,
                                int64_t layer) {
  return EvaluateNode(expression, expression.root, values, layer);
}

absl::StatusOr<int64_t> EvaluateCount(const Expression& expression, const ConfigValues& values,
                                      int64_t layer) {
  constexpr double kMost = 9007199254740992.0;  // 2^53: whole numbers up to it are exact
  PLUMB_ASSIGN_OR_RETURN(const double value, Evaluate(expression, values, layer));
  if (value < 0 || value > kMost || value != std::floor(value)) {
    return ErrorInText(expression.text, 0,
                       absl::StrCat("must be a whole number from 0, is ", PlainNumber(value)));
  }
  return static_cast<int64_t>(value);
}

}  // namespace plumb
