#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/theory/figures.h"
#include "cli/theory/results.h"

namespace plumb::cli {
namespace {

constexpr char kHead[] = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>plumb theory</title>
<style>
:root { color-scheme: light dark; --page: #fbfbf9; --ink: #1b1e22; --muted: #5a626b;
  --line: #d9dbd6; --grid: #e7e9e4; --shade: #f0f1ec; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --ink: #e7e9e6; --muted: #a3abb3;
  --line: #363c42; --grid: #2a2f34; --shade: #1d2226; } }
body { margin: 0 auto; max-width: 1240px; padding: 24px clamp(16px, 3vw, 40px) 64px;
  background: var(--page); color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1, h2 { line-height: 1.2; font-weight: 650; }
h2 { font-size: 1.05rem; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: 0.86em; }
pre { background: var(--shade); padding: 10px 14px; overflow-x: auto; }
.figures { display: grid; gap: 24px 40px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); }
figure { margin: 0; }
figure svg { width: 100%; height: auto; }
figcaption svg { width: 22px; height: 8px; }
figcaption, .note { color: var(--muted); font-size: 0.86rem; }
figcaption span { margin-right: 14px; white-space: nowrap; }
text { fill: var(--muted); font-size: 11.5px; }
path { fill: none; stroke-width: 1.6; }
.grid { stroke: var(--grid); }
.axis { stroke: var(--line); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 14px 3px 0; text-align: right; border-bottom: 1px solid var(--grid); }
</style>
</head>
<body>
)html";

std::string Layers(int64_t n_layer) { return absl::StrCat(n_layer, " layers"); }

Chart StreamChart(const TheoryResults& results) {
  Chart chart{"Residual stream: E‖x‖²/d after each layer", "layer l", "v_l", false, true, {}};
  int color = 0;
  for (const Measurement& depth : results.depths) {
    Curve curve{Layers(depth.n_layer), {}, {}, false, color++};
    for (const OverSeeds& v : depth.stream) {
      curve.x.push_back(static_cast<double>(curve.x.size()));
      curve.y.push_back(v.mean);
    }
    chart.curves.push_back(std::move(curve));
  }
  // The prediction does not depend on how many layers follow: that of the deepest shows all.
  const Measurement& deepest = results.depths.back();
  Curve low{"predicted", {}, {}, true, 4}, high{"", {}, {}, true, 4};
  for (int64_t layer = 0; layer <= deepest.n_layer; ++layer) {
    const auto bracket = PredictStream(results.reading, deepest.stream[0].mean, layer);
    if (!bracket.has_value()) return chart;
    low.x.push_back(static_cast<double>(layer));
    low.y.push_back(bracket->low);
    high.x.push_back(static_cast<double>(layer));
    high.y.push_back(bracket->high);
  }
  chart.curves.push_back(std::move(low));
  chart.curves.push_back(std::move(high));
  return chart;
}

Chart GradientChart(const TheoryResults& results) {
  Chart chart{"Gradient norm of each MLP's output weights",
              "MLP, from the first",
              "‖∂L/∂W‖",
              false,
              true,
              {}};
  int color = 0;
  for (const Measurement& depth : results.depths) {
    Curve curve{Layers(depth.n_layer), {}, {}, false, color++};
    for (const NamedOverSeeds& gradient : depth.gradients) {
      curve.x.push_back(static_cast<double>(curve.x.size() + 1));
      curve.y.push_back(gradient.value.mean);
    }
    chart.curves.push_back(std::move(curve));
  }
  return chart;
}

Chart SlopeChart(const TheoryResults& results) {
  const DepthSeries series = LastGradients(results);
  Chart chart{"Gradient norm of the last MLP's output weights over depth",
              "layers",
              "‖∂L/∂W‖",
              true,
              true,
              {}};
  const auto slope = MeasuredDepthSlope(results), predicted = PredictDepthSlope(results.reading);
  chart.curves.push_back(
      {slope.has_value() ? absl::StrFormat("measured, slope %.3f", *slope) : "measured",
       series.depths, series.last_gradients, false, 0});
  if (!predicted.has_value() || series.depths.empty()) return chart;
  Curve line{absl::StrFormat("predicted, slope %g", *predicted), series.depths, {}, true, 4};
  for (const double depth : series.depths) {
    line.y.push_back(series.last_gradients[0] * std::pow(depth / series.depths[0], *predicted));
  }
  chart.curves.push_back(std::move(line));
  return chart;
}

Chart GainChart(const TheoryResults& results) {
  const Measurement& depth = results.depths.back();
  Chart chart{absl::StrCat("Gain of each sublayer, ", Layers(depth.n_layer)),
              "sublayer, from the first",
              "gain",
              false,
              false,
              {}};
  Curve measured{"measured", {}, {}, false, 0}, predicted{"predicted", {}, {}, true, 4};
  for (const Passage& passage : depth.passages) {
    measured.x.push_back(static_cast<double>(measured.x.size() + 1));
    measured.y.push_back(passage.gain);
    const auto gain = PredictGain(results.reading, passage);
    if (!gain.has_value()) continue;
    predicted.x.push_back(measured.x.back());
    predicted.y.push_back(*gain);
  }
  chart.curves = {std::move(measured)};
  if (!predicted.x.empty()) chart.curves.push_back(std::move(predicted));
  return chart;
}

}  // namespace

std::string ToPage(const TheoryResults& results) {
  std::string html =
      absl::StrCat(kHead, "<h1>", EscapeHtml(results.model), " at initialization</h1>\n<p><code>",
                   EscapeHtml(results.command), "</code></p>\n<pre>");
  for (const std::string& equation : results.equations) {
    absl::StrAppend(&html, EscapeHtml(equation), "\n");
  }
  absl::StrAppend(&html, "</pre>\n<p>", EscapeHtml(results.reading.text), ".</p>\n<p>");
  const std::string source = PredictionSource(results.reading);
  absl::StrAppend(&html, source.empty() ? "Nothing is predicted" : EscapeHtml(source), ".");
  for (const std::string& caveat : results.reading.caveats) {
    absl::StrAppend(&html, " But here ", EscapeHtml(caveat), ".");
  }
  absl::StrAppend(&html, "</p>\n<div class=\"figures\">\n", DrawChart(StreamChart(results)),
                  DrawChart(GradientChart(results)));
  if (results.depths.size() > 1) absl::StrAppend(&html, DrawChart(SlopeChart(results)));
  absl::StrAppend(
      &html, DrawChart(GainChart(results)), "</div>\n<p class=\"note\">Means over ", results.seeds,
      " seeds of one sequence of ", results.seq,
      " tokens. The gain of a sublayer is the RMS of the loss's gradient by the stream before it, "
      "over that by the stream after it; predicted is √(v after / v before).</p>\n<pre>",
      EscapeHtml(ToText(results)), "</pre>\n</body>\n</html>\n");
  return html;
}

}  // namespace plumb::cli
