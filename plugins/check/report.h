// SPDX-License-Identifier: Apache-2.0
// Findings of the checks, as text for users and as JSON for programs. Stateless.
#ifndef PLUMB_PLUGINS_CHECK_REPORT_H_
#define PLUMB_PLUGINS_CHECK_REPORT_H_

#include <string>

#include "plugins/check/runner.h"

namespace plumb::check {

inline constexpr int kExitPassed = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitNotLoaded = 2;

int ToExitCode(const FileResult& file);

// Returns a line for each check: id, verdict, title; its findings below; a summary at the end. With
// `only_failed` omits checks that passed, were skipped, or have only notes.
std::string ToText(const FileResult& file, bool only_failed);

// Returns {"file", "load_problem" (null if none), "norms": [id], "results": [{"check", "norm" (null
// for checks of the file), "level", "title", "verdict", "seconds", "findings": [{"verdict",
// "text"}]}], "summary": {"pass", "note", "skip", "warn", "fail"}, "exit_code"}. Verdicts are
// "pass", "note", "skip", "warn", "fail". With `only_failed`, the results are those that warn or
// fail.
std::string ToJson(const FileResult& file, bool only_failed);

// Returns all checks with their levels and titles.
std::string ListChecks();

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_REPORT_H_
