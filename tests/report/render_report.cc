// SPDX-License-Identifier: Apache-2.0
// Prints the page of a report object, for the tests in a browser: render_report < report.json >
// report.html
#include <cstdio>
#include <iostream>
#include <string>

#include "runtime/report/report.h"

int main() {
  const nlohmann::ordered_json report = nlohmann::ordered_json::parse(std::cin, nullptr, false);
  if (report.is_discarded()) {
    std::fputs("render_report: standard input is not JSON\n", stderr);
    return 2;
  }
  const std::string page = plumb::RenderReport(report);
  return std::fwrite(page.data(), 1, page.size(), stdout) == page.size() ? 0 : 1;
}
