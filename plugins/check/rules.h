// SPDX-License-Identifier: Apache-2.0
// Rules of the contract, one per property; check_table.cc has their titles and points. A rule at a
// point (points.h) returns "" if the norm keeps it, else the text of the problem; nullopt if it
// does not apply, because create() refuses the dim or the norm does not offer the element type.
// Stateless.
//
// So that one cause fails one rule, a rule varies one thing. N1, N2, N12 and N17 make plain calls
// (aligned rows in one range) and compare numbers. N3 to N8 make one call plainly and in another
// form, and compare bits.
#ifndef PLUMB_PLUGINS_CHECK_RULES_H_
#define PLUMB_PLUGINS_CHECK_RULES_H_

#include <functional>
#include <optional>
#include <string>

#include "plugins/check/check.h"
#include "plugins/check/points.h"
#include "plumb/norm_plugin.h"

namespace plumb::check {

using Result = std::optional<std::string>;
using Norm = plumb_norm_plugin;

// -- Rules at a point -----------------------------------------------------------------------------

Result AgreesWithF64(const Norm& norm, const Point& point);        // N1: value_rules.cc
Result IsRounded(const Norm& norm, const Point& point);            // N12
Result DenormalsAreZeros(const Norm& norm, const Point& point);    // N17
Result RowsAreIndependent(const Norm& norm, const Point& point);   // N4: row_rules.cc
Result Repeats(const Norm& norm, const Point& point);              // N5
Result AddsAsAsked(const Norm& norm, const Point& point);          // N3: memory_rules.cc
Result StaysInside(const Norm& norm, const Point& point);          // N7
Result WorksAnywhere(const Norm& norm, const Point& point);        // N8
Result SumsAnyPieces(const Norm& norm, const Point& point);        // N16: statistic_rules.cc
Result UsesBuffers(const Norm& norm, const Point& point);          // N10
Result KeepsClaims(const Norm& norm, const Point& point);          // N13: claim_rules.cc
Result ChangesNothing(const Norm& norm, const Point& point);       // R1: call_rules.cc
Result Returns(const Norm& norm, const Point& point);              // R7
Result WorksWithOtherHosts(const Norm& norm, const Point& point);  // M5

// -- Rules that remember something between points, which they try by `explore` --------------------

using Explorer = std::function<void(const Property& property)>;
void CheckSlopes(const Norm& norm, const Explorer& explore, Report* report);  // N2: slope_rules.cc
void CheckLife(const Norm& norm, const Explorer& explore, Report* report);    // R4: life_rules.cc

// -- Rules without points -------------------------------------------------------------------------

void CheckLoads(const Subject& subject, Report* report);        // E1: file_rules.cc
void CheckLinks(const Subject& subject, Report* report);        // E2
void CheckLoadEffects(const Subject& subject, Report* report);  // E5
void CheckMetadata(const Subject& subject, Report* report);     // M1
void CheckAttributes(const Subject& subject, Report* report);   // M2: declaration_rules.cc
void CheckLayout(const Subject& subject, Report* report);       // M4
void CheckExtensions(const Norm& norm, Report* report);         // M5, the part without points
void CheckFill(const Subject& subject, Report* report);         // M6: life_rules.cc

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_RULES_H_
