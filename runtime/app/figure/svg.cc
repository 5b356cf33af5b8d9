// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "runtime/app/figure/drawing.h"
#include "runtime/app/figure/number_text.h"
#include "runtime/app/figure/palette.h"
#include "runtime/app/figure/text_metrics.h"
#include "runtime/base/utf8.h"

namespace plumb {

namespace {

std::string HexColor(uint32_t rgb) { return absl::StrFormat("#%06x", rgb); }

std::string AttributeText(absl::string_view name, double value) {
  return absl::StrCat(" ", name, "=\"", CoordinateText(value), "\"");
}

// Writes the elements of an SVG and collects their colors. Elements have the color of a light page;
// the rule of their class replaces it on a dark page.
class SvgWriter {
 public:
  void operator()(const DrawnLine& line) {
    absl::StrAppend(&elements_, "<path", Paint("stroke", line.color), " d=\"",
                    PathData(line.points), "\"", AttributeText("stroke-width", line.width));
    if (!line.dashes.empty()) {
      absl::StrAppend(&elements_, " stroke-dasharray=\"");
      for (size_t i = 0; i < line.dashes.size(); ++i) {
        absl::StrAppend(&elements_, i == 0 ? "" : " ", CoordinateText(line.dashes[i]));
      }
      absl::StrAppend(&elements_, "\"");
    }
    EndElement(line.opacity);
  }

  void operator()(const DrawnArea& area) {
    absl::StrAppend(&elements_, "<path", Paint("fill", area.color), " d=\"", PathData(area.points),
                    "Z\"");
    EndElement(area.opacity);
  }

  void operator()(const DrawnCircle& circle) {
    absl::StrAppend(&elements_, "<circle", Paint("fill", circle.color),
                    AttributeText("cx", circle.center.x), AttributeText("cy", circle.center.y),
                    AttributeText("r", circle.radius));
    EndElement(1);
  }

  void operator()(const DrawnText& text) {
    absl::StrAppend(&elements_, "<text", Paint("fill", text.color));
    if (text.is_vertical) {
      absl::StrAppend(&elements_, " transform=\"translate(", CoordinateText(text.at.x), " ",
                      CoordinateText(text.at.y), ") rotate(-90)\"");
    } else {
      absl::StrAppend(&elements_, AttributeText("x", text.at.x), AttributeText("y", text.at.y));
    }
    // The length keeps the layout where none of the fonts is installed.
    absl::StrAppend(&elements_, AttributeText("font-size", text.size),
                    AttributeText("textLength", TextWidth(text.text, text.size)),
                    " lengthAdjust=\"spacingAndGlyphs\"",
                    text.anchor == TextAnchor::kStart    ? ""
                    : text.anchor == TextAnchor::kMiddle ? " text-anchor=\"middle\""
                                                         : " text-anchor=\"end\"",
                    ">", XmlText(text.text), "</text>\n");
  }

  const std::string& elements() const { return elements_; }

  // Returns the rules for a dark page.
  std::string DarkRules() const {
    std::string rules;
    for (const auto& [name, rule] : dark_rules_) {
      absl::StrAppend(&rules, ".plumb-figure .", name, " { ", rule, "; }\n");
    }
    return rules;
  }

 private:
  static std::string PathData(const std::vector<DrawingPoint>& points) {
    std::string data;
    for (const DrawingPoint& point : points) {
      absl::StrAppend(&data, data.empty() ? "M" : "L", CoordinateText(point.x), " ",
                      CoordinateText(point.y));
    }
    return data;
  }

  // Returns the attributes of a stroke or fill. The name of a class is a function of its rule,
  // because a page may contain several drawings.
  std::string Paint(absl::string_view property, const DrawingColor& color) {
    const std::string light = HexColor(color.light), dark = HexColor(color.dark);
    std::string attributes;
    if (light != dark) {
      const std::string name = absl::StrCat(property.substr(0, 1), dark.substr(1));
      dark_rules_[name] = absl::StrCat(property, ": ", dark);
      absl::StrAppend(&attributes, " class=\"", name, "\"");
    }
    absl::StrAppend(&attributes, property == "stroke" ? " fill=\"none\" " : " ", property, "=\"",
                    light, "\"");
    return attributes;
  }

  void EndElement(double opacity) {
    if (opacity < 1) absl::StrAppend(&elements_, AttributeText("opacity", opacity));
    absl::StrAppend(&elements_, "/>\n");
  }

  std::string elements_;
  std::map<std::string, std::string> dark_rules_;  // by the names of their classes
};

}  // namespace

std::string ToSvg(const Drawing& drawing) {
  Drawing page;
  AddRectangle({0, 0, drawing.width, drawing.height}, kPageColor, &page);
  SvgWriter writer;
  std::visit(writer, page.shapes[0]);
  for (const DrawnShape& shape : drawing.shapes) std::visit(writer, shape);
  const std::string width = CoordinateText(drawing.width), height = CoordinateText(drawing.height);
  return absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plumb-figure\" role=\"img\" width=\"",
      width, "pt\" height=\"", height, "pt\" viewBox=\"0 0 ", width, " ", height,
      "\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'Nimbus Sans', sans-serif\" "
      "stroke-linejoin=\"round\">"
      "\n<title>",
      XmlText(drawing.title), "</title>\n<style>\n@media (prefers-color-scheme: dark) {\n",
      writer.DarkRules(), "}\n</style>\n", writer.elements(), "</svg>\n");
}

}  // namespace plumb
