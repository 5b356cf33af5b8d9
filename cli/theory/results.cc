// SPDX-License-Identifier: Apache-2.0
#include "cli/theory/results.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumb::cli {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

std::string Number(std::optional<double> value) {
  return value.has_value() && std::isfinite(*value) ? absl::StrFormat("%.4g", *value) : "-";
}

std::string BracketText(const std::optional<Bracket>& bracket) {
  if (!bracket.has_value()) return "-";
  if (bracket->low == bracket->high) return Number(bracket->low);
  return absl::StrCat(Number(bracket->low), " .. ", Number(bracket->high));
}

// Returns the layers that the text table shows: 0, 1, 2, 4, 8 .. and the last.
std::set<int64_t> ShownLayers(int64_t n_layer) {
  std::set<int64_t> layers = {0, n_layer};
  for (int64_t layer = 1; layer < n_layer; layer *= 2) layers.insert(layer);
  return layers;
}

void AppendRatio(const char* what, const RatioOverSeeds& ratio, std::string* text) {
  absl::StrAppend(text, "  ", what, "  ", Number(ratio.geometric_mean), " (", Number(ratio.low),
                  ", ", Number(ratio.median), ", ", Number(ratio.high), ")");
}

Json Quantiles(const RatioOverSeeds& ratio) {
  return {{"0.1", OrNull(ratio.low)}, {"0.5", OrNull(ratio.median)}, {"0.9", OrNull(ratio.high)}};
}

void AppendDepth(const TheoryResults& results, const Measurement& depth, std::string* text) {
  absl::StrAppendFormat(text, "\n%d layers\n", depth.n_layer);
  absl::StrAppendFormat(text, "  %-8s %12s %10s   %-18s %12s\n", "layer", "E|x|^2/d", "sd",
                        "predicted", "gradient");
  const double v0 = depth.stream[0].mean;
  for (const int64_t layer : ShownLayers(depth.n_layer)) {
    const OverSeeds& v = depth.stream[static_cast<size_t>(layer)];
    // A row has space for one MLP per layer; --json has all.
    const bool has_gradient =
        layer > 0 && static_cast<int64_t>(depth.gradients.size()) == depth.n_layer;
    absl::StrAppendFormat(
        text, "  %-8d %12s %10s   %-18s %12s\n", layer, Number(v.mean), Number(v.sd),
        BracketText(PredictStream(results.reading, v0, layer)),
        has_gradient ? Number(depth.gradients[static_cast<size_t>(layer - 1)].value.mean) : "");
  }
  absl::StrAppend(text, "  growth per layer            ", Number(GrowthPerLayer(depth)), "\n");
  AppendRatio("gradient, first over last ", depth.first_over_last, text);
  absl::StrAppend(text, "\n");
  AppendRatio("gain through all layers   ", depth.total_gain, text);
  double predicted = 1;
  bool known = !depth.passages.empty();
  for (const Passage& passage : depth.passages) {
    const std::optional<double> gain = PredictGain(results.reading, passage);
    known = known && gain.has_value();
    predicted *= gain.value_or(1);
  }
  if (known) absl::StrAppend(text, "   predicted ", Number(predicted));
  absl::StrAppend(text, "\n");
}

Json DepthJson(const TheoryResults& results, const Measurement& depth) {
  Json stream = Json::array(), gradients = Json::array(), passages = Json::array();
  for (size_t layer = 0; layer < depth.stream.size(); ++layer) {
    const std::optional<Bracket> bracket =
        PredictStream(results.reading, depth.stream[0].mean, static_cast<int64_t>(layer));
    stream.push_back({{"layer", layer},
                      {"value", OrNull(depth.stream[layer].mean)},
                      {"sd", OrNull(depth.stream[layer].sd)},
                      {"predicted", bracket.has_value()
                                        ? Json::array({OrNull(bracket->low), OrNull(bracket->high)})
                                        : Json(nullptr)}});
  }
  for (const NamedOverSeeds& gradient : depth.gradients) {
    gradients.push_back({{"name", gradient.name},
                         {"norm", OrNull(gradient.value.mean)},
                         {"sd", OrNull(gradient.value.sd)}});
  }
  for (const Passage& passage : depth.passages) {
    passages.push_back({{"name", passage.name},
                        {"gain", OrNull(passage.gain)},
                        {"predicted", OrNull(PredictGain(results.reading, passage))}});
  }
  return {{"n_layer", depth.n_layer},
          {"stream", stream},
          {"growth_per_layer", OrNull(GrowthPerLayer(depth))},
          {"gradients", gradients},
          {"first_over_last", OrNull(depth.first_over_last.geometric_mean)},
          {"first_over_last_quantiles", Quantiles(depth.first_over_last)},
          {"gains", passages},
          {"total_gain", OrNull(depth.total_gain.geometric_mean)},
          {"total_gain_quantiles", Quantiles(depth.total_gain)}};
}

}  // namespace

std::optional<double> MeasuredDepthSlope(const TheoryResults& results) {
  std::vector<double> depths, last_gradients;
  for (const Measurement& depth : results.depths) {
    if (depth.gradients.empty()) continue;
    depths.push_back(static_cast<double>(depth.n_layer));
    last_gradients.push_back(depth.gradients.back().value.mean);
  }
  if (depths.size() < 2) return std::nullopt;
  return LogLogSlope(depths, last_gradients);
}

std::string ToText(const TheoryResults& results) {
  std::string text =
      absl::StrFormat("%s at initialization, %d seeds, %d tokens\n%s\n", results.model,
                      results.seeds, results.seq, results.reading.text);
  const std::string source = PredictionSource(results.reading);
  absl::StrAppend(&text, source.empty() ? "nothing is predicted" : source, "\n");
  for (const std::string& caveat : results.reading.caveats) {
    absl::StrAppend(&text, "  but here ", caveat, "\n");
  }
  absl::StrAppend(&text, "ratios: geometric mean over seeds (quantiles 0.1, 0.5, 0.9)\n");
  for (const Measurement& depth : results.depths) AppendDepth(results, depth, &text);
  const std::optional<double> slope = MeasuredDepthSlope(results);
  if (slope.has_value()) {
    absl::StrAppend(&text, "\nlast gradient over depth, log-log slope   ", Number(slope),
                    "   predicted ", Number(PredictDepthSlope(results.reading)), "\n");
  }
  return text;
}

Json ToJson(const TheoryResults& results) {
  static constexpr const char* kRoutes[] = {"normed_input", "normed_output", "through_norms",
                                            "no_norm", "other"};
  Json depths = Json::array();
  for (const Measurement& depth : results.depths) depths.push_back(DepthJson(results, depth));
  return {{"model", results.model},
          {"file", results.file},
          {"seeds", results.seeds},
          {"seq", results.seq},
          {"equations", results.equations},
          {"route", kRoutes[static_cast<size_t>(results.reading.route)]},
          {"reading", results.reading.text},
          {"norm_before_head", results.reading.norm_before_head},
          {"source", PredictionSource(results.reading)},
          {"caveats", results.reading.caveats},
          {"depths", depths},
          {"depth_slope",
           {{"measured", OrNull(MeasuredDepthSlope(results))},
            {"predicted", OrNull(PredictDepthSlope(results.reading))}}}};
}

}  // namespace plumb::cli
