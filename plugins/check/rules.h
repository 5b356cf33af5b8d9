// SPDX-License-Identifier: Apache-2.0
// Rules of the contract that are tested at points of the space of calls (points.h). A rule returns
// "" if the norm keeps it. A rule that fails returns the text of the problem. A rule that does not
// apply returns nullopt: create() refuses the dim, or the norm does not offer the element type.
// Stateless.
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
// Fails unless values, gradients and buffers agree with f64, in one plain range.
std::optional<std::string> AgreesWithF64(const plumb_norm_plugin& norm, const Point& point);
// Fails unless bf16 results are the f32 result rounded to nearest. A bias alone must round to even,
// overflow to infinity, and stay NaN.
std::optional<std::string> IsRounded(const plumb_norm_plugin& norm, const Point& point);
// Fails unless denormal operands produce the results of zeros.
std::optional<std::string> DenormalsAreZeros(const plumb_norm_plugin& norm, const Point& point);

// -- slope_rules.cc -------------------------------------------------------------------------------
// Fails unless gradients are slopes of forward.
std::optional<std::string> HasSlopes(const plumb_norm_plugin& norm, const Point& point);

// -- bit_rules.cc ---------------------------------------------------------------------------------
// Fails unless a row has the same bits however it is called.
std::optional<std::string> SameBits(const plumb_norm_plugin& norm, const Point& point);
// Fails unless two concurrent calls produce the results of separate calls.
std::optional<std::string> RunsAtOnce(const plumb_norm_plugin& norm, const Point& point);
// Fails unless hosts of other versions, whose structs are shorter or longer, get the same results.
std::optional<std::string> SameForEveryHost(const plumb_norm_plugin& norm, const Point& point);

// -- statistic_rules.cc ---------------------------------------------------------------------------
// Fails unless statistics over rows are independent of the chunks.
std::optional<std::string> CombinesStatistics(const plumb_norm_plugin& norm, const Point& point);
// Fails unless training changes buffers, evaluation reads them, and they follow the batches.
std::optional<std::string> UsesBuffers(const plumb_norm_plugin& norm, const Point& point);

// -- claim_rules.cc -------------------------------------------------------------------------------
// Fails unless the claims IDENTITY, SHIFT_INVARIANT and SCALE_INVARIANT are true.
std::optional<std::string> KeepsClaims(const plumb_norm_plugin& norm, const Point& point);

// -- hot_call_rules.cc ----------------------------------------------------------------------------
// Fails if forward, backward or a statistics function allocates or frees memory in the calling
// thread, or writes to the host's log.
std::optional<std::string> AllocatesNothing(const plumb_norm_plugin& norm, const Point& point);
// Fails if hot functions change the library's variables or the instance.
std::optional<std::string> KeepsNoState(const plumb_norm_plugin& norm, const Point& point);
// Fails if hot functions change the rounding mode or flushing.
std::optional<std::string> KeepsModes(const plumb_norm_plugin& norm, const Point& point);
// Fails if any of these three fails, or if the state of the process changes.
std::optional<std::string> ChangesNothing(const plumb_norm_plugin& norm, const Point& point);
// Fails if a call does not return, or throws, for any numbers.
std::optional<std::string> Returns(const plumb_norm_plugin& norm, const Point& point);
// Fails unless element types that are not offered are refused, and a call without rows does
// nothing.
std::optional<std::string> AnswersOddCalls(const plumb_norm_plugin& norm, const Point& point);

// -- life_rules.cc --------------------------------------------------------------------------------
// Fails unless create() survives each failing allocation.
std::optional<std::string> SurvivesShortMemory(const plumb_norm_plugin& norm, const Point& point);
// Fails if a thousand instances leave anything behind.
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
void CheckRefusals(const Subject& subject, Report* report);        // M3
void CheckLayout(const Subject& subject, Report* report);          // M4
void CheckExtensions(const Subject& subject, Report* report);      // M5, the part that is no rule
void CheckFill(const Subject& subject, Report* report);            // M6
void CheckFarRows(const Subject& subject, Report* report);         // N8, the part that is no rule
void CheckDenormals(const Subject& subject, Report* report);       // N15
void CheckSecondInput(const Subject& subject, Report* report);     // N18, the part that is no rule
void CheckBandwidth(const Subject& subject, Report* report);       // P1
void CheckOneRow(const Subject& subject, Report* report);          // P2

// Run X2 and X6, which need more than one point: the worst slope of all points, and the state of
// the process before the first one.
void ExploreSlopes(const Subject& subject, Report* report);
void ExploreLife(const Subject& subject, Report* report);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_RULES_H_
