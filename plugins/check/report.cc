// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/report.h"

#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/utf8.h"

namespace plumb::check {
namespace {

constexpr int kVerdicts = 5;

const char* GetName(Verdict verdict) {
  constexpr const char* kVerdictNames[kVerdicts] = {"pass", "note", "skip", "warn", "fail"};
  return kVerdictNames[static_cast<size_t>(verdict)];
}

// Makes text of a plugin safe for a terminal. Lines after the first are indented like it.
std::string Harmless(const std::string& text) {
  return absl::StrReplaceAll(PrintableText(text), {{"\n", "\n         "}});
}

bool Matters(const CheckResult& result) { return result.verdict >= Verdict::kWarn; }

std::array<int, kVerdicts> CountVerdicts(const FileResult& file) {
  std::array<int, kVerdicts> counts{};
  for (const CheckResult& result : file.results) ++counts[static_cast<size_t>(result.verdict)];
  return counts;
}

std::string Summary(const FileResult& file) {
  const std::array<int, kVerdicts> counts = CountVerdicts(file);
  const size_t checks = file.results.size();
  std::string text = absl::StrCat(
      checks, checks == 1 ? " check: " : " checks: ", counts[0] + counts[1], " passed");
  if (counts[3] > 0) absl::StrAppend(&text, ", ", counts[3], " warned");
  if (counts[4] > 0) absl::StrAppend(&text, ", ", counts[4], " failed");
  if (counts[2] > 0) absl::StrAppend(&text, ", ", counts[2], " skipped");
  return text + "\n";
}

void AppendResult(const CheckResult& result, bool only_failed, std::string* text) {
  const bool failed = result.verdict == Verdict::kFail;
  absl::StrAppendFormat(text, "  %-5s%s  %s\n", result.check->id,
                        failed ? "FAIL" : GetName(result.verdict), result.check->title);
  for (const Finding& finding : result.findings) {
    if (only_failed && finding.verdict < Verdict::kWarn) continue;
    const bool same = finding.verdict == result.verdict;
    absl::StrAppend(text, "         ", same ? "" : absl::StrCat(GetName(finding.verdict), ": "),
                    Harmless(finding.text), "\n");
  }
}

}  // namespace

int ToExitCode(const FileResult& file) {
  if (!file.load_problem.empty()) return kExitNotLoaded;
  return CountVerdicts(file)[static_cast<size_t>(Verdict::kFail)] > 0 ? kExitFailed : kExitPassed;
}

std::string ToText(const FileResult& file, bool only_failed) {
  std::string text, heading;
  for (const CheckResult& result : file.results) {
    if (only_failed && !Matters(result)) continue;
    const std::string wanted = result.norm.empty() ? file.path : result.norm;
    if (heading != wanted) {
      absl::StrAppend(&text, text.empty() ? "" : "\n", Harmless(wanted), "\n");
      heading = wanted;
    }
    AppendResult(result, only_failed, &text);
  }
  if (!text.empty()) text += "\n";
  if (!file.load_problem.empty()) {
    absl::StrAppend(&text, "could not load ", Harmless(file.path), ": ",
                    Harmless(file.load_problem), "\n");
  }
  return text + Summary(file);
}

std::string ToJson(const FileResult& file, bool only_failed) {
  using Json = nlohmann::ordered_json;
  Json results = Json::array();
  for (const CheckResult& result : file.results) {
    if (only_failed && !Matters(result)) continue;
    Json findings = Json::array();
    for (const Finding& finding : result.findings) {
      findings.push_back({{"verdict", GetName(finding.verdict)}, {"text", finding.text}});
    }
    results.push_back({{"check", result.check->id},
                       {"norm", result.norm.empty() ? Json() : Json(result.norm)},
                       {"level", result.check->level},
                       {"title", result.check->title},
                       {"verdict", GetName(result.verdict)},
                       {"seconds", result.seconds},
                       {"findings", findings}});
  }
  const std::array<int, kVerdicts> counts = CountVerdicts(file);
  Json summary;
  for (int i = 0; i < kVerdicts; ++i) {
    summary[GetName(static_cast<Verdict>(i))] = counts[static_cast<size_t>(i)];
  }
  const Json json = {{"file", file.path},
                     {"load_problem", file.load_problem.empty() ? Json() : Json(file.load_problem)},
                     {"norms", file.norms},
                     {"results", results},
                     {"summary", summary},
                     {"exit_code", ToExitCode(file)}};
  return PrintableJson(json.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n";
}

std::string ListChecks() {
  std::string text;
  for (const Check& check : AllChecks()) {
    absl::StrAppendFormat(&text, "%-4s level %d  %s\n", check.id, check.level, check.title);
  }
  return text;
}

}  // namespace plumb::check
