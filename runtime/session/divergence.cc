// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/divergence.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace plumb {

std::string GetPlace(absl::string_view tensor) {
  std::vector<std::string> place;
  if (absl::ConsumePrefix(&tensor, "grad.")) place.push_back("backward pass");
  const std::vector<absl::string_view> names = absl::StrSplit(tensor, '.');
  size_t next = 0;
  if (names.size() > 2 && names[0] == "layers") {
    place.push_back(absl::StrCat("layer ", names[1]));
    next = 2;
  }
  // The last name is the tensor's own; the results of a norm are "SLOT.out" and "SLOT.out.1".
  if (next + 1 < names.size() && names[next + 1] != "out") {
    place.push_back(std::string(names[next]));
  }
  for (size_t i = next; i + 1 < names.size(); ++i) {
    if (names[i + 1] == "out") place.push_back(absl::StrCat("slot ", names[i]));
  }
  return absl::StrJoin(place, ", ");
}

std::string DescribeNonFinite(const Executable::NonFinite& found) {
  std::vector<std::string> details;
  if (std::string place = GetPlace(found.name); !place.empty()) details.push_back(std::move(place));
  if (!found.op.empty()) details.push_back(absl::StrCat("op ", found.op));
  return details.empty() ? found.name
                         : absl::StrCat(found.name, " (", absl::StrJoin(details, "; "), ")");
}

}  // namespace plumb
