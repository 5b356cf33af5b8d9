// SPDX-License-Identifier: Apache-2.0
// A check: one property that the norm ABI requires, and the code that tests it on a plugin.
// Stateless.
//
// Every check runs in its own process (runner.h), so that a plugin may crash, hang or kill it; that
// becomes a finding. Check ids are never reused (docs/plugin-abi.md lists them).
#ifndef PLUMB_PLUGINS_CHECK_CHECK_H_
#define PLUMB_PLUGINS_CHECK_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plumb/norm_plugin.h"

namespace plumb::check {

enum class Verdict { kPass, kNote, kSkip, kWarn, kFail };  // best to worst

struct Finding {
  Verdict verdict = Verdict::kPass;
  std::string text;  // problem and place: "f32 dim=17 rows 3..7: y[4][2] is 0.5,
                     // must be 0.25"
};

// Input of a check.
struct Subject {
  std::string path;                         // file of the library
  const plumb_norm_plugin* norm = nullptr;  // null for checks of the file
  uint64_t seed = 0;                        // seed of all random choices of the check
  double seconds = 1;                       // time budget of an exploring check
  std::string point;                        // the only point to try (points.h); "": all
};

// Findings of one check. A check without findings has passed. Thread-compatible.
class Report {
 public:
  void Fail(std::string text) { Add(Verdict::kFail, std::move(text)); }
  void Warn(std::string text) { Add(Verdict::kWarn, std::move(text)); }
  void Note(std::string text) { Add(Verdict::kNote, std::move(text)); }
  void Skip(std::string text) { Add(Verdict::kSkip, std::move(text)); }
  void Add(Verdict verdict, std::string text) { findings_.push_back({verdict, std::move(text)}); }
  const std::vector<Finding>& findings() const { return findings_; }
  bool failed() const;

 private:
  std::vector<Finding> findings_;
};

struct Check {
  const char* id;     // "N7"
  int level;          // 1: file and declarations, 2: numbers, 3: strict
  bool of_file;       // tests the file, and loads it itself; else runs once for each norm
  const char* title;  // "touches nothing outside its rows"
  std::function<void(const Subject& subject, Report* report)> run;
  // Ids of checks whose failure explains one of this check, which is then not reported.
  std::vector<std::string> causes = {};
  bool explores = false;  // runs for Subject::seconds
};

// Returns all checks, in report order: E, M, N, R.
const std::vector<Check>& AllChecks();

// Returns the check that took over a removed check's property, or the command that did; "" if there
// was never such a check.
std::string FindSuccessor(const std::string& removed_id);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_CHECK_H_
