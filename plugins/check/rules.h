// SPDX-License-Identifier: Apache-2.0
// Rules of the contract that are tried at points of the space of calls (points.h). A rule returns ""
// where it holds, what is wrong where it does not, and nothing where it does not apply: where
// create() refuses the dim, or the norm does not offer the element type. Stateless.
#ifndef PLUMB_PLUGINS_CHECK_RULES_H_
#define PLUMB_PLUGINS_CHECK_RULES_H_

#include <optional>
#include <string>

#include "plugins/check/check.h"
#include "plugins/check/points.h"
#include "plumb/norm_plugin.h"

namespace plumb::check {

using Rule = std::optional<std::string> (*)(const plumb_norm_plugin& norm, const Point& point);

// -- value_rules.cc -------------------------------------------------------------------------------
// Values, gradients and buffers agree with f64, in one plain range.
std::optional<std::string> AgreesWithF64(const plumb_norm_plugin& norm, const Point& point);
// bf16 is the f32 result rounded to nearest. A bias alone is rounded to even, to infinity beyond the
// largest number, and stays NaN.
std::optional<std::string> IsRounded(const plumb_norm_plugin& norm, const Point& point);
// Denormal operands give what zeros give.
std::optional<std::string> DenormalsAreZeros(const plumb_norm_plugin& norm, const Point& point);

// -- slope_rules.cc -------------------------------------------------------------------------------
// Gradients are slopes of forward.
std::optional<std::string> HasSlopes(const plumb_norm_plugin& norm, const Point& point);

// -- bit_rules.cc ---------------------------------------------------------------------------------
// A row has the same bits, however it is called.
std::optional<std::string> SameBits(const plumb_norm_plugin& norm, const Point& point);
// Two calls at once give what each gives alone.
std::optional<std::string> RunsAtOnce(const plumb_norm_plugin& norm, const Point& point);
// Hosts of other versions, whose structs are shorter or longer, get the same.
std::optional<std::string> SameForEveryHost(const plumb_norm_plugin& norm, const Point& point);

// -- statistic_rules.cc ---------------------------------------------------------------------------
// Statistics over rows do not depend on how rows are cut.
std::optional<std::string> CombinesStatistics(const plumb_norm_plugin& norm, const Point& point);
// Buffers are changed by training, read by evaluation, and follow the batches.
std::optional<std::string> UsesBuffers(const plumb_norm_plugin& norm, const Point& point);

// -- claim_rules.cc -------------------------------------------------------------------------------
// IDENTITY, SHIFT_INVARIANT and SCALE_INVARIANT are so.
std::optional<std::string> KeepsClaims(const plumb_norm_plugin& norm, const Point& point);

// -- hot_call_rules.cc ----------------------------------------------------------------------------
// Hot functions allocate nothing, and log nothing.
std::optional<std::string> AllocatesNothing(const plumb_norm_plugin& norm, const Point& point);
// Hot functions leave the library's variables and the instance as they are.
std::optional<std::string> KeepsNoState(const plumb_norm_plugin& norm, const Point& point);
// Hot functions leave rounding and flushing as they are.
std::optional<std::string> KeepsModes(const plumb_norm_plugin& norm, const Point& point);
// All of these three, and the process is what it was.
std::optional<std::string> ChangesNothing(const plumb_norm_plugin& norm, const Point& point);
// Calls end by themselves, without an exception, whatever the numbers.
std::optional<std::string> Returns(const plumb_norm_plugin& norm, const Point& point);
// Element types that are not offered are refused; a call without rows does nothing.
std::optional<std::string> AnswersOddCalls(const plumb_norm_plugin& norm, const Point& point);

// -- life_rules.cc --------------------------------------------------------------------------------
// create() survives every failing allocation.
std::optional<std::string> SurvivesShortMemory(const plumb_norm_plugin& norm, const Point& point);
// A thousand instances leave nothing behind.
std::optional<std::string> LeavesNothing(const plumb_norm_plugin& norm, const Point& point);

// -- Checks that are not rules at points ----------------------------------------------------------
void CheckNote(const Subject& subject, Report* report);            // E1
void CheckExports(const Subject& subject, Report* report);         // E2
void CheckDynamicSection(const Subject& subject, Report* report);  // E3
void CheckLoads(const Subject& subject, Report* report);           // E4
void CheckLoadEffects(const Subject& subject, Report* report);     // E5
void CheckLoadTime(const Subject& subject, Report* report);        // E6
void CheckMetadata(const Subject& subject, Report* report);        // M1
void CheckSchema(const Subject& subject, Report* report);          // M2
void CheckBadAttributes(const Subject& subject, Report* report);   // M3
void CheckLayout(const Subject& subject, Report* report);          // M4
void CheckExtensions(const Subject& subject, Report* report);      // M5, what no rule sees
void CheckFill(const Subject& subject, Report* report);            // M6
void CheckFarRows(const Subject& subject, Report* report);         // N8, what no rule sees
void CheckDenormals(const Subject& subject, Report* report);       // N15
void CheckSecondInput(const Subject& subject, Report* report);     // N18, what no rule sees
void CheckBandwidth(const Subject& subject, Report* report);       // P1
void CheckOneRow(const Subject& subject, Report* report);          // P2

// X2 and X6 look at more than one point: at the worst slope of all, and at the process before the
// first one.
void ExploreSlopes(const Subject& subject, Report* report);
void ExploreLife(const Subject& subject, Report* report);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_RULES_H_
