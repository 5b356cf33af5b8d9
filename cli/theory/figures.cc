#include "cli/theory/figures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "runtime/tools/text.h"

namespace plumb::cli {
namespace {

// Of the drawing, in its own units.
constexpr double kWidth = 560, kHeight = 300, kLeft = 62, kRight = 14, kTop = 10, kBottom = 44;
// Told apart with every common kind of colour vision, on light and dark ground (Okabe & Ito).
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b"};

// One axis: values to places.
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
  // Room around a single value, and a little around several.
  void Pad(double share) {
    const double span = high_ - low_;
    const double pad = span > 0 ? share * span : std::max(0.1, 0.1 * std::abs(low_));
    low_ -= pad;
    high_ += pad;
  }
  double Place(double value) const {
    return from_ + (Scaled(value) - low_) / (high_ - low_) * (to_ - from_);
  }
  // Values to mark, about five.
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (log_ && high_ - low_ > 1.2) {
      const double step = std::max(1.0, std::ceil((high_ - low_) / 5));
      for (double e = std::ceil(low_); e <= high_; e += step) ticks.push_back(std::pow(10, e));
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
                        anchor, EscapeHtml(text));
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
      (kTop + kHeight - kBottom) / 2, EscapeHtml(chart.y_label));
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
        px, py, color, EscapeHtml(curve.name), curve.y[i], curve.x[i]);
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
        curve.predicted ? " stroke-dasharray=\"5 4\"" : "", EscapeHtml(curve.name));
  }
  absl::StrAppend(html, "</figcaption>\n");
}

}  // namespace

std::string EscapeHtml(const std::string& text) {
  return absl::StrReplaceAll(
      ToPrintable(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string DrawChart(const Chart& chart) {
  Axis x(chart.log_x, kLeft, kWidth - kRight), y(chart.log_y, kHeight - kBottom, kTop);
  for (const Curve& curve : chart.curves) {
    for (size_t i = 0; i < curve.x.size(); ++i) {
      if (!x.Shows(curve.x[i]) || !y.Shows(curve.y[i])) continue;
      x.Include(curve.x[i]);
      y.Include(curve.y[i]);
    }
  }
  std::string html = absl::StrCat("<figure>\n<h2>", EscapeHtml(chart.title), "</h2>\n");
  if (x.empty()) return absl::StrCat(html, "<p>No finite number to show.</p>\n</figure>\n");
  x.Pad(0.02);
  y.Pad(0.06);
  absl::StrAppendFormat(&html, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n",
                        kWidth, kHeight, EscapeHtml(chart.title));
  AppendAxes(chart, x, y, &html);
  for (const Curve& curve : chart.curves) AppendCurve(curve, x, y, &html);
  absl::StrAppend(&html, "</svg>\n");
  AppendLegend(chart, &html);
  return absl::StrCat(html, "</figure>\n");
}

}  // namespace plumb::cli
