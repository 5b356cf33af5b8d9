// SPDX-License-Identifier: Apache-2.0
// Packs the parts of a report that make most of its page: curves, pictures and paired differences.
// js/unpack.js restores them.
#ifndef PLUMB_RUNTIME_REPORT_PACK_REPORT_H_
#define PLUMB_RUNTIME_REPORT_PACK_REPORT_H_

#include <nlohmann/json.hpp>

namespace plumb {

// Rounds to a number of significant digits. Returns a value that is not finite unchanged.
double RoundToDigits(double value, int digits);

// Returns `report` in the form that its page stores. Members that are not as docs/report.md
// describes them stay as they are.
//   runs[].loss, groups[].extremes  {low, high, codes}: positions between `low` and `high` on a
//       logarithmic scale, three base-64 digits each, the last code for null. Only if they restore
//       every number, all of which have five digits, exactly.
//   models[].picture  {rows}: a line of the picture as the index of its template and its numbers
//   picture_lines     the templates: the distinct lines of all pictures with ~ for each number
//   paired            {rows, columns}: their number, and a list by member, or the value that all
//       rows have; six digits. Likewise best.paired.
nlohmann::ordered_json PackReport(nlohmann::ordered_json report);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_REPORT_PACK_REPORT_H_
