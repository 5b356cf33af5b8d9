// SPDX-License-Identifier: Apache-2.0
// The HTML page of `plumb theory`: line charts as SVG, without scripts.
#include "cli/theory/results.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/utf8.h"

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

struct Curve {
  std::string name;
  std::vector<double> x, y;  // points that the axes cannot show are dropped
  bool predicted = false;    // predicted curves are dashed
  int color = 0;             // curves of one color belong together
};

struct Chart {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<Curve> curves;
};

// Size and margins of a chart, in SVG units.
constexpr double kWidth = 560, kHeight = 300, kLeft = 62, kRight = 14, kTop = 10, kBottom = 44;
// Colors that remain distinct with all common kinds of color vision, on light and dark backgrounds
// (Okabe & Ito).
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b"};

// Axis that maps values to positions.
class Axis {
 public:
  Axis(bool log, double from, double to) : log_(log), from_(from), to_(to) {}

  bool Shows(double value) const { return std::isfinite(value) && (!log_ || value > 0); }
  void Include(double value) {
    if (!Shows(value)) return;
    low_ = std::min(low_, Scaled(value));
    high_ = std::max(high_, Scaled(value));
  }
  bool empty() const { return low_ > high_; }
  // Adds a margin: a large one around a single value, a small one around several.
  void Pad(double share) {
    const double span = high_ - low_;
    const double pad = span > 0 ? share * span : std::max(0.1, 0.1 * std::abs(low_));
    low_ -= pad;
    high_ += pad;
  }
  double Place(double value) const {
    return from_ + (Scaled(value) - low_) / (high_ - low_) * (to_ - from_);
  }
  // Returns about five values to mark.
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (log_ && high_ - low_ > 1.2) {
      const double step = std::max(1.0, std::ceil((high_ - low_) / 5));
      const double first = std::ceil(low_);
      for (int i = 0; first + i * step <= high_; ++i)
        ticks.push_back(std::pow(10, first + i * step));
      return ticks;
    }
    const double low = log_ ? std::pow(10, low_) : low_, high = log_ ? std::pow(10, high_) : high_;
    const double rough = (high - low) / 5, power = std::pow(10, std::floor(std::log10(rough)));
    const double lead = rough / power;
    const double step = power * (lead > 5 ? 10 : lead > 2 ? 5 : lead > 1 ? 2 : 1);
    const double first = std::ceil(low / step);
    for (int i = 0; i < 12 && (first + i) * step <= high; ++i) ticks.push_back((first + i) * step);
    return ticks;
  }

 private:
  double Scaled(double value) const { return log_ ? std::log10(value) : value; }

  bool log_;
  double from_, to_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

void AppendText(double x, double y, const char* anchor, const std::string& text, std::string* svg) {
  absl::StrAppendFormat(svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
                        anchor, XmlText(text));
}

void AppendAxes(const Chart& chart, const Axis& x, const Axis& y, std::string* svg) {
  for (const double tick : y.Ticks()) {
    const double place = y.Place(tick);
    absl::StrAppendFormat(
        svg, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", kLeft,
        kWidth - kRight, place, place);
    AppendText(kLeft - 6, place + 4, "end", absl::StrFormat("%.3g", tick), svg);
  }
  for (const double tick : x.Ticks()) {
    AppendText(x.Place(tick), kHeight - kBottom + 17, "middle", absl::StrFormat("%.3g", tick), svg);
  }
  absl::StrAppendFormat(svg,
                        "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                        kLeft, kWidth - kRight, kHeight - kBottom, kHeight - kBottom);
  AppendText((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", chart.x_label, svg);
  absl::StrAppendFormat(
      svg, "<text transform=\"translate(13 %.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
      (kTop + kHeight - kBottom) / 2, XmlText(chart.y_label));
}

void AppendCurve(const Curve& curve, const Axis& x, const Axis& y, std::string* svg) {
  const char* color = kColors[static_cast<size_t>(curve.color) % std::size(kColors)];
  std::string path, dots;
  for (size_t i = 0; i < curve.x.size(); ++i) {
    if (!x.Shows(curve.x[i]) || !y.Shows(curve.y[i])) continue;
    const double px = x.Place(curve.x[i]), py = y.Place(curve.y[i]);
    absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L", px, py);
    if (curve.predicted) continue;
    absl::StrAppendFormat(
        &dots,
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.2\" fill=\"%s\"><title>%s: %.6g at "
        "%.6g</title></circle>\n",
        px, py, color, XmlText(curve.name), curve.y[i], curve.x[i]);
  }
  if (path.empty()) return;
  absl::StrAppendFormat(svg, "<path d=\"%s\" stroke=\"%s\"%s/>\n%s", path, color,
                        curve.predicted ? " stroke-dasharray=\"5 4\"" : "", dots);
}

void AppendLegend(const Chart& chart, std::string* html) {
  absl::StrAppend(html, "<figcaption>");
  for (const Curve& curve : chart.curves) {
    if (curve.name.empty()) continue;
    absl::StrAppendFormat(
        html,
        "<span><svg width=\"22\" height=\"8\" aria-hidden=\"true\"><path d=\"M0 4H22\" "
        "stroke=\"%s\"%s/></svg> %s</span> ",
        kColors[static_cast<size_t>(curve.color) % std::size(kColors)],
        curve.predicted ? " stroke-dasharray=\"5 4\"" : "", XmlText(curve.name));
  }
  absl::StrAppend(html, "</figcaption>\n");
}

// Returns a <figure> with an SVG, the curves' names and, for screen readers, its title. A chart
// without finite points contains a message instead.
std::string DrawChart(const Chart& chart) {
  Axis x(chart.log_x, kLeft, kWidth - kRight), y(chart.log_y, kHeight - kBottom, kTop);
  for (const Curve& curve : chart.curves) {
    for (size_t i = 0; i < curve.x.size(); ++i) {
      if (!x.Shows(curve.x[i]) || !y.Shows(curve.y[i])) continue;
      x.Include(curve.x[i]);
      y.Include(curve.y[i]);
    }
  }
  std::string html = absl::StrCat("<figure>\n<h2>", XmlText(chart.title), "</h2>\n");
  if (x.empty()) return absl::StrCat(html, "<p>No finite number to show.</p>\n</figure>\n");
  x.Pad(0.02);
  y.Pad(0.06);
  absl::StrAppendFormat(&html, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n",
                        kWidth, kHeight, XmlText(chart.title));
  AppendAxes(chart, x, y, &html);
  for (const Curve& curve : chart.curves) AppendCurve(curve, x, y, &html);
  absl::StrAppend(&html, "</svg>\n");
  AppendLegend(chart, &html);
  return absl::StrCat(html, "</figure>\n");
}

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
  // The prediction does not depend on the number of layers, so the deepest model's covers all.
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
      absl::StrCat(kHead, "<h1>", XmlText(results.model), " at initialization</h1>\n<p><code>",
                   XmlText(results.command), "</code></p>\n<pre>");
  for (const std::string& equation : results.equations) {
    absl::StrAppend(&html, XmlText(equation), "\n");
  }
  absl::StrAppend(&html, "</pre>\n<p>", XmlText(results.reading.text), ".</p>\n<p>");
  const std::string source = PredictionSource(results.reading);
  absl::StrAppend(&html, source.empty() ? "Nothing is predicted" : XmlText(source), ".");
  for (const std::string& caveat : results.reading.caveats) {
    absl::StrAppend(&html, " But here ", XmlText(caveat), ".");
  }
  absl::StrAppend(&html, "</p>\n<div class=\"figures\">\n", DrawChart(StreamChart(results)),
                  DrawChart(GradientChart(results)));
  if (results.depths.size() > 1) absl::StrAppend(&html, DrawChart(SlopeChart(results)));
  absl::StrAppend(
      &html, DrawChart(GainChart(results)), "</div>\n<p class=\"note\">Means over ", results.seeds,
      " seeds of one sequence of ", results.seq,
      " tokens. The gain of a sublayer is the RMS of the loss's gradient by the stream before it, "
      "over that by the stream after it; predicted is √(v after / v before).</p>\n<pre>",
      XmlText(ToText(results)), "</pre>\n</body>\n</html>\n");
  return html;
}

}  // namespace plumb::cli
