// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/points.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plugins/check/plugin.h"
#include "plugins/check/state.h"
#include "plugins/check/trace.h"

namespace plumb::check {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kNames[kAxes] = {
    "dim",      "rows", "from",   "to",    "type",  "attributes", "heads",
    "context",  "eval", "flush",  "place", "pitch", "alias",      "add",
    "residual", "host", "pieces", "x",     "dy",    "params",     "seed"};
// Number of values of axes that are a choice, else 0.
constexpr int64_t kChoices[kAxes] = {
    0, 0, 0, 0, 3, 0, 0, 2, 2, 2, 6, 2, 2, 2, 2, 3, 2, kDistributions, kDenormalX + 1, 8, 0};
constexpr const char* kTypes[] = {"f32", "bf16", "f64"};
constexpr int64_t kMaxDim = 16384, kMaxRows = 66000;

int64_t Simplest(const Point& point, size_t axis) {
  return axis == kDim || axis == kRows ? 1 : axis == kTo ? point[kRows] : 0;
}

Point Simple() {
  Point point{};
  point[kDim] = point[kRows] = point[kTo] = 1;
  return point;
}

bool IsLegal(const Point& p) {
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if (p[axis] < 0 || (kChoices[axis] > 0 && p[axis] >= kChoices[axis])) return false;
  }
  return p[kDim] >= 1 && p[kDim] <= 1 << 20 && p[kRows] >= 1 && p[kRows] <= 1 << 20 &&
         p[kHeads] <= 64 && (p[kHeads] == 0 || p[kRows] % p[kHeads] == 0) && p[kFrom] < p[kTo] &&
         p[kTo] <= p[kRows];
}

// -- Random points --------------------------------------------------------------------------------

int64_t Below(std::mt19937_64* random, int64_t n) {
  return static_cast<int64_t>((*random)() % static_cast<uint64_t>(std::max<int64_t>(n, 1)));
}

int64_t LogUniform(std::mt19937_64* random, int64_t max) {
  const double u = std::uniform_real_distribution<double>(0, 1)(*random);
  return std::clamp<int64_t>(
      static_cast<int64_t>(std::exp(u * std::log(static_cast<double>(max) + 1))), 1, max);
}

// Draws a short length, any length, or a multiple of a unit or its neighbour: loops have remainders
// if a dim is no multiple of these, and specialized code may exist if it is.
int64_t DrawDim(std::mt19937_64* random) {
  constexpr int64_t kUnits[] = {8, 16, 32, 64, 100, 256, 768, 1000, 1024, 4096};
  const int64_t kind = Below(random, 5);
  if (kind == 0) return 1 + Below(random, 8);
  if (kind == 1) return LogUniform(random, kMaxDim);
  const int64_t unit = kUnits[static_cast<size_t>(Below(random, std::size(kUnits)))];
  const int64_t multiple = unit * LogUniform(random, kMaxDim / unit);
  return std::clamp<int64_t>(multiple + Below(random, 3) - 1, 1, kMaxDim);
}

Point Draw(const plumb_norm_plugin& norm, std::mt19937_64* random) {
  // Max elements of an operand: most points are small, so that many of them fit the time.
  constexpr int64_t kUsualElements = 40000, kMaxElements = 1300000;
  const std::vector<AttributeCase>& cases = GetCases(norm);
  Point point = Simple();
  point[kDim] = DrawDim(random);
  if (Below(random, 2) == 0) {
    point[kAttributes] = Below(random, static_cast<int64_t>(cases.size()));
  }
  // A whole number among the attributes, such as a number of groups, may be a corner.
  const AttributeCase& used = cases[static_cast<size_t>(point[kAttributes])];
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    if (GetAttr(norm, i).type != PLUMB_ATTR_I64 || Below(random, 3) != 0) continue;
    point[kDim] = std::clamp<int64_t>(used.values[i].i, 1, 64) * (Below(random, 2) * 3 + 1);
  }
  const int64_t max = Below(random, 12) == 0 ? kMaxElements : kUsualElements;
  const int64_t max_rows = std::clamp<int64_t>(max / point[kDim], 1, kMaxRows);
  // The largest size is as frequent as a whole decade, because decisions based on the number of
  // rows happen there.
  point[kRows] = Below(random, 5) == 0 ? max_rows : LogUniform(random, max_rows);
  // The range has one row, all rows after its first, or any rows.
  if (Below(random, 2) == 0) {
    const int64_t max_from = Below(random, 2) == 0 ? 20 : point[kRows];
    point[kFrom] = std::min(Below(random, max_from), point[kRows] - 1);
  }
  const int64_t left = point[kRows] - point[kFrom], kind = Below(random, 3);
  point[kTo] = point[kFrom] + (kind == 0 ? 1 : kind == 1 ? left : 1 + Below(random, left));
  // Each choice stays at its simplest value half of the time, so that combinations vary.
  for (size_t axis = 0; axis < kAxes; ++axis) {
    const int64_t choices = axis == kHost ? 0 : kChoices[axis] - (axis == kPlace ? 1 : 0);
    if (choices > 0 && Below(random, 2) == 0) point[axis] = Below(random, choices);
  }
  if (Below(random, 3) != 0) point[kType] = Below(random, 3);
  if (Below(random, 6) == 0) point[kHeads] = 1 + Below(random, 4);
  if (point[kHeads] > 0 && point[kRows] % point[kHeads] != 0) point[kHeads] = 0;
  point[kSeed] = Below(random, 1000000);
  return point;
}

// -- Exploration ----------------------------------------------------------------------------------

// Tests the property; a CheckEnded is a failure of the point.
std::optional<std::string> Try(const Property& property, const Point& point) {
  const ScopedFlushing flushing(point[kFlushed] != 0);
  TracePoint(NameOfPoint(point));
  try {
    return property(point);
  } catch (const CheckEnded& ended) {
    return ended.text;
  }
}

// Returns the smallest point near `point` that fails too, and sets *text to its problem.
Point Shrink(const Property& property, Point point, std::string* text) {
  const auto end = Clock::now() + std::chrono::seconds(3);
  const auto try_value = [&](size_t axis, int64_t value) {
    Point next = point;
    next[axis] = value;
    if (axis == kRows) next[kTo] = std::min(next[kTo], value);
    next[kFrom] = std::min(next[kFrom], next[kTo] - 1);
    if (next == point || !IsLegal(next) || Clock::now() > end) return false;
    const std::optional<std::string> found = Try(property, next);
    if (!found.has_value() || found->empty()) return false;
    point = next;
    *text = *found;
    return true;
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (size_t axis = 0; axis < kAxes; ++axis) {
      const bool is_length = axis < kType;
      const int64_t value = point[axis];
      smaller = try_value(axis, Simplest(point, axis)) ||
                (is_length && (try_value(axis, value / 2) || try_value(axis, value * 3 / 4) ||
                               try_value(axis, value - 1))) ||
                smaller;
    }
  }
  return point;
}

}  // namespace

Point WithForms(Point point, uint32_t forms) {
  constexpr uint32_t kForms = kRangeForms | 1u << kPlace | 1u << kPitches | 1u << kAlias |
                              1u << kAdd | 1u << kResidual | 1u << kPieces;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if ((kForms & ~forms & 1u << axis) != 0) point[axis] = Simplest(point, axis);
  }
  return point;
}

std::string RepeatCommand(const std::string& path, const char* check, const std::string& point) {
  return absl::StrCat("\nrepeat: plumb plugin check ", path, " --check ", check, " --point ",
                      point);
}

std::string NameOfPoint(const Point& point) {
  std::string text;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if (point[axis] == Simplest(point, axis) && axis > kRows) continue;
    absl::StrAppend(&text, text.empty() ? "" : ",", kNames[axis], "=");
    if (axis == kType) {
      absl::StrAppend(&text, kTypes[point[axis]]);
    } else {
      absl::StrAppend(&text, point[axis]);
    }
  }
  return text;
}

std::vector<Point> ParsePoints(const std::string& pattern) {
  std::vector<Point> points = {Simple()};
  bool has_type = false, has_to = false;
  for (const absl::string_view part : absl::StrSplit(pattern, ',', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(part, '=');
    const auto* found = std::find(std::begin(kNames), std::end(kNames), words[0]);
    if (words.size() != 2 || found == std::end(kNames)) return {};
    const auto axis = static_cast<size_t>(found - kNames);
    has_type = has_type || axis == kType;
    has_to = has_to || axis == kTo;
    std::vector<int64_t> values;
    for (const std::string& word : std::vector<std::string>(absl::StrSplit(words[1], '|'))) {
      const auto* type = std::find(std::begin(kTypes), std::end(kTypes), word);
      int64_t value = type - kTypes;
      if (type == std::end(kTypes) && word != "*" && !absl::SimpleAtoi(word, &value)) return {};
      values.push_back(value);
      for (value = 1; word == "*" && value < kSingleCases; ++value) values.push_back(value);
      if (word == "*") values.front() = 0;
    }
    std::vector<Point> more;
    for (Point point : points) {
      for (const int64_t value : values) {
        point[axis] = value;
        more.push_back(point);
      }
    }
    points = std::move(more);
  }
  std::vector<Point> legal;
  for (Point point : points) {
    if (!has_to) point[kTo] = point[kRows];
    if (!IsLegal(point)) return {};
    for (int64_t mode = 0; mode < (has_type ? 1 : 4); ++mode) {
      if (!has_type) point[kType] = mode % 3;
      if (mode == 3) point[kFlushed] = 1;
      legal.push_back(point);
    }
  }
  return legal;
}

std::optional<Point> ParsePoint(const std::string& text) {
  const std::vector<Point> points = ParsePoints(text);
  const bool is_one = text.find_first_of("|*") == std::string::npos;
  return points.empty() || !is_one ? std::nullopt : std::optional<Point>(points[0]);
}

void Explore(const Subject& subject, const char* check, const Property& property,
             const std::vector<std::string>& fixed, uint32_t forms, Report* report) {
  const bool given = !subject.point.empty();
  std::vector<Point> points;
  if (given) {
    const std::optional<Point> point = ParsePoint(subject.point);
    if (!point.has_value()) return report->Fail("no such point: " + subject.point);
    points = {*point};
  }
  const auto n_cases = static_cast<int64_t>(GetCases(*subject.norm).size());
  for (const std::string& pattern : fixed) {
    if (given) break;
    for (Point point : ParsePoints(pattern)) {
      // Rules derive choices from the seed modulo small numbers, so 240 keeps those choices.
      point[kSeed] += 240 * static_cast<int64_t>(subject.seed % 4000);
      if (point[kDim] * point[kRows] > 20'000 && point[kRows] > 5 && point[kDim] > 1) continue;
      if (point[kAttributes] < n_cases) points.push_back(point);
    }
  }
  const size_t n_fixed = points.size();
  std::mt19937_64 random(subject.seed * 0x9e3779b97f4a7c15u + 1);
  int64_t tried = 0;
  std::string not_tried;
  const std::chrono::duration<double> seconds(given ? 0 : subject.seconds);
  Clock::time_point end;  // of the exploration, which begins after the fixed points
  for (size_t i = 0; i < n_fixed || Clock::now() < end; ++i) {
    if (i + 1 == n_fixed) end = Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds);
    Point point = i < n_fixed ? points[i] : WithForms(Draw(*subject.norm, &random), forms);
    try {
      std::optional<std::string> text = Try(property, point);
      if (text.has_value()) ++tried;
      if (!text.has_value() || text->empty()) continue;
      if (!given) point = Shrink(property, point, &*text);
      return report->Fail(*text + RepeatCommand(subject.path, check, NameOfPoint(point)));
    } catch (const NotTried& exception) {
      not_tried = exception.reason;
    }
  }
  TracePoint("");
  if (tried == 0) return report->Skip("it does not apply to this norm");
  report->Note(absl::StrCat("held at ", tried, " points"));
  if (!not_tried.empty()) report->Note("rows gigabytes apart were not tried: " + not_tried);
}

}  // namespace plumb::check
