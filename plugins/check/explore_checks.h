// Checks that explore a space of calls (points.h): X1 to X7.
#ifndef PLUMB_PLUGINS_CHECK_EXPLORE_CHECKS_H_
#define PLUMB_PLUGINS_CHECK_EXPLORE_CHECKS_H_

#include "plugins/check/check.h"

namespace plumb::check {

void ExploreTypes(const Subject& subject, Report* report);        // X1
void ExploreSlopes(const Subject& subject, Report* report);       // X2
void ExploreBits(const Subject& subject, Report* report);         // X3
void ExploreRounding(const Subject& subject, Report* report);     // X4
void ExploreClaims(const Subject& subject, Report* report);       // X5
void ExploreLife(const Subject& subject, Report* report);         // X6
void ExploreSystemCalls(const Subject& subject, Report* report);  // X7

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_EXPLORE_CHECKS_H_
