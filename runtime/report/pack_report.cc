// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/pack_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace plumb {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int64_t kNull = 64 * 64 * 64 - 1;  // code of null
constexpr double kLastCode = kNull - 1;      // code of the highest value
constexpr char kNumber = '~';                // place of a number in a template
constexpr int kCurveDigits = 5, kPairedDigits = 6;

// Replaces a list of positive numbers and nulls by codes if they restore every number.
void PackCurve(Json* curve) {
  if (!curve->is_array()) return;
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const Json& value : *curve) {
    if (value.is_null()) continue;
    if (!value.is_number() || value.get<double>() <= 0) return;
    low = std::min(low, value.get<double>());
    high = std::max(high, value.get<double>());
  }
  if (!(low < high)) return;
  const double range = std::log(high / low);
  std::string codes;
  for (const Json& value : *curve) {
    int64_t code = kNull;
    if (!value.is_null()) {
      const double number = value.get<double>();
      code = std::lround(std::log(number / low) / range * kLastCode);
      const double restored = low * std::exp(static_cast<double>(code) / kLastCode * range);
      if (RoundToDigits(restored, kCurveDigits) != number) return;
    }
    for (const int shift : {12, 6, 0}) codes += kBase64[(code >> shift) & 63];
  }
  *curve = Json{{"low", low}, {"high", high}, {"codes", std::move(codes)}};
}

// Replaces pictures by the indices of their lines' templates and their numbers.
class PicturePacker {
 public:
  void Pack(Json* picture) {
    if (!picture->is_string()) return;
    const std::string text = picture->get<std::string>();
    if (absl::StrContains(text, kNumber)) return;
    std::vector<std::string> rows;
    for (absl::string_view line : absl::StrSplit(text, '\n')) rows.push_back(PackLine(line));
    *picture = Json{{"rows", absl::StrJoin(rows, "\n")}};
  }
  const Json& templates() const { return templates_; }

 private:
  std::string PackLine(absl::string_view line) {
    std::string pattern, numbers;
    bool in_number = false;
    for (const char c : line) {
      const bool is_digit = (c >= '0' && c <= '9') || c == '.';
      if (!is_digit) {
        pattern += c;
      } else if (!in_number) {
        pattern += kNumber;
        numbers += ' ';
      }
      if (is_digit) numbers += c;
      in_number = is_digit;
    }
    const auto [found, is_new] = indices_.emplace(pattern, indices_.size());
    if (is_new) templates_.push_back(pattern);
    return absl::StrCat(found->second, numbers);
  }

  std::map<std::string, size_t> indices_;
  Json templates_ = Json::array();
};

// Returns true if `row` is an object with the members of `first`, none of which is nested.
bool HasMembersOf(const Json& row, const Json& first) {
  if (!row.is_object() || row.size() != first.size()) return false;
  for (const auto& item : first.items()) {
    const auto found = row.find(item.key());
    if (found == row.end() || !found->is_primitive()) return false;
  }
  return true;
}

// Replaces a list of objects with the same members by a list for each member.
void PackRows(Json* rows) {
  if (!rows->is_array() || rows->empty() || !rows->front().is_object()) return;
  const Json& first = rows->front();
  if (!std::all_of(rows->begin(), rows->end(),
                   [&](const Json& row) { return HasMembersOf(row, first); })) {
    return;
  }
  Json columns = Json::object();
  for (const auto& item : first.items()) {
    Json column = Json::array();
    for (const Json& row : *rows) {
      const Json& value = row[item.key()];
      column.push_back(value.is_number_float()
                           ? Json(RoundToDigits(value.get<double>(), kPairedDigits))
                           : value);
    }
    const bool is_constant = std::all_of(column.begin(), column.end(),
                                         [&](const Json& value) { return value == column[0]; });
    columns[item.key()] = is_constant ? Json(column[0]) : std::move(column);
  }
  *rows = Json{{"rows", rows->size()}, {"columns", std::move(columns)}};
}

// Calls use(element[name]) for the elements of report[list] that have such a member.
template <typename Use>
void ForEachMember(Json* report, const char* list, const char* name, Use use) {
  const auto found = report->find(list);
  if (found == report->end() || !found->is_array()) return;
  for (Json& element : *found) {
    if (element.is_object() && element.contains(name)) use(&element[name]);
  }
}

}  // namespace

double RoundToDigits(double value, int digits) {
  double rounded = value;
  if (std::isfinite(value)) {
    (void)absl::SimpleAtod(absl::StrFormat("%.*g", digits, value), &rounded);
  }
  return rounded;
}

Json PackReport(Json report) {
  if (!report.is_object()) return report;
  ForEachMember(&report, "runs", "loss", PackCurve);
  ForEachMember(&report, "groups", "extremes", PackCurve);
  PicturePacker pictures;
  ForEachMember(&report, "models", "picture", [&](Json* picture) { pictures.Pack(picture); });
  if (!pictures.templates().empty()) report["picture_lines"] = pictures.templates();
  if (report.contains("paired")) PackRows(&report["paired"]);
  const auto best = report.find("best");
  if (best != report.end() && best->is_object() && best->contains("paired")) {
    PackRows(&(*best)["paired"]);
  }
  return report;
}

}  // namespace plumb
