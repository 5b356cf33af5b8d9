// SPDX-License-Identifier: Apache-2.0
// plumb-norm-check as a user runs it.
#ifndef PLUMB_TESTS_CHECK_CHECKER_PROCESS_H_
#define PLUMB_TESTS_CHECK_CHECKER_PROCESS_H_

#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>
#include <vector>

namespace plumb::check {

struct CheckerRun {
  int exit_code = -1;  // -1: ended by a signal
  std::string out, err;
};
CheckerRun RunChecker(const std::vector<std::string>& arguments);

// Ids of the checks of a report (--json) that have the verdict.
std::set<std::string> ChecksWith(const std::string& verdict, const nlohmann::json& report);

// One line of the list of plugins of mutants.txt.
struct Mutant {
  std::string path, check, verdict;  // "none", "pass" for the honest one
  std::string name() const;          // of the file, without ".so"
};
void PrintTo(const Mutant& mutant, std::ostream* out);
std::vector<Mutant> AllMutants();
// The path of the one with that name.
std::string MutantPath(const std::string& name);

}  // namespace plumb::check

#endif  // PLUMB_TESTS_CHECK_CHECKER_PROCESS_H_
