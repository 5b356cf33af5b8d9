// SPDX-License-Identifier: Apache-2.0
// Widths of text in Helvetica, and text that fits a width. Arial, Liberation Sans and Nimbus Sans
// have the same widths. Pure functions; texts are UTF-8.
#ifndef PLUMB_RUNTIME_APP_FIGURE_TEXT_METRICS_H_
#define PLUMB_RUNTIME_APP_FIGURE_TEXT_METRICS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plumb {

// Heights of a line of text above and below its baseline, in font sizes.
inline constexpr double kTextAscent = 0.76;
inline constexpr double kTextDescent = 0.22;

// Returns printable text on one line: line breaks and tabs become spaces, other controls and
// invalid bytes become escapes (PrintableText).
std::string OneLine(absl::string_view text);

// Returns the width of a line in points. Characters outside of WinAnsi and of the characters that
// PdfRuns takes from Symbol count as one font size.
double TextWidth(absl::string_view text, double size);

// Returns the text, or its begin and end with an ellipsis between them if it is wider than
// `max_width`; "" if not even the ellipsis fits.
std::string ShortenText(absl::string_view text, double size, double max_width);

// Returns the text as at most `max_lines` lines, broken at spaces. A line that is still too wide is
// shortened. Requires: max_lines > 0.
std::vector<std::string> WrapText(absl::string_view text, double size, double max_width,
                                  size_t max_lines);

// Part of a line in one of the two fonts of a PDF.
struct PdfTextRun {
  bool is_symbol = false;  // Symbol; else Helvetica with WinAnsiEncoding
  std::string codes;       // bytes in the font's encoding
  double width = 0;        // in font sizes
};

// Returns the text in the encodings of a PDF's standard fonts. Greek letters, arrows and some
// signs of mathematics (the minus sign, infinity, comparisons) come from Symbol. A character that
// neither font has becomes "?".
std::vector<PdfTextRun> PdfRuns(absl::string_view text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_FIGURE_TEXT_METRICS_H_
