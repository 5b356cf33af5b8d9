// SPDX-License-Identifier: Apache-2.0
// Numbers, sizes, times, tables and differences as people read them. Pure functions.
#ifndef PLUMB_RUNTIME_BASE_TEXT_FORMAT_H_
#define PLUMB_RUNTIME_BASE_TEXT_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plumb {

std::string WithCommas(int64_t n);                     // "25,968"
std::string Count(int64_t n, absl::string_view noun);  // "1 norm", "2,000 norms"
std::string Bytes(int64_t bytes);                      // "101.4 KiB"
std::string Duration(double seconds);                  // "0.84 s", "2:05", "1:02:05"
std::string Rate(double per_second);                   // "850", "45.2k"
// Returns the rows as lines of columns separated by two spaces, each line after `indent`.
// `alignment` has "l" or "r" for each column; the last one, if "l", is not padded.
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         absl::string_view alignment, absl::string_view indent);
// Returns a text as a cell of a CSV file (RFC 4180). A text that a spreadsheet would run as a
// formula, "=1+1", follows a "'"; a number stays as it is.
std::string CsvText(absl::string_view text);
std::string CsvNumber(std::optional<double> value);  // nine digits; "" if there is no finite one

// Returns ascending numbers with runs as ranges: "0..4,6..10", "3".
std::string RangesText(const std::vector<int64_t>& numbers, absl::string_view separator = ",");
// Returns the shortest decimal that parses to the same finite number, so that equal texts mean
// equal numbers: "0.1", "1e-05".
std::string ShortestNumber(double value);

// Returns the lines from the first to the last that differ: "  - " for lines of `then`, "  + " for
// lines of `now`, max `max` of each and a count of the rest. Returns "" for equal texts.
std::string TextDifference(absl::string_view then, absl::string_view now, size_t max = 8);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_TEXT_FORMAT_H_
