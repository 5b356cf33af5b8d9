// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/family_template.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Returns the shortest period of the values, at most half their number; 0: none.
size_t PeriodOf(const std::vector<double>& values) {
  for (size_t period = 1; 2 * period <= values.size(); ++period) {
    bool repeats = true;
    for (size_t i = period; i < values.size() && repeats; ++i) {
      repeats = values[i] == values[i - period];
    }
    if (repeats) return period;
  }
  return 0;
}

// Returns an expression in `layer`, from 1, that has these values.
std::string ByLayer(const std::vector<double>& values) {
  const size_t period = PeriodOf(values);
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

}  // namespace

std::string PlainNumber(double value) {
  char text[32];
  // Integers have no exponent, because integer fields do not accept one.
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (value == std::floor(value) && std::abs(value) < kExact) {
    return absl::StrCat(static_cast<int64_t>(value));
  }
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
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
      absl::StrAppend(&rendered, ByLayer(by_layer->second));
    } else {
      PLUMB_ASSIGN_OR_RETURN(const double value, Evaluate(text.expressions[i], values, layer));
      absl::StrAppend(&rendered, PlainNumber(value));
    }
    absl::StrAppend(&rendered, text.literals[i + 1]);
  }
  return rendered;
}

absl::StatusOr<std::string> ModelText(const Family& family, const ConfigValues& values) {
  std::string model;
  for (const TemplateRule& rule : family.model) {
    if (rule.when.has_value()) {
      PLUMB_ASSIGN_OR_RETURN(const double holds, Evaluate(*rule.when, values));
      if (holds == 0) continue;
    }
    for (const TextTemplate& line : rule.lines) {
      PLUMB_ASSIGN_OR_RETURN(const std::string text, Render(line, values));
      absl::StrAppend(&model, text, "\n");
    }
  }
  return model;
}

}  // namespace plumb
