// SPDX-License-Identifier: Apache-2.0
#ifndef PLUMB_TESTS_FIGURE_PDF_STRUCTURE_H_
#define PLUMB_TESTS_FIGURE_PDF_STRUCTURE_H_

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Returns the errors of the structure of a PDF as ToPdf writes it: the cross-reference table, and
// the length of the content stream. It is empty for a correct file.
inline std::vector<std::string> PdfErrors(absl::string_view pdf) {
  std::vector<std::string> errors;
  const auto number_at = [&](size_t at) {
    return static_cast<size_t>(std::atoll(std::string(pdf.substr(at, 20)).c_str()));
  };
  if (!absl::StartsWith(pdf, "%PDF-1.4\n")) errors.push_back("no header");
  if (!absl::EndsWith(pdf, "\n%%EOF\n")) errors.push_back("no end");
  const size_t start = pdf.rfind("startxref\n");
  if (start == absl::string_view::npos) return {"no startxref"};
  const size_t table = number_at(start + 10);
  if (!absl::StartsWith(pdf.substr(table), "xref\n0 ")) return {"startxref is wrong"};
  const size_t count = number_at(table + 7);
  const size_t first = pdf.find('\n', table + 7) + 1;
  for (size_t i = 1; i < count; ++i) {
    const size_t entry = first + 20 * i;  // entries have 20 bytes
    if (pdf.substr(entry + 10, 10) != " 00000 n \n") errors.push_back(absl::StrCat("entry ", i));
    if (!absl::StartsWith(pdf.substr(number_at(entry)), absl::StrCat(i, " 0 obj\n"))) {
      errors.push_back(absl::StrCat("offset ", i));
    }
  }
  if (!absl::StartsWith(pdf.substr(first + 20 * count), "trailer")) errors.push_back("no trailer");
  const size_t length = number_at(pdf.find("/Length ") + 8);
  const size_t stream = pdf.find("stream\n") + 7;
  if (!absl::StartsWith(pdf.substr(stream + length), "\nendstream")) errors.push_back("length");
  return errors;
}

}  // namespace plumb

#endif  // PLUMB_TESTS_FIGURE_PDF_STRUCTURE_H_
