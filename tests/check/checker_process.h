// SPDX-License-Identifier: Apache-2.0
// Runs plumb-norm-check like a user.
#ifndef PLUMB_TESTS_CHECK_CHECKER_PROCESS_H_
#define PLUMB_TESTS_CHECK_CHECKER_PROCESS_H_

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace plumb::check {

struct CheckerRun {
  int exit_code = -1;  // -1: ended by a signal
  std::string out, err;
};
CheckerRun RunChecker(const std::vector<std::string>& arguments);

// Returns the ids of the checks in a report (--json) that have this verdict.
std::set<std::string> ChecksWith(const std::string& verdict, const nlohmann::json& report);

// Returns the path of the plugin of mutants/ with this name.
std::string MutantPath(const std::string& name);

}  // namespace plumb::check

#endif  // PLUMB_TESTS_CHECK_CHECKER_PROCESS_H_
