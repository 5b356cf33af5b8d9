// SPDX-License-Identifier: Apache-2.0
// report.html: a comparison of models as one page that needs nothing else: no network, no server,
// no file beside it.
//
// The data stand in the page as JSON, and the scripts in it draw them. Names, samples and messages
// are whatever a user, a data set or a model came up with: here they are escaped so that no byte of
// them can end the element that holds them, and the scripts put them into the page as text only.
#ifndef PLUMB_CLI_REPORT_REPORT_H_
#define PLUMB_CLI_REPORT_REPORT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace plumb::cli {

// The page of `report`, an object as docs/report.md has it. Parts that are missing are left out of
// the page. Never throws: bytes that are not UTF-8 become U+FFFD, numbers that are not finite null.
std::string RenderReport(const nlohmann::ordered_json& report);

// `json` on one line, for a <script type="application/json">: the same value to a JSON parser,
// without the characters that end the element or, in older JavaScript, a line.
std::string JsonForScript(const nlohmann::ordered_json& json);

// Returns the page before its data, up to and including <script type="application/json" ...>, as it
// was put together from cli/report when plumb was built.
absl::string_view PageBeforeData();

// Returns the page from the </script> of its data on.
absl::string_view PageAfterData();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_REPORT_REPORT_H_
