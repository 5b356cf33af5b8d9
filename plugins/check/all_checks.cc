// SPDX-License-Identifier: Apache-2.0
// Table of all checks. N and R checks apply some rules at fixed points: their dims times their
// calls, in each element type, and in f32 also with denormals flushed. X checks explore with a
// rule.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/cases.h"
#include "plugins/check/check.h"
#include "plugins/check/points.h"
#include "plugins/check/rules.h"

namespace plumb::check {
namespace {

// Fixed points of a check.
struct Corners {
  std::vector<uint32_t> dims;
  std::vector<const char*> calls;  // in the syntax of --point, without dim, type and flush
  bool each_attribute = false;     // also other attributes than the defaults
  bool only_first_dim = false;     // only the first dim that create() accepts
};

// Dims for operand patterns: divisible by vector widths, or not.
const std::vector<uint32_t> kUsualDims = {17, 64, 101};
const std::vector<uint32_t> kVectorDims = {1, 3, 7, 16, 17, 33, 64};

std::vector<Point> PointsOf(const plumb_norm_plugin& norm, const Corners& corners, uint64_t seed) {
  const size_t cases = corners.each_attribute ? CountOfSingleCases(norm) : 1;
  std::vector<Point> points;
  for (size_t c = 0; c < cases; ++c) {
    std::vector<uint32_t> dims;
    for (const std::vector<uint32_t>& list : {corners.dims, {17, 16, 12, 8, 64, 6, 4, 2, 1, 768}}) {
      if (!dims.empty()) break;
      for (const uint32_t dim : list) {
        if (corners.only_first_dim && !dims.empty()) break;
        if (TryInstance(norm, dim, CasesOf(norm)[c].values) != nullptr) dims.push_back(dim);
      }
    }
    for (const uint32_t dim : dims) {
      for (const char* call : corners.calls) {
        Point point = *ParsePoint(absl::StrCat("dim=", dim, ",", call));
        if (dim * point[kRows] > 20'000 && point[kRows] > 5) continue;
        point[kAttributes] = static_cast<int64_t>(c);
        // Rules derive choices from the seed modulo small numbers, so 240 keeps those choices.
        point[kSeed] += 240 * static_cast<int64_t>(seed % 4000);
        for (point[kType] = 0; point[kType] < 3; ++point[kType]) points.push_back(point);
        point[kType] = 0;
        point[kFlushed] = 1;
        points.push_back(point);
      }
    }
  }
  return points;
}

// Makes a check of the rules at the corners, followed by `more` for the part that is no rule.
Check AtCorners(const char* id, int level, const char* title, const std::vector<Rule>& rules,
                const Corners& corners,
                const std::function<void(const Subject&, Report*)>& more = nullptr) {
  return {id, level, Scope::kNorm, title, [=](const Subject& subject, Report* report) {
            const auto property = [&](const Point& point) {
              std::optional<std::string> text;
              for (const Rule rule : rules) {
                const std::optional<std::string> found = rule(*subject.norm, point);
                if (found.has_value()) text = found;
                if (found.has_value() && !found->empty()) break;
              }
              return text;
            };
            TryPoints(subject, id, property, PointsOf(*subject.norm, corners, subject.seed),
                      report);
            if (more != nullptr && !report->failed()) more(subject, report);
          }};
}

// Makes a check of the rule at corners, and then at random points until its time is over.
Check Exploring(const char* id, const char* title, Rule rule, int level = 2) {
  return {id,
          level,
          Scope::kNorm,
          title,
          [id, rule](const Subject& subject, Report* report) {
            Explore(
                subject, id, [&](const Point& point) { return rule(*subject.norm, point); },
                report);
          },
          /*timed=*/false,
          /*explores=*/true};
}

std::vector<Check> ChecksOfTheFile() {
  return {
      {"E1", 1, Scope::kFile, "ELF note, machine and ABI numbers", CheckNote},
      {"E2", 1, Scope::kLibrary, "exports its entry and nothing else", CheckExports},
      {"E3", 1, Scope::kLibrary, "dynamic section holds nothing dangerous", CheckDynamicSection},
      {"E4", 1, Scope::kLibrary, "loads, with every symbol resolved", CheckLoads},
      {"E5", 1, Scope::kLibrary, "loading changes nothing in the process", CheckLoadEffects},
      {"E6", 1, Scope::kLibrary, "loads within 100 ms", CheckLoadTime, /*timed=*/true},
      {"M1", 1, Scope::kLibrary, "metadata is complete, unique and constant", CheckMetadata},
      {"M2", 1, Scope::kNorm, "attribute schema is sound, and what it allows is taken",
       CheckSchema},
      {"M3", 1, Scope::kNorm, "refuses dims and combinations as the contract says", CheckRefusals},
      {"M4", 1, Scope::kNorm, "layout is sound, and a function of attributes and dim", CheckLayout},
      AtCorners("M5", 1, "works with older and newer hosts", {SameForEveryHost},
                {{16, 64, 8, 768, 1}, {"rows=5,to=5", "rows=5,to=5,residual=1"}, false, true},
                CheckExtensions),
      {"M6", 1, Scope::kNorm, "initial values that it writes are a function of the seed",
       CheckFill},
  };
}

std::vector<Check> ChecksOfNumbers() {
  constexpr int kLevel = 2;
  const auto check = [](const char* id, const char* title, const std::vector<Rule>& rules,
                        const Corners& corners,
                        const std::function<void(const Subject&, Report*)>& more = nullptr) {
    return AtCorners(id, kLevel, title, rules, corners, more);
  };
  const std::vector<uint32_t> few = {1, 7, 64}, heads = {17, 16, 8, 64, 4, 128, 2, 1};
  return {
      check("N1", "forward computes what it computes in f64", {AgreesWithF64},
            {{15, 64}, {"rows=21,to=21"}, true}),
      check("N2", "backward is the derivative of forward", {HasSlopes},
            {{1, 2, 3, 4, 7, 8, 17, 101}, {"rows=5", "rows=5,seed=1"}, true}),
      check("N3", "gradients are added or overwritten as asked", {SameBits, AgreesWithF64},
            {kUsualDims,
             {"rows=5,to=2,add=1", "rows=5,to=5,residual=1", "rows=5,to=3,residual=1,add=1",
              "rows=5,to=5,residual=1,alias=1", "rows=5,to=5,residual=1,add=1,alias=1,seed=1",
              "rows=5,to=3,residual=1,eval=1", "rows=5,to=5,residual=1,eval=1,alias=1"}}),
      check("N4", "a row's result does not depend on other rows", {SameBits},
            {kUsualDims,
             {"rows=23,to=23,seed=5", "rows=23,from=7,to=9", "rows=23,from=7,to=8,eval=1",
              "rows=23,from=1,to=22,seed=2", "rows=23,from=4,to=8"}}),
      check("N5", "same bits every time, for any number of threads", {SameBits},
            {kUsualDims,
             {"rows=53,to=53,seed=0", "rows=53,to=53,seed=3", "rows=53,to=53,seed=6",
              "rows=53,to=53,seed=9"}}),
      check("N6", "different calls may run at once", {RunsAtOnce}, {kUsualDims, {"rows=128"}}),
      check("N7", "touches nothing outside its rows", {SameBits},
            {kVectorDims,
             {"rows=5,to=2,place=3", "rows=5,to=5,place=3,pitch=1", "rows=5,to=5,place=4",
              "rows=5,to=5,place=3,eval=1", "rows=5,to=5,place=1,pitch=1"}}),
      check("N8", "rows may be anywhere in memory", {SameBits},
            {{1, 7, 16, 17, 64, 100},
             {"rows=5,to=5,place=0,pitch=1", "rows=5,to=5,place=1", "rows=5,to=5,place=2",
              "rows=5,to=5,place=2,pitch=1", "rows=5,to=3,place=2,eval=1"}},
            CheckFarRows),
      check("N9", "any dim and any number of rows", {AgreesWithF64, AnswersOddCalls},
            {{1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 768, 1000, 4096},
             {"rows=1", "rows=5,to=5", "rows=257,to=257"}}),
      check("N10", "evaluates as it trains, and writes buffers when it may",
            {SameBits, UsesBuffers}, {{1, 7, 64, 768}, {"rows=13,to=13", "rows=13,to=13,eval=1"}}),
      check("N11", "writes over its inputs only where the call allows it",
            {SameBits, AgreesWithF64},
            {few, {"rows=13,to=13,alias=1", "rows=13,to=5,alias=1,eval=1", "rows=13,to=13"}}),
      check("N12", "element types agree, and others are refused",
            {AgreesWithF64, IsRounded, AnswersOddCalls}, {{7, 64, 100, 768}, {"rows=13,to=13"}}),
      check("N13", "zero and constant rows; claims of scale and shift invariance",
            {AgreesWithF64, KeepsClaims},
            {few,
             {"rows=9,to=9,x=4", "rows=9,to=9,x=12", "rows=9,to=9,x=12,eval=1", "rows=9,to=9,x=14",
              "rows=9,to=9,x=15"}}),
      check("N14", "NaN and Inf in one row stay there", {SameBits},
            {{2, 7, 64, 1000}, {"rows=9,to=9,seed=1", "rows=9,to=9,seed=4", "rows=9,to=9,seed=7"}}),
      {"N15", kLevel, Scope::kNorm, "denormal numbers cost no more than others", CheckDenormals,
       /*timed=*/true},
      check("N16", "statistics do not depend on how rows are cut",
            {CombinesStatistics, AgreesWithF64},
            {{1, 5, 64}, {"rows=23,to=1,pieces=1", "rows=23,to=7,pieces=1"}}),
      check("N17", "denormal operands give what zeros give", {DenormalsAreZeros},
            {{2, 7, 64, 1000}, {"rows=9,to=9", "rows=9,to=9,params=1"}}),
      check("N18", "a second input is an input, and its gradient overwritten", {SameBits},
            {kUsualDims, {"rows=6,to=6,add=1"}}, CheckSecondInput),
      check("N19", "rows of heads, with parameters for each or for all",
            {SameBits, AgreesWithF64, HasSlopes},
            {heads,
             {"rows=5,to=2,heads=1", "rows=10,from=3,to=7,heads=2", "rows=15,from=4,to=10,heads=3",
              "rows=40,from=12,to=25,heads=8"},
             false,
             true}),
      check("N20", "a row depends on its own position and the step, if it asks",
            {SameBits, AgreesWithF64, HasSlopes},
            {heads,
             {"rows=7,from=2,to=6,context=1", "rows=14,from=2,to=13,heads=2,context=1"},
             false,
             true}),
  };
}

std::vector<Check> StrictChecks() {
  constexpr int kLevel = 3;
  const auto check = [](const char* id, const char* title, Rule rule, const Corners& corners) {
    return AtCorners(id, kLevel, title, {rule}, corners);
  };
  const std::vector<uint32_t> dims = {1, 7, 64, 1000, 4096};
  return {
      check("R1", "allocates nothing in hot calls", AllocatesNothing,
            {dims, {"rows=19,to=19", "rows=19,to=19,context=1"}}),
      check("R2", "keeps nothing from one hot call to the next", KeepsNoState,
            {dims, {"rows=21,to=21"}}),
      check("R3", "create survives every failing allocation", SurvivesShortMemory,
            {{64, 60, 1, 3, 100, 768}, {"rows=1"}, false, true}),
      check("R4", "1000 instances leave nothing behind", LeavesNothing,
            {{64, 60, 1, 3, 100, 768}, {"rows=1"}, false, true}),
      check("R5", "lets no exception out", Returns,
            {{1, 2, 5, 64, 768}, {"rows=1", "rows=23,to=23"}}),
      check("R6", "leaves the floating-point state as found", KeepsModes,
            {dims, {"rows=29,to=29"}}),
      check("R7", "returns, whatever the numbers", Returns,
            {{1, 4, 100},
             {"rows=11,to=11,x=4,dy=1", "rows=11,to=11,seed=1", "rows=11,to=11,seed=4",
              "rows=11,to=11,x=10,dy=6", "rows=11,to=11,x=8,dy=4", "rows=11,to=11,x=9,dy=5"}}),
  };
}

std::vector<Check> ExploringChecks() {
  std::vector<Check> checks = {
      Exploring("X1", "values and gradients agree with f64, however they are called",
                AgreesWithF64),
      {"X2", 2, Scope::kNorm, "gradients are slopes, at any dim and any number of rows",
       ExploreSlopes},
      Exploring("X3", "a row has the same bits, however it is called", SameBits),
      Exploring("X4", "bf16 is the rounded f32 result, without bias", IsRounded),
      Exploring("X5", "what the flags claim is so", KeepsClaims),
      {"X6", 3, Scope::kNorm, "create and destroy leave the process as it was", ExploreLife},
      Exploring("X7", "hot calls allocate nothing and leave the process as it was", ChangesNothing,
                /*level=*/3),
  };
  for (Check& check : checks) check.explores = true;
  return checks;
}

std::vector<Check> ChecksOfSpeed() {
  return {
      {"P1", 4, Scope::kNorm, "bandwidth, against memcpy", CheckBandwidth, /*timed=*/true},
      {"P2", 4, Scope::kNorm, "time for one row", CheckOneRow, /*timed=*/true},
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
    for (std::vector<Check> part : {ChecksOfTheFile(), ChecksOfNumbers(), StrictChecks(),
                                    ExploringChecks(), ChecksOfSpeed()}) {
      checks.insert(checks.end(), part.begin(), part.end());
    }
    return checks;
  }();
  return all;
}

}  // namespace plumb::check
