// SPDX-License-Identifier: Apache-2.0
// Table of all checks: the rule of each property, the points at which it is tried in any case, and
// the forms of calls that exploration varies.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "plugins/check/check.h"
#include "plugins/check/points.h"
#include "plugins/check/rules.h"
#include "runtime/base/check.h"

namespace plumb::check {
namespace {

using Causes = std::vector<std::string>;
using Patterns = std::vector<std::string>;
using RuleOfNorm = std::function<void(const Norm&, const Explorer&, Report*)>;

constexpr uint32_t kPlacement = 1u << kPlace | 1u << kPitches | 1u << kAlias;

// Makes a check of a rule that explores.
Check Exploring(const char* id, int level, const char* title, const RuleOfNorm& rule,
                const Patterns& fixed, uint32_t forms, Causes causes) {
  for (const std::string& pattern : fixed) {
    PLUMB_CHECK(!ParsePoints(pattern).empty(), "a fixed point is no pattern");
  }
  const auto run = [=](const Subject& subject, Report* report) {
    const auto explore = [&](const Property& property) {
      Explore(subject, id, property, fixed, forms, report);
    };
    rule(*subject.norm, explore, report);
  };
  return {id, level, /*of_file=*/false, title, run, std::move(causes), /*explores=*/true};
}

RuleOfNorm AtPoints(Result (*rule)(const Norm&, const Point&)) {
  return [rule](const Norm& norm, const Explorer& explore, Report*) {
    explore([&](const Point& point) { return rule(norm, point); });
  };
}

void CheckHosts(const Norm& norm, const Explorer& explore, Report* report) {
  AtPoints(WorksWithOtherHosts)(norm, explore, report);
  if (!report->failed()) CheckExtensions(norm, report);
}

std::vector<Check> MakeChecks() {
  const Causes wild = {"R7", "N5", "N7"}, stateful = {"R7", "R1", "N5", "N7"};
  return {
      {"E1", 1, true, "is a plugin for this machine and ABI, and loads", CheckLoads},
      {"E2", 1, true, "exports its entry, and links nothing dangerous", CheckLinks},
      {"E5", 1, true, "loading changes nothing, and takes less than 100 ms", CheckLoadEffects},
      {"M1", 1, true, "metadata is complete, unique and constant", CheckMetadata},
      {"M2", 1, false, "attributes are sound, and accepted or refused", CheckAttributes},
      {"M4", 1, false, "layout is sound, and a function of attributes and dim", CheckLayout},
      Exploring("M5", 1, "works with older and newer hosts", CheckHosts,
                {"dim=1|16|64|768,rows=5,residual=0|1"}, 1u << kResidual, wild),
      {"M6", 1, false, "initial values that it writes are a function of the seed", CheckFill},
      Exploring("N1", 2, "f32 agrees with f64, and is finite", AtPoints(AgreesWithF64),
                {"dim=1|2|3|7|8|15|16|17|31|33|64|65|100|256|257|768|4096,rows=1|5|257,type=f32,"
                 "flush=0|1",
                 "dim=15|64,rows=21,type=f32,attributes=*",
                 "dim=7|64,rows=9,x=4|11|12|14|15,type=f32|f64,flush=0|1",
                 "dim=7|64,rows=9,x=12,eval=1,type=f32|f64",
                 "dim=7|64,rows=10,heads=2,context=1,type=f32|f64"},
                0, wild),
      Exploring("N2", 2, "backward is the derivative of forward", CheckSlopes,
                {"dim=1|2|3|4|7|8|15|17|64|101,rows=5,type=f32,attributes=*,seed=0|1",
                 "dim=4|64,rows=15,heads=3,context=1,type=f32,attributes=*",
                 "dim=7|64,rows=5,type=f32,x=1|2|3|4|6", "dim=7|64,rows=5,type=f32,dy=1|4",
                 "dim=3,rows=1100,type=f32", "dim=129|256|768|1025|4097,rows=2,type=f32",
                 "dim=7|64,rows=5,type=f32,params=1|2|3|4"},
                0, wild),
      Exploring("N3", 2, "gradients are added or overwritten as asked, and sums as asked",
                AtPoints(AddsAsAsked),
                {"dim=17|64|101,rows=5,from=2,add=1", "dim=17|64|101,rows=5,residual=1,eval=0|1",
                 "dim=17|64|101,rows=5,to=3,residual=1,add=1", "dim=17|64|101,rows=6,add=1",
                 "dim=17|64|101,rows=5,residual=1,alias=1,eval=0|1",
                 "dim=17|64|101,rows=5,residual=1,add=1,alias=1,seed=1",
                 "dim=17|64|101,rows=5,to=3,residual=1,seed=2",
                 "dim=17|64|101,rows=40,from=20,to=21,add=1",
                 "dim=64,rows=5,residual=1,seed=2,attributes=*"},
                kRangeForms | 1u << kAdd | 1u << kResidual | 1u << kAlias | 1u << kPitches, wild),
      Exploring(
          "N4", 2, "a row does not depend on other rows, nor on how it is called",
          AtPoints(RowsAreIndependent),
          {"dim=17|64|101,rows=23,from=7,to=9", "dim=17|64|101,rows=23,from=7,to=8,eval=1",
           "dim=17|64|101,rows=23,from=1,to=22,seed=2", "dim=17|64|101,rows=23,from=4,to=8",
           "dim=17|64|101,rows=23,to=1,pieces=1,eval=0|1", "dim=17|64|101,rows=1|13|23,eval=0|1",
           "dim=17|64|101,rows=9,seed=1|4|7,eval=0|1", "dim=17|64|101,rows=5,to=2,heads=1",
           "dim=17|64|101,rows=10,from=3,to=7,heads=2,context=0|1",
           "dim=17|64|101,rows=15,from=4,to=10,heads=3",
           "dim=17|64|101,rows=40,from=12,to=25,heads=8",
           "dim=17|64|101,rows=7,from=2,to=6,context=1", "dim=64,rows=129,type=f32|f64",
           "dim=64,rows=7,to=2,eval=0|1,type=f32,attributes=*", "dim=64,rows=5,x=4,type=f32|f64",
           "dim=1,rows=10500,from=5000,to=10200,type=f32"},
          kRangeForms | 1u << kPieces, stateful),
      Exploring("N5", 2, "same bits every time, also while other threads call", AtPoints(Repeats),
                {"dim=17|64|101,rows=53|128", "dim=17|64|101,rows=53,seed=2|3"}, 0, {"R7", "R1"}),
      Exploring(
          "N7", 2, "writes all of its results, and touches nothing else", AtPoints(StaysInside),
          {"dim=1|7|16|17|64,rows=5,to=2,place=3", "dim=1|7|16|17|64,rows=5,place=3|4,pitch=0|1",
           "dim=1|7|16|17|64,rows=5,place=3,eval=1", "dim=1|7|16|17|64,rows=5,place=1,pitch=1",
           "dim=1|7|16|17|64,rows=9,from=3,to=5,dy=4", "dim=64,rows=5,to=2,attributes=*",
           "dim=1|7,rows=40,from=30,to=33,place=3"},
          kRangeForms | 1u << kPieces | 1u << kResidual | 1u << kAdd | kPlacement, {"R7"}),
      Exploring(
          "N8", 2, "operands may be anywhere in memory, and alias where allowed",
          AtPoints(WorksAnywhere),
          {"dim=1|7|16|17|64|100,rows=5,pitch=1", "dim=1|7|16|17|64|100,rows=5,place=1|2",
           "dim=1|7|16|17|64|100,rows=5,place=2,pitch=1",
           "dim=1|7|16|17|64|100,rows=5,place=2,eval=1",
           "dim=1|7|16|17|64|100,rows=13,alias=1,seed=0|1,eval=0|1", "dim=17|64,rows=17,place=5"},
          kPlacement, stateful),
      Exploring("N10", 2, "buffers change in training, and evaluation agrees with it",
                AtPoints(UsesBuffers), {"dim=1|7|64|768,rows=13,type=f32|f64"}, 0,
                {"R7", "N5", "N7", "N16"}),
      Exploring("N12", 2, "bf16 is the rounded result", AtPoints(IsRounded),
                {"dim=7|64|100|768,rows=13,eval=0|1,type=bf16"}, 0, wild),
      Exploring(
          "N13", 2, "claims of identity, scale and shift invariance are true",
          AtPoints(KeepsClaims),
          {"dim=1|7|64,rows=9,seed=1|3|4", "dim=1|7|64,rows=9,seed=7,eval=1", "dim=7,rows=9,x=8|9"},
          kRangeForms | kPlacement, wild),
      Exploring(
          "N16", 2, "sums over rows do not depend on how rows are cut", AtPoints(SumsAnyPieces),
          {"dim=1|5|64,rows=23,to=1|7|8,pieces=1", "dim=1|5|64,rows=23,from=5,to=11",
           "dim=5,rows=330,to=100|330,pieces=1", "dim=1,rows=140001,to=70001,pieces=1,type=f64"},
          kRangeForms | 1u << kPieces, {"R7", "R1", "N3", "N5", "N7", "N4", "N1", "N12"}),
      Exploring("N17", 2, "denormal operands give what zeros give, if flushed",
                AtPoints(DenormalsAreZeros), {"dim=2|7|64|1000,rows=9,params=0|1,type=f32,flush=1"},
                0, stateful),
      Exploring(
          "R1", 3, "hot calls allocate nothing, and change nothing but their results",
          AtPoints(ChangesNothing),
          {"dim=1|7|64|1000|4096,rows=19,context=0|1", "dim=1|7|64|1000|4096,rows=21,seed=1|4",
           "dim=64,rows=21,seed=4,type=f32,attributes=*"},
          0, {"R7"}),
      Exploring("R4", 3, "create and destroy leave nothing behind, also without memory", CheckLife,
                {"dim=64|60|1|3|100|768,type=f32"}, 0, {}),
      Exploring("R7", 2, "returns and throws nothing, whatever the numbers", AtPoints(Returns),
                {"dim=1|2|5|64|100|768,rows=1|23", "dim=1|2|5|64|100|768,rows=11,seed=1|4",
                 "dim=1|2|5|64|100|768,rows=11,x=4|8|9|10,dy=4|8|9|10"},
                0, {}),
  };
}

}  // namespace

bool Report::failed() const {
  return std::any_of(findings_.begin(), findings_.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::kFail; });
}

const std::vector<Check>& AllChecks() {
  static const std::vector<Check> all = MakeChecks();
  return all;
}

std::string FindSuccessor(const std::string& removed_id) {
  constexpr char kSuccessors[] =
      "E3=E2,E4=E1,E6=E5,M3=M2,N6=N5,N9=N1,N11=N8,N14=N4,N18=N3,N19=N4,N20=N4,R2=R1,R3=R4,R5=R7,"
      "R6=R1,X1=N1,X2=N2,X3=N4,X4=N12,X5=N13,X6=R4,X7=R1,N15=plumb plugin bench,"
      "P1=plumb plugin bench,P2=plumb plugin bench";
  for (const absl::string_view each : absl::StrSplit(kSuccessors, ',')) {
    const std::pair<std::string, std::string> words = absl::StrSplit(each, '=');
    if (words.first == removed_id) return words.second;
  }
  return "";
}

}  // namespace plumb::check
