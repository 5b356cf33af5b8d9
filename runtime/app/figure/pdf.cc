// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "runtime/app/figure/drawing.h"
#include "runtime/app/figure/number_text.h"
#include "runtime/app/figure/text_metrics.h"

namespace plumb {

namespace {

// Returns bytes as a literal string of PDF.
std::string PdfString(absl::string_view bytes) {
  std::string text = "(";
  for (const char c : bytes) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '(' || c == ')' || c == '\\') {
      absl::StrAppend(&text, "\\", std::string(1, c));
    } else if (code < 32 || code > 126) {
      absl::StrAppendFormat(&text, "\\%03o", code);
    } else {
      text.push_back(c);
    }
  }
  return text + ")";
}

std::string ColorOperands(uint32_t rgb) {
  return absl::StrFormat("%.3f %.3f %.3f", ((rgb >> 16) & 0xff) / 255.0,
                         ((rgb >> 8) & 0xff) / 255.0, (rgb & 0xff) / 255.0);
}

// Writes the content stream of a page, whose y axis points upwards.
class PdfWriter {
 public:
  explicit PdfWriter(double height) : height_(height) {}

  void operator()(const DrawnLine& line) {
    std::string dashes;
    for (const double dash : line.dashes) absl::StrAppend(&dashes, CoordinateText(dash), " ");
    SetOpacity(line.opacity);
    absl::StrAppend(&content_, ColorOperands(line.color.light), " RG ", CoordinateText(line.width),
                    " w [", dashes, "] 0 d\n");
    AppendPath(line.points);
    absl::StrAppend(&content_, "S\n");
  }

  void operator()(const DrawnArea& area) {
    SetOpacity(area.opacity);
    absl::StrAppend(&content_, ColorOperands(area.color.light), " rg\n");
    AppendPath(area.points);
    absl::StrAppend(&content_, "f\n");
  }

  void operator()(const DrawnCircle& circle) {
    constexpr double kHandle = 0.5523;  // of the Bezier curve that is closest to a quarter circle
    const double r = circle.radius, k = kHandle * r;
    const auto at = [&](double dx, double dy) {
      return PointText({circle.center.x + dx, circle.center.y + dy});
    };
    SetOpacity(1);
    absl::StrAppend(&content_, ColorOperands(circle.color.light), " rg\n", at(r, 0), " m\n");
    absl::StrAppend(&content_, at(r, k), " ", at(k, r), " ", at(0, r), " c\n");
    absl::StrAppend(&content_, at(-k, r), " ", at(-r, k), " ", at(-r, 0), " c\n");
    absl::StrAppend(&content_, at(-r, -k), " ", at(-k, -r), " ", at(0, -r), " c\n");
    absl::StrAppend(&content_, at(k, -r), " ", at(r, -k), " ", at(r, 0), " c\nf\n");
  }

  void operator()(const DrawnText& text) {
    const std::vector<PdfTextRun> runs = PdfRuns(text.text);
    double width = 0;
    for (const PdfTextRun& run : runs) width += run.width * text.size;
    const double before = text.anchor == TextAnchor::kStart    ? 0
                          : text.anchor == TextAnchor::kMiddle ? width / 2
                                                               : width;
    DrawingPoint start = text.at;
    (text.is_vertical ? start.y : start.x) += text.is_vertical ? before : -before;
    SetOpacity(1);
    absl::StrAppend(&content_, ColorOperands(text.color.light), " rg\nBT ",
                    text.is_vertical ? "0 1 -1 0 " : "1 0 0 1 ", PointText(start), " Tm\n");
    for (const PdfTextRun& run : runs) {
      absl::StrAppend(&content_, run.is_symbol ? "/F2 " : "/F1 ", CoordinateText(text.size), " Tf ",
                      PdfString(run.codes), " Tj\n");
    }
    absl::StrAppend(&content_, "ET\n");
  }

  const std::string& content() const { return content_; }

  // Returns the resource dictionary's entry for the opacities in use.
  std::string GraphicsStates() const {
    std::string states = "/ExtGState <<";
    for (size_t i = 0; i < opacities_.size(); ++i) {
      const std::string opacity = CoordinateText(opacities_[i]);
      absl::StrAppend(&states, " /G", i, " << /ca ", opacity, " /CA ", opacity, " >>");
    }
    return states + " >>";
  }

 private:
  std::string PointText(const DrawingPoint& point) const {
    return absl::StrCat(CoordinateText(point.x), " ", CoordinateText(height_ - point.y));
  }

  void AppendPath(const std::vector<DrawingPoint>& points) {
    const char* op = " m\n";
    for (const DrawingPoint& point : points) {
      absl::StrAppend(&content_, PointText(point), op);
      op = " l\n";
    }
  }

  void SetOpacity(double opacity) {
    if (opacity == opacities_[opacity_]) return;
    opacity_ = static_cast<size_t>(std::find(opacities_.begin(), opacities_.end(), opacity) -
                                   opacities_.begin());
    if (opacity_ == opacities_.size()) opacities_.push_back(opacity);
    absl::StrAppend(&content_, "/G", opacity_, " gs\n");
  }

  double height_;
  std::string content_ = "1 j\n";  // round joins
  std::vector<double> opacities_ = {1};
  size_t opacity_ = 0;  // index of the current one
};

}  // namespace

std::string ToPdf(const Drawing& drawing) {
  PdfWriter writer(drawing.height);
  for (const DrawnShape& shape : drawing.shapes) std::visit(writer, shape);
  const std::vector<std::string> objects = {
      "<< /Type /Catalog /Pages 2 0 R >>",
      "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
      absl::StrCat("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ", CoordinateText(drawing.width),
                   " ", CoordinateText(drawing.height),
                   "] /Contents 4 0 R /Resources << /Font << /F1 5 0 R /F2 6 0 R >> ",
                   writer.GraphicsStates(), " >> >>"),
      absl::StrCat("<< /Length ", writer.content().size(), " >>\nstream\n", writer.content(),
                   "\nendstream"),
      "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
      "<< /Type /Font /Subtype /Type1 /BaseFont /Symbol >>"};
  std::string pdf = "%PDF-1.4\n%\xe2\xe3\xcf\xd3\n";  // the second line marks a binary file
  std::string table = absl::StrFormat("xref\n0 %d\n0000000000 65535 f \n", objects.size() + 1);
  for (size_t i = 0; i < objects.size(); ++i) {
    absl::StrAppendFormat(&table, "%010d 00000 n \n", pdf.size());
    absl::StrAppend(&pdf, i + 1, " 0 obj\n", objects[i], "\nendobj\n");
  }
  return absl::StrCat(pdf, table, "trailer\n<< /Size ", objects.size() + 1,
                      " /Root 1 0 R >>\nstartxref\n", pdf.size(), "\n%%EOF\n");
}

}  // namespace plumb
