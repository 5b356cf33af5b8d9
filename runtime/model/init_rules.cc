// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/init_rules.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

absl::StatusOr<InitSpec> Evaluate(const InitRule& rule, const Fans* fans_or_none,
                                  const ScalarScope& scope) {
  using Distribution = InitRule::Distribution;
  std::vector<double> v;
  for (const Expression& argument : rule.arguments) {
    PLUMB_ASSIGN_OR_RETURN(const double value, EvaluateScalar(argument, scope));
    v.push_back(value);
  }
  const auto uniform = [](double bound) {
    return InitSpec{InitSpec::Kind::kUniform, -bound, bound};
  };
  const bool uses_fans = rule.distribution == Distribution::kXavierNormal ||
                         rule.distribution == Distribution::kXavierUniform ||
                         rule.distribution == Distribution::kKaimingUniform;
  if (uses_fans && fans_or_none == nullptr) {
    return ErrorInText(
        rule.match, 0,
        "init: matches a parameter that is not a weight and has no fans; use normal, uniform or "
        "constant");
  }
  const Fans fans = fans_or_none == nullptr ? Fans{1, 1} : *fans_or_none;
  const double fan_in = static_cast<double>(fans.in);
  const double fan_sum = static_cast<double>(fans.in + fans.out);
  switch (rule.distribution) {
    case Distribution::kNormal:
      if (v[1] < 0) return ErrorInText(rule.arguments[1].text, 0, "std is negative");
      return InitSpec{InitSpec::Kind::kNormal, v[0], v[1]};
    case Distribution::kTruncatedNormal:
      if (v[1] < 0) return ErrorInText(rule.arguments[1].text, 0, "std is negative");
      if (v[2] < 1) return ErrorInText(rule.arguments[2].text, 0, "cut must be at least 1");
      return InitSpec{InitSpec::Kind::kTruncatedNormal, v[0], v[1], {}, v[2]};
    case Distribution::kUniform:
      if (v[0] > v[1]) return ErrorInText(rule.arguments[0].text, 0, "low must be at most high");
      return InitSpec{InitSpec::Kind::kUniform, v[0], v[1]};
    case Distribution::kXavierNormal:
      return InitSpec{InitSpec::Kind::kNormal, 0, v[0] * std::sqrt(2 / fan_sum)};
    case Distribution::kXavierUniform:
      return uniform(v[0] * std::sqrt(6 / fan_sum));
    case Distribution::kKaimingUniform:
      return uniform(std::sqrt(6 / ((1 + v[0] * v[0]) * fan_in)));
    case Distribution::kConstant:
    case Distribution::kNone:
      break;
  }
  return InitSpec{InitSpec::Kind::kConstant, v[0], 0};
}

}  // namespace

std::string InitSpec::ToString() const {
  switch (kind) {
    case Kind::kConstant:
      return absl::StrCat("constant(", a, ")");
    case Kind::kNormal:
      return absl::StrCat("normal(", a, ", ", b, ")");
    case Kind::kTruncatedNormal:
      return absl::StrCat("truncated_normal(", a, ", ", b, ", cut ", cut, ")");
    case Kind::kTable:
      return absl::StrCat("table(", absl::StrJoin(table, ", "), ")");
    case Kind::kFill:
      return absl::StrCat("fill(", norm->plugin().id(), ")",
                          a == 1 ? std::string() : absl::StrCat(" * ", a));
    case Kind::kUniform:
      break;
  }
  return absl::StrCat("uniform(", a, ", ", b, ")");
}

InitSpec InitSpec::Scaled(double factor) const {
  InitSpec scaled = *this;
  scaled.a *= factor;
  scaled.b *= factor;
  for (double& value : scaled.table) value *= factor;
  return scaled;
}

bool MatchesPattern(absl::string_view pattern, absl::string_view name) {
  // Greedy matching with one backtracking point: linear in practice, and not recursive.
  size_t p = 0, n = 0, star = absl::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

absl::StatusOr<InitSpec> InitRules::Apply(const std::string& name, Fans fans,
                                          const InitSpec& fallback, const ScalarScope& scope,
                                          const InitRule* own) {
  return ApplyRules(name, &fans, fallback, scope, own, &matched_);
}

absl::StatusOr<InitSpec> InitRules::ApplyToOther(const std::string& name, const InitSpec& fallback,
                                                 const ScalarScope& scope) {
  return ApplyRules(name, nullptr, fallback, scope, nullptr, &matched_other_);
}

absl::StatusOr<InitSpec> InitRules::ApplyRules(const std::string& name, const Fans* fans,
                                               const InitSpec& fallback, const ScalarScope& scope,
                                               const InitRule* own,
                                               std::set<const InitRule*>* matched) {
  InitSpec init = fallback;
  double scale = 1;
  std::vector<const InitRule*> rules;
  for (const InitRule& rule : model_.init) rules.push_back(&rule);
  if (own != nullptr) rules.push_back(own);
  if (scope.placement != nullptr) {
    placements_.insert(scope.placement);
    for (const InitRule& rule : scope.placement->init) rules.push_back(&rule);
  }
  for (const InitRule* rule : rules) {
    if (rule != own && !MatchesPattern(rule->match.value, name)) continue;
    if (fans == nullptr && matched_.count(rule) > 0) continue;  // rule for weights
    matched->insert(rule);
    if (rule->distribution != InitRule::Distribution::kNone) {
      PLUMB_ASSIGN_OR_RETURN(init, Evaluate(*rule, fans, scope));
    }
    if (rule->scale.has_value()) {
      PLUMB_ASSIGN_OR_RETURN(const double factor, EvaluateScalar(*rule->scale, scope));
      scale *= factor;
    }
  }
  return init.Scaled(scale);
}

absl::Status InitRules::CheckAllMatched() const {
  const auto check = [this](const std::vector<InitRule>& rules) -> absl::Status {
    for (const InitRule& rule : rules) {
      if (matched_.count(&rule) > 0 || matched_other_.count(&rule) > 0) continue;
      return ErrorInText(rule.match, 0,
                         "init: matches nothing; names look like embedding.token.weight, "
                         "layers.0.attention.q.weight, layers.0.mlp.down.bias, head.weight");
    }
    return absl::OkStatus();
  };
  PLUMB_RETURN_IF_ERROR(check(model_.init));
  for (const PlacementSpec* placement : placements_) PLUMB_RETURN_IF_ERROR(check(placement->init));
  return absl::OkStatus();
}

}  // namespace plumb
