// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/points.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plugins/check/calls.h"
#include "plugins/check/cases.h"
#include "plugins/check/float_state.h"
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
    0, 0, 0, 0, 3, 0, 0, 2, 2, 2, 5, 2, 2, 2, 2, 3, 3, kKindsOfX, kKindsOfDy, kKindsOfParams, 0};
constexpr int64_t kMaxDim = 16384;
constexpr int64_t kMaxRows = 66000;
constexpr int kMaxShrinks = 300;
constexpr double kShrinkSeconds = 3;
// Max elements of an operand: most points are small, so that many of them fit the time.
constexpr int64_t kUsualElements = 40000, kMaxElements = 1300000;

// Register widths and lengths of models, and their neighbours, where loops end.
constexpr int64_t kDims[] = {1,    2,    3,    4,    5,    7,    8,    15,    16,    17,
                             31,   32,   33,   48,   63,   64,   65,   100,   127,   128,
                             129,  255,  256,  257,  511,  512,  513,  640,   767,   768,
                             769,  1023, 1024, 1025, 1280, 1536, 2047, 2048,  2049,  3072,
                             4095, 4096, 4097, 5120, 8191, 8192, 8193, 12288, 16383, 16384};
// Loops have remainders if a dim is no multiple of these; specialized code may exist if it is.
constexpr int64_t kUnits[] = {8, 16, 32, 64, 100, 256, 768, 1000, 1024, 4096};

int64_t Simplest(int axis) { return axis == kDim || axis == kRows || axis == kTo ? 1 : 0; }

int64_t Below(std::mt19937_64* random, int64_t n) {
  return static_cast<int64_t>((*random)() % static_cast<uint64_t>(std::max<int64_t>(n, 1)));
}

int64_t LogUniform(std::mt19937_64* random, int64_t max) {
  const double u = std::uniform_real_distribution<double>(0, 1)(*random);
  return std::clamp<int64_t>(
      static_cast<int64_t>(std::exp(u * std::log(static_cast<double>(max) + 1))), 1, max);
}

// Draws a known length, a multiple of a unit or its neighbour, or any length.
int64_t DrawDim(std::mt19937_64* random) {
  const int64_t kind = Below(random, 5);
  if (kind == 4) return 1 + Below(random, 8);
  if (kind < 2) return kDims[static_cast<size_t>(Below(random, std::size(kDims)))];
  if (kind == 2) return LogUniform(random, kMaxDim);
  const int64_t unit = kUnits[static_cast<size_t>(Below(random, std::size(kUnits)))];
  const int64_t multiple = unit * LogUniform(random, kMaxDim / unit);
  return std::clamp<int64_t>(multiple + Below(random, 3) - 1, 1, kMaxDim);
}

// Draws a range of one row, all rows, or any rows.
void DrawRange(std::mt19937_64* random, Point* point) {
  const int64_t rows = (*point)[kRows];
  (*point)[kFrom] = Below(random, 3) == 0 ? 0 : Below(random, rows);
  if (Below(random, 4) == 0) (*point)[kFrom] = Below(random, std::min<int64_t>(rows, 20));
  const int64_t left = rows - (*point)[kFrom];
  const int64_t kind = Below(random, 3);
  (*point)[kTo] = (*point)[kFrom] + (kind == 0 ? 1 : kind == 1 ? left : 1 + Below(random, left));
}

Point Simple() {
  Point point;
  for (int axis = 0; axis < kAxes; ++axis) point[static_cast<size_t>(axis)] = Simplest(axis);
  return point;
}

// Number of corners: combinations of long and odd dims, many rows and each type, in which other
// axes advance with coprime strides, and then rows as short as loops are unrolled for.
constexpr size_t kCorners = 82, kShortRows = 8;

Point Corner(size_t i, int64_t attribute_cases, std::mt19937_64* random) {
  constexpr int64_t kShapes[][2] = {
      {1, 9},     {16, 5},    {65, 3},   {256, 2},  {768, 3},   {15, 330}, {4097, 2}, {1024, 9},
      {17, 1200}, {64, 1},    {128, 33}, {101, 9},  {8192, 2},  {32, 260}, {2049, 3}, {1025, 70},
      {12, 4200}, {3, 10500}, {100, 40}, {640, 12}, {2, 66000}, {16384, 2}};
  Point point = Simple();
  point[kSeed] = static_cast<int64_t>(i);
  if (i >= kCorners - 2 * kShortRows) {
    const int64_t k = static_cast<int64_t>(i - (kCorners - 2 * kShortRows));
    point[kDim] = 1 + k % static_cast<int64_t>(kShortRows);
    point[kRows] = point[kTo] = 3 + k % 3;
    point[kType] = k < static_cast<int64_t>(kShortRows) ? 2 : k % 3;
    if (k >= static_cast<int64_t>(kShortRows)) point[kAttributes] = Below(random, attribute_cases);
    return point;
  }
  const auto& shape = kShapes[i % std::size(kShapes)];
  point[kDim] = shape[0];
  point[kRows] = point[kTo] = shape[1];
  if (i % 2 == 1) {
    point[kFrom] = shape[1] / 3;
    point[kTo] = i % 4 == 1 ? shape[1] / 3 + 1 : shape[1];
  }
  const int64_t k = static_cast<int64_t>(i / std::size(kShapes) + i);
  point[kType] = k % 3;
  point[kAttributes] = k % std::max<int64_t>(attribute_cases, 1);
  point[kPlace] = k % 5;
  point[kPitches] = k / 2 % 2;
  point[kAdd] = k / 3 % 2;
  point[kAlias] = k % 5 == 0 ? 1 : 0;
  point[kResidual] = k % 6 == 1 ? 1 : 0;
  point[kPieces] = k % 3;
  if (i < std::size(kShapes) && i % 2 == 0) return point;
  point[kX] = k % kKindsOfX;
  point[kDy] = k / 2 % kKindsOfDy;
  point[kParams] = k % kKindsOfParams;
  point[kEvaluation] = k % 7 == 0 ? 1 : 0;
  return point;
}

// Returns for each case the whole number that it sets, if any, such as a number of groups. A row
// with as many elements is a corner.
std::vector<int64_t> WholeNumbers(const plumb_norm_plugin& norm) {
  const std::vector<plumb_attr_value> defaults = DefaultValues(norm);
  std::vector<int64_t> numbers;
  for (const AttributeCase& each : CasesOf(norm)) {
    numbers.push_back(0);
    for (uint32_t i = 0; i < norm.n_attrs; ++i) {
      const bool is_set =
          AttrOf(norm, i).type == PLUMB_ATTR_I64 && each.values[i].i != defaults[i].i;
      if (is_set) numbers.back() = each.values[i].i;
    }
  }
  return numbers;
}

// Returns for each case rows far from zero, where a difference of sums is least exact, and rows as
// long as its whole number, such as one group per element.
std::vector<Point> CornersOfCases(const std::vector<int64_t>& numbers) {
  constexpr int64_t kMaxNumber = 64, kUsual = 16;
  std::vector<Point> points;
  for (size_t i = 0; i < numbers.size(); ++i) {
    Point point = Simple();
    point[kRows] = point[kTo] = 3;
    point[kAttributes] = point[kSeed] = static_cast<int64_t>(i);
    const bool has_length = numbers[i] > 1 && numbers[i] <= kMaxNumber;
    if (has_length) {
      point[kDim] = numbers[i];
      point[kType] = static_cast<int64_t>(i % 3);
      points.push_back(point);
    }
    point[kDim] = has_length ? 4 * numbers[i] : kUsual;
    point[kType] = 0;
    point[kX] = kNarrowX;
    points.push_back(point);
  }
  return points;
}

Point Draw(std::mt19937_64* random, const std::vector<int64_t>& numbers) {
  const int64_t attribute_cases = static_cast<int64_t>(numbers.size());
  Point point = Simple();
  point[kDim] = DrawDim(random);
  if (Below(random, 2) == 0) point[kAttributes] = Below(random, attribute_cases);
  const int64_t number = numbers[static_cast<size_t>(point[kAttributes])];
  if (number > 0 && number <= 4096 && Below(random, 4) == 0) point[kDim] = number;
  const int64_t max = Below(random, 12) == 0 ? kMaxElements : kUsualElements;
  const int64_t max_rows = std::clamp<int64_t>(max / point[kDim], 1, kMaxRows);
  // The largest size is as frequent as a whole decade, because decisions based on the number of
  // rows happen there.
  point[kRows] = Below(random, 5) == 0 ? max_rows : LogUniform(random, max_rows);
  DrawRange(random, &point);
  // Each choice stays at its simplest value half of the time, so that combinations vary.
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if (kChoices[axis] > 0 && Below(random, 2) == 0) point[axis] = Below(random, kChoices[axis]);
    if (axis == kHost) point[axis] = 0;  // M5 sets it
  }
  if (Below(random, 3) != 0) point[kType] = Below(random, 3);
  if (Below(random, 6) == 0) {
    point[kHeads] = 1 + Below(random, 4);
    if (point[kRows] % point[kHeads] != 0) point[kHeads] = 0;
  }
  point[kSeed] = Below(random, 1000000);
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

// Tests the property; a CheckEnded is a failure of the point.
std::optional<std::string> Try(const Property& property, const Point& point) {
  const ScopedFlushing flushing(point[kFlushed] != 0);
  try {
    return property(point);
  } catch (const CheckEnded& ended) {
    return ended.text;
  }
}

// Returns smaller values of an axis, the smallest first.
std::vector<int64_t> Smaller(const Point& point, size_t axis) {
  const int64_t value = point[axis], simplest = Simplest(static_cast<int>(axis));
  if (value == simplest) return {};
  if (axis != kDim && axis != kRows && axis != kFrom && axis != kTo) return {simplest};
  std::vector<int64_t> values = {simplest};
  for (int64_t half = value / 2; half > simplest; half /= 2) values.push_back(half);
  for (int64_t step = (value - simplest) / 2; step > 0; step /= 2) values.push_back(value - step);
  return values;
}

// Returns the smallest point near `point` that fails too, and sets *text to its problem.
Point Shrink(const Property& property, Point point, std::string* text) {
  const auto start = Clock::now();
  int tries = 0;
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const Axis axis :
         {kRows, kDim, kX, kDy, kParams, kPitches, kPlace, kHeads, kContext, kAlias, kAdd,
          kResidual, kPieces, kFlushed, kAttributes, kEvaluation, kFrom, kTo, kType}) {
      for (const int64_t value : Smaller(point, axis)) {
        if (++tries > kMaxShrinks ||
            Clock::now() - start > std::chrono::duration<double>(kShrinkSeconds)) {
          return point;
        }
        Point next = point;
        next[axis] = value;
        next[kTo] = std::min(next[kTo], next[kRows]);
        next[kFrom] = std::min(next[kFrom], next[kTo] - 1);
        if (!IsLegal(next)) continue;
        const std::optional<std::string> found = Try(property, next);
        if (!found.has_value() || found->empty()) continue;
        point = next;
        *text = *found;
        smaller = true;
        break;
      }
    }
  }
  return point;
}

}  // namespace

Point WithForms(Point point, uint32_t forms) {
  constexpr uint32_t kForms = kRangeForms | 1u << kPlace | 1u << kPitches | 1u << kAlias |
                              1u << kAdd | 1u << kResidual | 1u << kPieces;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if ((kForms & ~forms & 1u << axis) != 0) point[axis] = axis == kTo ? point[kRows] : 0;
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
    if (point[axis] == Simplest(static_cast<int>(axis)) && axis > kRows) continue;
    absl::StrAppend(&text, text.empty() ? "" : ",", kNames[axis], "=");
    constexpr const char* kTypes[] = {"f32", "bf16", "f64"};
    if (axis == kType) {
      absl::StrAppend(&text, kTypes[point[axis]]);
    } else {
      absl::StrAppend(&text, point[axis]);
    }
  }
  return text;
}

std::optional<Point> ParsePoint(const std::string& text) {
  Point point = Simple();
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(part, '=');
    const auto* name = std::find(std::begin(kNames), std::end(kNames), words[0]);
    if (words.size() != 2 || name == std::end(kNames)) return std::nullopt;
    int64_t& value = point[static_cast<size_t>(name - kNames)];
    if (words[1] == "f32" || words[1] == "bf16" || words[1] == "f64") {
      value = words[1] == "f32" ? 0 : words[1] == "bf16" ? 1 : 2;
    } else if (!absl::SimpleAtoi(words[1], &value)) {
      return std::nullopt;
    }
  }
  return IsLegal(point) ? std::optional<Point>(point) : std::nullopt;
}

void Explore(const Subject& subject, const char* check, const Property& property,
             const std::vector<Point>& fixed, uint32_t forms, Report* report) {
  auto end = Clock::now();  // of the exploration, which begins after the fixed points
  std::optional<Point> given;
  if (!subject.point.empty()) given = ParsePoint(subject.point);
  if (!subject.point.empty() && !given.has_value()) {
    return report->Fail(absl::StrCat("no such point: ", subject.point));
  }
  const std::vector<int64_t> numbers = WholeNumbers(*subject.norm);
  std::vector<Point> points = given.has_value() ? std::vector<Point>{*given} : fixed;
  std::mt19937_64 random(subject.seed * 0x9e3779b97f4a7c15u + 1);
  if (!given.has_value()) {
    const std::vector<Point> of_cases = CornersOfCases(numbers);
    for (size_t i = 0; i < std::max(kCorners, of_cases.size()); ++i) {
      if (i < of_cases.size()) points.push_back(of_cases[i]);
      if (i >= kCorners) continue;
      points.push_back(Corner(i, static_cast<int64_t>(numbers.size()), &random));
    }
  }
  int64_t tried = 0;
  for (size_t i = 0; i <= fixed.size() || Clock::now() < end; ++i) {
    if (given.has_value() && i > 0) break;
    if (i == fixed.size()) {
      end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(subject.seconds));
    }
    Point point = i < points.size() ? points[i] : Draw(&random, numbers);
    if (!given.has_value()) point = WithForms(point, forms);
    TracePoint(NameOfPoint(point));
    std::optional<std::string> text = Try(property, point);
    if (text.has_value()) ++tried;
    if (!text.has_value() || text->empty()) continue;
    if (!given.has_value()) point = Shrink(property, point, &*text);
    return report->Fail(
        absl::StrCat(*text, RepeatCommand(subject.path, check, NameOfPoint(point))));
  }
  TracePoint("");
  if (tried == 0) return report->Skip("it does not apply to this norm");
  report->Note(absl::StrCat("held at ", tried, " points"));
}

}  // namespace plumb::check
