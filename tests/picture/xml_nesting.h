// SPDX-License-Identifier: Apache-2.0
#ifndef PLUMB_TESTS_PICTURE_XML_NESTING_H_
#define PLUMB_TESTS_PICTURE_XML_NESTING_H_

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Returns the names of elements that are open at the end of the text, and of an end tag that closes
// another element. The result is empty if elements nest correctly.
inline std::vector<std::string> BadlyNested(absl::string_view svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != absl::string_view::npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    absl::string_view tag = svg.substr(at + 1, end - at - 1);
    const bool closes = absl::StartsWith(tag, "/");
    if (closes) tag.remove_prefix(1);
    const std::string name(tag.substr(0, tag.find_first_of(" /")));
    if (closes) {
      if (open.empty() || open.back() != name) return {name};
      open.pop_back();
    } else if (!absl::EndsWith(tag, "/")) {
      open.push_back(name);
    }
  }
  return open;
}

}  // namespace plumb

#endif  // PLUMB_TESTS_PICTURE_XML_NESTING_H_
