// SPDX-License-Identifier: Apache-2.0
#include "cli/theory/predict.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace plumb::cli {
namespace {

constexpr char kFactor[] = "J_";

// Returns the slots that a group's norms fill: "norm_in: rms_norm(..)[64]" fills "norm_in".
std::set<std::string> Slots(const Json& group) {
  std::set<std::string> slots;
  for (const std::string norm : group["norms"]) slots.insert(norm.substr(0, norm.find(':')));
  return slots;
}

// Classifies a branch such as "J_norm_out J_mlp J_norm_in": one sublayer, with optional norms
// before and after it.
std::optional<Route> RouteOfBranch(absl::string_view branch, const std::set<std::string>& slots) {
  bool met_sublayer = false, norm_after = false, norm_before = false;
  for (absl::string_view word : absl::StrSplit(branch, ' ', absl::SkipEmpty())) {
    if (!absl::ConsumePrefix(&word, kFactor)) return std::nullopt;
    if (slots.count(std::string(word)) == 0) {
      if (met_sublayer) return std::nullopt;
      met_sublayer = true;
    } else {
      (met_sublayer ? norm_before : norm_after) = true;
    }
  }
  if (!met_sublayer) return std::nullopt;
  return norm_after ? Route::kNormedOutput : norm_before ? Route::kNormedInput : Route::kNoNorm;
}

// Classifies a product such as "(I + J_mlp J_norm) (I + J_attention J_norm)", or the same with
// "J_norm " before each bracket, and counts its branches. Returns nullopt if the brackets differ or
// have another form.
std::optional<Route> RouteOfJacobian(absl::string_view jacobian, const std::set<std::string>& slots,
                                     double* branches) {
  std::optional<Route> route;
  while (!jacobian.empty()) {
    const size_t open = jacobian.find('('), close = jacobian.find(')');
    if (open == absl::string_view::npos || close == absl::string_view::npos || close < open) {
      return std::nullopt;
    }
    absl::string_view outer = absl::StripAsciiWhitespace(jacobian.substr(0, open));
    const bool through =
        absl::ConsumePrefix(&outer, kFactor) && slots.count(std::string(outer)) > 0;
    if (!through && !outer.empty()) return std::nullopt;
    const std::vector<std::string> terms =
        absl::StrSplit(jacobian.substr(open + 1, close - open - 1), " + ");
    if (terms.size() < 2 || terms[0] != "I") return std::nullopt;
    for (size_t i = 1; i < terms.size(); ++i) {
      std::optional<Route> branch = RouteOfBranch(terms[i], slots);
      if (!branch.has_value()) return std::nullopt;
      if (through) {
        if (*branch != Route::kNoNorm) return std::nullopt;
        branch = Route::kThroughNorms;
      }
      if (route.has_value() && *route != *branch) return std::nullopt;
      route = branch;
      *branches += 1;
    }
    jacobian = absl::StripAsciiWhitespace(jacobian.substr(close + 1));
  }
  return route;
}

// Returns true if the equation has a scale or a condition. These may differ between layers, but the
// Jacobian is the first layer's.
bool HasScaleOrCondition(const std::string& equation) {
  return equation.find_first_of("*/^%-") != std::string::npos ||
         absl::StrContains(equation, " if ");
}

const char* RouteText(Route route) {
  switch (route) {
    case Route::kNormedInput:
      return "clean route, sublayers read a normalized copy of the stream";
    case Route::kNormedOutput:
      return "clean route, what a sublayer adds is normalized";
    case Route::kThroughNorms:
      return "the stream passes a norm after every sublayer";
    case Route::kNoNorm:
      return "clean route, no norm on it or next to it";
    case Route::kOther:
      break;
  }
  return "none of the forms that theory speaks about";
}

// Returns the variance of "normal(0, 0.125)" or "uniform(-0.1, 0.1)"; nullopt for other inits.
std::optional<double> Variance(absl::string_view init) {
  const bool normal = absl::ConsumePrefix(&init, "normal(");
  if (!normal && !absl::ConsumePrefix(&init, "uniform(")) return std::nullopt;
  if (!absl::ConsumeSuffix(&init, ")")) return std::nullopt;
  const std::vector<std::string> numbers = absl::StrSplit(init, ", ");
  double a = 0, b = 0;
  if (numbers.size() != 2 || !absl::SimpleAtod(numbers[0], &a) ||
      !absl::SimpleAtod(numbers[1], &b)) {
    return std::nullopt;
  }
  return normal ? b * b : (b - a) * (b - a) / 12;
}

// Adds a caveat if the variances of the layers' matrices are not those of Glorot & Bengio
// ("Xavier"), 2 / (fan_in + fan_out).
void AddInitCaveat(const Json& description, std::vector<std::string>* caveats) {
  double low = INFINITY, high = 0;
  for (const Json& tensor : description["tensors"]) {
    const std::string name = tensor["name"], init = tensor["init"];
    const std::vector<int64_t> shape = tensor["shape"];
    if (tensor["role"] != "weight" || shape.size() != 2) continue;
    if (!absl::StartsWith(name, "layers.")) continue;
    // Attention scores do not scale the stream; they only weight the mixture of values.
    if (absl::EndsWith(name, ".q.weight") || absl::EndsWith(name, ".k.weight")) continue;
    const std::optional<double> variance = Variance(init);
    if (!variance.has_value()) continue;
    const double xavier = 2.0 / static_cast<double>(shape[0] + shape[1]);
    low = std::min(low, *variance / xavier);
    high = std::max(high, *variance / xavier);
  }
  if (low > 0.99 && high < 1.01) return;
  if (high == 0) return;
  caveats->push_back(absl::StrFormat(
      "the layers' weights are drawn with %.3g to %.3g times the variance of Xavier", low, high));
}

void AddCaveats(const Json& description, Reading* reading) {
  const double d_model = description["dims"]["d_model"], d_ff = description["dims"]["d_ff"];
  if (d_ff != d_model) {
    reading->caveats.push_back(
        absl::StrFormat("d_ff is %.3g d_model, not d_model", d_ff / d_model));
  }
  const Json& totals = description["totals"];
  if (totals["active_parameters"] < totals["parameters"]) {
    reading->caveats.push_back("the theory is of MLPs, and layers are mixtures of experts");
  }
  AddInitCaveat(description, &reading->caveats);
}

}  // namespace

Reading ReadModel(const Json& description) {
  Reading reading;
  reading.norm_before_head = description["norms_before_head"] > 0;
  std::optional<Route> route;
  bool plain = true;
  for (const std::string statement : description["begin"]) {
    // A statement such as "begin: d = x" adds a second stream.
    plain = plain && absl::StartsWith(statement, "begin: x = ") && !HasScaleOrCondition(statement);
  }
  const Json& layers = description["layers"];
  for (const Json& group : layers) {
    for (const std::string equation : group["equations"]) {
      plain = plain && !HasScaleOrCondition(equation);
    }
    double branches = 0;
    const std::optional<Route> of_group =
        RouteOfJacobian(group["jacobian"].get<std::string>(), Slots(group), &branches);
    plain = plain && of_group.has_value() && (!route.has_value() || *route == *of_group) &&
            (reading.additions == 0 || reading.additions == branches);
    route = of_group;
    reading.additions = branches;
  }
  if (plain && route.has_value()) reading.route = *route;
  reading.text = RouteText(reading.route);
  if (!layers.empty()) {
    absl::StrAppend(&reading.text, ": ", layers.front()["jacobian"].get<std::string>());
  }
  if (reading.route != Route::kOther) AddCaveats(description, &reading);
  return reading;
}

std::optional<Bracket> PredictStream(const Reading& reading, double v0, int64_t layer) {
  const double l = static_cast<double>(layer);
  switch (reading.route) {
    case Route::kNormedInput:
      return Bracket{v0 + l / 2, v0 + 3 * l / 2};
    case Route::kNormedOutput:
      return Bracket{v0 + reading.additions * l, v0 + reading.additions * l};
    case Route::kThroughNorms:
      return layer == 0 ? Bracket{v0, v0} : Bracket{1, 1};
    case Route::kNoNorm:
    case Route::kOther:
      break;
  }
  return std::nullopt;
}

std::optional<double> PredictDepthSlope(const Reading& reading) {
  if (reading.route == Route::kThroughNorms) return 0;
  const bool grows = reading.route == Route::kNormedInput || reading.route == Route::kNormedOutput;
  // Without a norm before the head, nothing divides by the stream's length.
  if (grows && reading.norm_before_head) return -0.5;
  return std::nullopt;
}

std::optional<double> PredictGain(const Reading& reading, const Passage& passage) {
  if (reading.route == Route::kOther) return std::nullopt;
  return std::sqrt(passage.stream_after / passage.stream_before);
}

std::string PredictionSource(const Reading& reading) {
  switch (reading.route) {
    case Route::kNormedInput:
      return "Xiong et al. 2020, Lemma 2 and Theorem 1: v_0 + l/2 <= v_l <= v_0 + 3l/2; the last "
             "gradient falls like 1/sqrt(L)";
    case Route::kNormedOutput:
      return "every addition has v = 1, as in Peri-LN (Kim et al. 2025): v_l = v_0 + m l with m "
             "sublayers a layer; the last gradient falls like 1/sqrt(L)";
    case Route::kThroughNorms:
      return "Xiong et al. 2020, Theorem 1: v_l = 1; the last gradient does not depend on L";
    case Route::kNoNorm:
      return "every sublayer adds in proportion to the stream: v_l grows geometrically";
    case Route::kOther:
      break;
  }
  return "";
}

}  // namespace plumb::cli
