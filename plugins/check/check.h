// SPDX-License-Identifier: Apache-2.0
// A check: one rule of the norm ABI, and the code that tries it on a plugin. Stateless.
//
// Every check runs in a process of its own (runner.h), so a check may crash, hang or be killed by
// the plugin: that is a finding too. Checks are numbered for ever (docs/plugin-abi.md lists them).
#ifndef PLUMB_PLUGINS_CHECK_CHECK_H_
#define PLUMB_PLUGINS_CHECK_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plumb/norm_plugin.h"

namespace plumb::check {

enum class Verdict { kPass, kNote, kSkip, kWarn, kFail };  // from best to worst

struct Finding {
  Verdict verdict = Verdict::kPass;
  std::string text;  // what is wrong, where: "f32 dim=17 rows 3..7: y[4][2] is 0.5, must be 0.25"
};

// What a check looks at.
struct Subject {
  std::string path;                         // the library's file
  plumb_norm_plugin_v1_fn entry = nullptr;  // null for Scope::kFile
  const plumb_norm_plugin* norm = nullptr;  // null unless Scope::kNorm
  uint64_t seed = 0;                        // of every random choice that the check makes
  double seconds = 1;                       // for a check that explores
  std::string point;                        // the only one that it is to try (points.h), or ""
  bool shrinks = false;                     // from that one, which ended the process, to a smaller
};

// Collects the findings of one check. A check that reports nothing has passed.
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

enum class Scope {
  kFile,     // reads the file; the library is not loaded
  kLibrary,  // loads it itself, from Subject::path: the loading is what is looked at
  kNorm,     // once for each norm of the file, after loading
};

struct Check {
  const char* id;  // "N7"
  int level;       // 1: load, 2: numeric, 3: strict, 4: performance
  Scope scope;
  const char* title;  // "touches nothing outside its rows"
  std::function<void(const Subject& subject, Report* report)> run;
  bool timed = false;     // measures time: runs while no other check does
  bool explores = false;  // takes Subject::seconds
};

// All checks, in the order in which they are reported: E, M, N, R, X, P.
const std::vector<Check>& AllChecks();

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_CHECK_H_
