// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/utf8.h"

namespace plumb {

std::string JsonForScript(const nlohmann::ordered_json& json) {
  // Outside strings, JSON has none of these characters; inside, escapes replace them.
  return absl::StrReplaceAll(
      PrintableJson(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)),
      {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

std::string RenderReport(const nlohmann::ordered_json& report) {
  return absl::StrCat(PageBeforeData(), JsonForScript(report), PageAfterData());
}

}  // namespace plumb
