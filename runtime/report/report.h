// SPDX-License-Identifier: Apache-2.0
// report.html: a comparison of models as one self-contained page without network, server or other
// files.
//
// The data are stored in the page as JSON, and its scripts draw them. Names, samples and messages
// are arbitrary text from users, data sets and models: they are escaped here so that no byte can
// end the element that holds them, and the scripts insert them as text only.
#ifndef PLUMB_RUNTIME_REPORT_REPORT_H_
#define PLUMB_RUNTIME_REPORT_REPORT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace plumb {

// Returns the page of `report`, an object as described in docs/report.md. Omits sections whose data
// are missing. Never throws: bytes that are not UTF-8 become U+FFFD, numbers that are not finite
// become null.
std::string RenderReport(const nlohmann::ordered_json& report);

// Returns `json` on one line for a <script type="application/json">: a JSON parser reads the same
// value, but no character ends the element or, in older JavaScript, a line.
std::string JsonForScript(const nlohmann::ordered_json& json);

// Returns the page before its data, up to and including <script type="application/json" ...>, as
// assembled from runtime/report at build time.
absl::string_view PageBeforeData();

// Returns the page after its data, from </script> on.
absl::string_view PageAfterData();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_REPORT_REPORT_H_
