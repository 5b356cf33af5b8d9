// SPDX-License-Identifier: Apache-2.0
// Table of all checks: the rule of each property, the points at which it is tried in any case, and
// the forms of calls that exploration varies.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/cases.h"
#include "plugins/check/check.h"
#include "plugins/check/points.h"
#include "plugins/check/rules.h"

namespace plumb::check {
namespace {

constexpr uint32_t kPlacement = 1u << kPlace | 1u << kPitches | 1u << kAlias;

// Modes in which each fixed point is tried, as bits.
enum Modes { kF32 = 1, kBf16 = 2, kF64 = 4, kF32Flushed = 8, kAllModes = 15 };

// Fixed points of a check.
struct Fixed {
  std::vector<uint32_t> dims;
  std::vector<const char*> calls;  // in the syntax of --point, without dim, type and flush
  int modes = kAllModes;
  bool each_attribute = false;  // also other attributes than the defaults
  bool one_dim = false;         // only the first dim that create() accepts
  std::vector<Fixed> more = {};
};

// Dims around the widths of vectors.
const std::vector<uint32_t> kUsualDims = {17, 64, 101},
                            kManyDims = {1,  2,  3,  7,   8,   15,   16,  17,
                                         31, 33, 64, 100, 768, 1000, 4096};

std::vector<Point> PointsOf(const plumb_norm_plugin& norm, const Fixed& fixed, uint64_t seed) {
  const size_t cases = fixed.each_attribute ? CountOfSingleCases(norm) : 1;
  std::vector<Point> points;
  for (size_t c = 0; c < cases; ++c) {
    std::vector<uint32_t> dims;
    for (const std::vector<uint32_t>& list : {fixed.dims, {17, 16, 12, 8, 64, 6, 4, 2, 1, 768}}) {
      if (!dims.empty()) break;
      for (const uint32_t dim : list) {
        if (fixed.one_dim && !dims.empty()) break;
        if (TryInstance(norm, dim, CasesOf(norm)[c].values) != nullptr) dims.push_back(dim);
      }
    }
    for (const uint32_t dim : dims) {
      for (const char* call : fixed.calls) {
        Point point = *ParsePoint(absl::StrCat("dim=", dim, ",", call));
        if (dim * point[kRows] > 20'000 && point[kRows] > 5) continue;
        point[kAttributes] = static_cast<int64_t>(c);
        // Rules derive choices from the seed modulo small numbers, so 240 keeps those choices.
        point[kSeed] += 240 * static_cast<int64_t>(seed % 4000);
        for (const int mode : {kF32, kBf16, kF64, kF32Flushed}) {
          if ((fixed.modes & mode) == 0) continue;
          point[kType] = mode == kBf16 ? 1 : mode == kF64 ? 2 : 0;
          point[kFlushed] = mode == kF32Flushed ? 1 : 0;
          points.push_back(point);
        }
      }
    }
  }
  for (const Fixed& each : fixed.more) {
    for (const Point& point : PointsOf(norm, each, seed)) points.push_back(point);
  }
  return points;
}

using Run = std::function<void(const Subject&, Report*)>;
using CheckAtPoints = void (*)(const Subject&, const PointMaker&, Report*);

Check OfFile(const char* id, const char* title, const Run& run) {
  return {id, 1, /*of_file=*/true, title, run};
}

Check OfNorm(const char* id, const char* title, const Run& run) {
  return {id, 1, /*of_file=*/false, title, run};
}

// Makes a check of a rule, followed by `more` for the part that has no points.
Check Exploring(const char* id, int level, const char* title, Rule rule, const Fixed& fixed,
                uint32_t forms, std::vector<std::string> causes, const Run& more = nullptr) {
  const Run run = [=](const Subject& subject, Report* report) {
    Explore(
        subject, id, [&](const Point& point) { return rule(*subject.norm, point); },
        PointsOf(*subject.norm, fixed, subject.seed), forms, report);
    if (more != nullptr && !report->failed() && subject.point.empty()) more(subject, report);
  };
  return {id, level, /*of_file=*/false, title, run, std::move(causes), /*explores=*/true};
}

// Makes a check that explores by itself.
Check AtPoints(const char* id, int level, const char* title, CheckAtPoints check,
               const Fixed& fixed, std::vector<std::string> causes) {
  const Run run = [=](const Subject& subject, Report* report) {
    check(
        subject, [&] { return PointsOf(*subject.norm, fixed, subject.seed); }, report);
  };
  return {id, level, /*of_file=*/false, title, run, std::move(causes), /*explores=*/true};
}

std::vector<Check> Declarations() {
  return {
      OfFile("E1", "is a plugin for this machine and ABI, and loads", CheckLoads),
      OfFile("E2", "exports its entry, and links nothing dangerous", CheckLinks),
      OfFile("E5", "loading changes nothing, and takes less than 100 ms", CheckLoadEffects),
      OfFile("M1", "metadata is complete, unique and constant", CheckMetadata),
      OfNorm("M2", "attributes are sound, accepted or refused, and have an effect",
             CheckAttributes),
      OfNorm("M4", "layout is sound, and a function of attributes and dim", CheckLayout),
      Exploring(
          "M5", 1, "works with older and newer hosts", WorksWithOtherHosts,
          {{16, 64, 8, 768, 1}, {"rows=5,to=5", "rows=5,to=5,residual=1"}, kAllModes, false, true},
          1u << kResidual, {"R7", "N5", "N7"}, CheckExtensions),
      OfNorm("M6", "initial values that it writes are a function of the seed", CheckFill),
  };
}

std::vector<Check> Numbers() {
  const std::vector<uint32_t> heads = {17, 16, 8, 64, 4, 128, 2, 1};
  return {
      Exploring("N1", 2, "f32 agrees with f64, and is finite", AgreesWithF64,
                {kManyDims,
                 {"rows=1", "rows=5,to=5", "rows=257,to=257"},
                 kF32 | kF32Flushed,
                 false,
                 false,
                 {{{15, 64}, {"rows=21,to=21"}, kF32, true},
                  {{7, 64},
                   {"rows=9,to=9,x=4", "rows=9,to=9,x=12", "rows=9,to=9,x=12,eval=1",
                    "rows=9,to=9,x=14", "rows=9,to=9,x=15", "rows=10,to=10,heads=2,context=1"},
                   kF32 | kF32Flushed | kF64}}},
                0, {"R7", "N5", "N7"}),
      AtPoints(
          "N2", 2, "backward is the derivative of forward", CheckSlopes,
          {{1, 2, 3, 4, 7, 8, 17, 101},
           {"rows=5,to=5", "rows=5,to=5,seed=1", "rows=15,to=15,heads=3,context=1"},
           kF32,
           true,
           false,
           {{{7, 64},
             {"rows=5,to=5,x=2", "rows=5,to=5,x=4", "rows=5,to=5,params=1", "rows=5,to=5,params=4"},
             kF32}}},
          {"R7", "N5", "N7"}),
      Exploring("N3", 2, "gradients are added or overwritten as asked, and sums as asked",
                AddsAsAsked,
                {kUsualDims,
                 {"rows=5,from=2,to=5,add=1", "rows=5,to=5,residual=1",
                  "rows=5,to=3,residual=1,add=1", "rows=5,to=5,residual=1,alias=1",
                  "rows=5,to=5,residual=1,add=1,alias=1,seed=1", "rows=5,to=3,residual=1,seed=2",
                  "rows=5,to=3,residual=1,eval=1", "rows=5,to=5,residual=1,eval=1,alias=1",
                  "rows=6,to=6,add=1", "rows=40,from=20,to=21,add=1"}},
                kRangeForms | 1u << kAdd | 1u << kResidual | 1u << kAlias | 1u << kPitches,
                {"R7", "N5", "N7"}),
      Exploring(
          "N4", 2, "a row does not depend on other rows, nor on how it is called",
          RowsAreIndependent,
          {kUsualDims,
           {"rows=1", "rows=23,to=23,seed=5", "rows=23,from=7,to=9", "rows=23,from=7,to=8,eval=1",
            "rows=23,from=1,to=22,seed=2", "rows=23,from=4,to=8", "rows=13,to=13,eval=1",
            "rows=9,to=9,seed=1", "rows=9,to=9,seed=4", "rows=9,to=9,seed=7", "rows=5,to=2,heads=1",
            "rows=10,from=3,to=7,heads=2", "rows=15,from=4,to=10,heads=3",
            "rows=40,from=12,to=25,heads=8", "rows=7,from=2,to=6,context=1",
            "rows=14,from=2,to=13,heads=2,context=1"},
           kAllModes,
           false,
           false,
           {{{64}, {"rows=129,to=129", "rows=5,to=5,x=4"}, kF32 | kF64},
            {{1}, {"rows=10500,from=5000,to=10500"}, kF32}}},
          kRangeForms | 1u << kPieces, {"R7", "R1", "N5", "N7"}),
      Exploring(
          "N5", 2, "same bits every time, also while other threads call", Repeats,
          {kUsualDims,
           {"rows=53,to=53", "rows=128,to=128", "rows=53,to=53,seed=2", "rows=53,to=53,seed=3"}},
          0, {"R7", "R1"}),
      Exploring("N7", 2, "writes all of its results, and touches nothing else", StaysInside,
                {{1, 7, 16, 17, 64},
                 {"rows=5,to=2,place=3", "rows=5,to=5,place=3,pitch=1", "rows=5,to=5,place=4",
                  "rows=5,to=5,place=3,eval=1", "rows=5,to=5,place=1,pitch=1",
                  "rows=9,from=3,to=5,dy=1"}},
                kRangeForms | 1u << kPieces | 1u << kResidual | 1u << kAdd | kPlacement, {"R7"}),
      Exploring(
          "N8", 2, "operands may be anywhere in memory, and alias where allowed", WorksAnywhere,
          {{1, 7, 16, 17, 64, 100},
           {"rows=5,to=5,pitch=1", "rows=5,to=5,place=1", "rows=5,to=5,place=2",
            "rows=5,to=5,place=2,pitch=1", "rows=5,to=5,place=2,eval=1", "rows=13,to=13,alias=1",
            "rows=13,to=13,alias=1,eval=1", "rows=13,to=13,alias=1,seed=1"}},
          kPlacement, {"R7", "R1", "N5", "N7"}, CheckFarRows),
      Exploring("N10", 2, "buffers change in training, and evaluation agrees with it", UsesBuffers,
                {{1, 7, 64, 768}, {"rows=13,to=13"}, kF32 | kF64}, 0, {"R7", "N5", "N7", "N16"}),
      Exploring("N12", 2, "bf16 is the rounded f32 result", IsRounded,
                {{7, 64, 100, 768}, {"rows=13,to=13", "rows=13,to=13,eval=1"}, kBf16}, 0,
                {"R7", "N5", "N7"}),
      Exploring("N13", 2, "claims of identity, scale and shift invariance are true", KeepsClaims,
                {{1, 7, 64},
                 {"rows=9,to=9,seed=3", "rows=9,to=9,seed=4", "rows=9,to=9,seed=7,eval=1",
                  "rows=9,to=9,seed=1"}},
                kRangeForms | kPlacement, {"R7", "N5", "N7"}),
      Exploring("N16", 2, "sums over rows do not depend on how rows are cut", SumsAnyPieces,
                {{1, 5, 64},
                 {"rows=23,to=1,pieces=1", "rows=23,to=7,pieces=1", "rows=23,from=5,to=11",
                  "rows=23,to=23,pieces=2"}},
                kRangeForms | 1u << kPieces, {"R7", "R1", "N3", "N5", "N7", "N4", "N1", "N12"}),
      Exploring("N17", 2, "denormal operands give what zeros give, if flushed", DenormalsAreZeros,
                {{2, 7, 64, 1000}, {"rows=9,to=9", "rows=9,to=9,params=1"}, kF32Flushed}, 0,
                {"R7", "R1", "N5", "N7"}),
  };
}

std::vector<Check> StrictChecks() {
  const std::vector<uint32_t> dims = {1, 7, 64, 1000, 4096};
  return {
      Exploring("R1", 3, "hot calls allocate nothing, and change nothing but their results",
                ChangesNothing,
                {dims, {"rows=19,to=19", "rows=19,to=19,context=1", "rows=21,to=21,seed=1"}}, 0,
                {"R7"}),
      AtPoints("R4", 3, "create and destroy leave nothing behind, also without memory", CheckLife,
               {{64, 60, 1, 3, 100, 768}, {"rows=1"}, kF32}, {}),
      Exploring("R7", 2, "returns and throws nothing, whatever the numbers", Returns,
                {{1, 2, 5, 64, 100, 768},
                 {"rows=1", "rows=23,to=23", "rows=11,to=11,seed=1", "rows=11,to=11,seed=4",
                  "rows=11,to=11,x=4,dy=1", "rows=11,to=11,x=8,dy=4", "rows=11,to=11,x=9,dy=5",
                  "rows=11,to=11,x=10,dy=6"}},
                0, {}),
  };
}

}  // namespace

bool Report::failed() const {
  return std::any_of(findings_.begin(), findings_.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::kFail; });
}

const std::vector<Check>& AllChecks() {
  static const std::vector<Check> all = [] {
    std::vector<Check> checks;
    for (const std::vector<Check>& part : {Declarations(), Numbers(), StrictChecks()}) {
      checks.insert(checks.end(), part.begin(), part.end());
    }
    return checks;
  }();
  return all;
}

std::string SuccessorOf(const std::string& removed_id) {
  static const std::map<std::string, const char*> successors = {{"E3", "E2"},
                                                                {"E4", "E1"},
                                                                {"E6", "E5"},
                                                                {"M3", "M2"},
                                                                {"N6", "N5"},
                                                                {"N9", "N1"},
                                                                {"N11", "N8"},
                                                                {"N14", "N4"},
                                                                {"N18", "N3"},
                                                                {"N19", "N4"},
                                                                {"N20", "N4"},
                                                                {"R2", "R1"},
                                                                {"R3", "R4"},
                                                                {"R5", "R7"},
                                                                {"R6", "R1"},
                                                                {"X1", "N1"},
                                                                {"X2", "N2"},
                                                                {"X3", "N4"},
                                                                {"X4", "N12"},
                                                                {"X5", "N13"},
                                                                {"X6", "R4"},
                                                                {"X7", "R1"},
                                                                {"N15", "plumb plugin bench"},
                                                                {"P1", "plumb plugin bench"},
                                                                {"P2", "plumb plugin bench"}};
  const auto it = successors.find(removed_id);
  return it == successors.end() ? "" : it->second;
}

}  // namespace plumb::check
