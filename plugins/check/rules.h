// SPDX-License-Identifier: Apache-2.0
// Rules of the contract, one per property. A rule at a point (points.h) returns "" if the norm
// keeps it, else the text of the problem; nullopt if it does not apply, because create() refuses
// the dim or the norm does not offer the element type. Stateless.
//
// So that one cause fails one rule, a rule varies one thing. N1, N2, N12 and N17 make plain calls
// (aligned rows in one range) and compare numbers. N3 to N8 make one call plainly and in another
// form, and compare bits.
#ifndef PLUMB_PLUGINS_CHECK_RULES_H_
#define PLUMB_PLUGINS_CHECK_RULES_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plugins/check/check.h"
#include "plugins/check/points.h"
#include "plumb/norm_plugin.h"

namespace plumb::check {

// Makes the fixed points of a check, which creates instances.
using PointMaker = std::function<std::vector<Point>()>;
using Rule = std::optional<std::string> (*)(const plumb_norm_plugin& norm, const Point& point);

// -- value_rules.cc -------------------------------------------------------------------------------
// N1: f32 values, gradients and buffers agree with f64, and are finite for ordinary x.
std::optional<std::string> AgreesWithF64(const plumb_norm_plugin& norm, const Point& point);
// N12: bf16 results are the f32 results rounded to nearest. A bias alone must round to even,
// overflow to infinity, and stay NaN. Sums over rows agree with f64.
std::optional<std::string> IsRounded(const plumb_norm_plugin& norm, const Point& point);
// N17: denormal operands produce the results of zeros, with denormals flushed.
std::optional<std::string> DenormalsAreZeros(const plumb_norm_plugin& norm, const Point& point);

// -- slope_rules.cc -------------------------------------------------------------------------------
// N2: gradients are slopes of forward, in the widest type.
void CheckSlopes(const Subject& subject, const PointMaker& points, Report* report);

// -- row_rules.cc ---------------------------------------------------------------------------------
// N4: a row has the same bits in any range or call, alone, in training and evaluation, and next to
// rows with NaN. Positions, heads and the step matter only if the layout says so.
std::optional<std::string> RowsAreIndependent(const plumb_norm_plugin& norm, const Point& point);
// N5: the same call has the same bits again, in memory of another call, and next to other calls.
std::optional<std::string> Repeats(const plumb_norm_plugin& norm, const Point& point);

// -- memory_rules.cc ------------------------------------------------------------------------------
// N3: dx and dparams are added to, dx2 is overwritten, and a residual sum gives what its sum gives.
std::optional<std::string> AddsAsAsked(const plumb_norm_plugin& norm, const Point& point);
// N7: a call writes all of its results and nothing else, and reads only its operands.
std::optional<std::string> StaysInside(const plumb_norm_plugin& norm, const Point& point);
// N8: operands may be at any address and pitch, or the same tensor where the flags allow it.
std::optional<std::string> WorksAnywhere(const plumb_norm_plugin& norm, const Point& point);
// N8: rows may be gigabytes apart.
void CheckFarRows(const Subject& subject, Report* report);

// -- statistic_rules.cc ---------------------------------------------------------------------------
// N16: sums and statistics over rows do not depend on how rows are cut into ranges and chunks.
std::optional<std::string> SumsAnyPieces(const plumb_norm_plugin& norm, const Point& point);
// N10: training changes buffers, evaluation reads them, and they follow the batches.
std::optional<std::string> UsesBuffers(const plumb_norm_plugin& norm, const Point& point);

// -- claim_rules.cc -------------------------------------------------------------------------------
// N13: the claims IDENTITY, SHIFT_INVARIANT and SCALE_INVARIANT are true.
std::optional<std::string> KeepsClaims(const plumb_norm_plugin& norm, const Point& point);

// -- call_rules.cc --------------------------------------------------------------------------------
// R1: hot calls allocate nothing, log nothing, and leave the library's variables, the instance,
// the floating-point modes and the process as they were.
std::optional<std::string> ChangesNothing(const plumb_norm_plugin& norm, const Point& point);
// R7: every call returns and throws nothing, whatever the numbers.
std::optional<std::string> Returns(const plumb_norm_plugin& norm, const Point& point);
// M5: hosts of other versions get the same results, and element types that are not offered are
// refused.
std::optional<std::string> WorksWithOtherHosts(const plumb_norm_plugin& norm, const Point& point);

// -- life_rules.cc --------------------------------------------------------------------------------
// R4: create, layout and destroy leave the process as it was, also if memory runs out.
void CheckLife(const Subject& subject, const PointMaker& points, Report* report);

// -- file_rules.cc, declaration_rules.cc and fill_rule.cc: rules without points -------------------
void CheckLoads(const Subject& subject, Report* report);        // E1
void CheckLinks(const Subject& subject, Report* report);        // E2
void CheckLoadEffects(const Subject& subject, Report* report);  // E5
void CheckMetadata(const Subject& subject, Report* report);     // M1
void CheckAttributes(const Subject& subject, Report* report);   // M2
void CheckLayout(const Subject& subject, Report* report);       // M4
void CheckExtensions(const Subject& subject, Report* report);   // M5, the part without points
void CheckFill(const Subject& subject, Report* report);         // M6

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_RULES_H_
