// SPDX-License-Identifier: Apache-2.0
// Installed documentation pages, for `plumb docs`. Stateless.
#ifndef PLUMB_CLI_DOC_PAGES_H_
#define PLUMB_CLI_DOC_PAGES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb::cli {

// A page of the documentation.
struct DocPage {
  std::string name;   // "placements", "performance/results", "examples/wiring"
  std::string path;   // "/usr/share/doc/plumb/docs/placements.md"
  std::string about;  // its first sentence: "You can write any placement that ..."
};

// Returns the name of the page with this path below DocDirectory(): "docs/placements.md" is
// "placements", "plugins/README.md" is "plugins", "README.md" is "readme".
std::string DocPageName(absl::string_view path);

// Returns all pages, ordered by name; none if they are not installed.
std::vector<DocPage> ListDocPages();

// Returns the page with this name; a path such as "docs/placements.md" or "placements.md", as links
// have it, is a name, too. Errors: kUnavailable if no pages are installed; kInvalidArgument
// with a suggestion if there is no such page.
absl::StatusOr<DocPage> FindDocPage(const std::string& name);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_DOC_PAGES_H_
