// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/report.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/utf8.h"

namespace plumb::check {
namespace {

constexpr int kVerdicts = 5;

const char* NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kNote:
      return "note";
    case Verdict::kSkip:
      return "skip";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
  }
  return "?";
}

std::string Coloured(Verdict verdict, const TextStyle& style) {
  const std::string name = verdict == Verdict::kFail ? "FAIL" : NameOf(verdict);
  if (!style.colours) return name;
  const char* colour = verdict == Verdict::kFail   ? "1;31"
                       : verdict == Verdict::kWarn ? "33"
                       : verdict == Verdict::kPass ? "32"
                                                   : "2";
  return absl::StrCat("\033[", colour, "m", name, "\033[0m");
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
  const int passed = counts[0] + counts[1];
  std::vector<std::string> parts = {absl::StrCat(passed, " passed")};
  const auto part = [&](Verdict verdict, const char* word) {
    const int count = counts[static_cast<size_t>(verdict)];
    if (count > 0) parts.push_back(absl::StrCat(count, " ", word));
  };
  part(Verdict::kWarn, "warned");
  part(Verdict::kFail, "failed");
  part(Verdict::kSkip, "skipped");
  const size_t checks = file.results.size();
  return absl::StrCat(checks, checks == 1 ? " check: " : " checks: ", absl::StrJoin(parts, ", "));
}

void AppendResult(const CheckResult& result, const TextStyle& style, std::string* text) {
  absl::StrAppend(text, "  ", result.check->id,
                  std::string(5 - std::string(result.check->id).size(), ' '),
                  Coloured(result.verdict, style), "  ", result.check->title, "\n");
  for (const Finding& finding : result.findings) {
    if (style.only_failed && finding.verdict < Verdict::kWarn) continue;
    const bool same = finding.verdict == result.verdict;
    absl::StrAppend(text, "         ", same ? "" : absl::StrCat(NameOf(finding.verdict), ": "),
                    Harmless(finding.text), "\n");
  }
}

}  // namespace

int ExitCodeOf(const FileResult& file) {
  if (!file.load_problem.empty()) return kExitNotLoaded;
  return CountVerdicts(file)[static_cast<size_t>(Verdict::kFail)] > 0 ? kExitFailed : kExitPassed;
}

std::string ToText(const FileResult& file, const TextStyle& style) {
  std::string text;
  std::string heading;
  for (const CheckResult& result : file.results) {
    if (style.only_failed && !Matters(result)) continue;
    const std::string wanted = result.norm.empty() ? file.path : result.norm;
    if (heading != wanted) {
      absl::StrAppend(&text, text.empty() ? "" : "\n", Harmless(wanted), "\n");
      heading = wanted;
    }
    AppendResult(result, style, &text);
  }
  if (!text.empty()) text += "\n";
  if (!file.load_problem.empty()) {
    absl::StrAppend(&text, "could not load ", Harmless(file.path), ": ",
                    Harmless(file.load_problem), "\n");
  }
  absl::StrAppend(&text, Summary(file), "\n");
  return text;
}

std::string ToJson(const FileResult& file, bool only_failed) {
  using Json = nlohmann::ordered_json;
  Json results = Json::array();
  for (const CheckResult& result : file.results) {
    if (only_failed && !Matters(result)) continue;
    Json findings = Json::array();
    for (const Finding& finding : result.findings) {
      findings.push_back({{"verdict", NameOf(finding.verdict)}, {"text", finding.text}});
    }
    results.push_back({{"check", result.check->id},
                       {"norm", result.norm.empty() ? Json() : Json(result.norm)},
                       {"level", result.check->level},
                       {"title", result.check->title},
                       {"verdict", NameOf(result.verdict)},
                       {"seconds", result.seconds},
                       {"findings", findings}});
  }
  const std::array<int, kVerdicts> counts = CountVerdicts(file);
  Json summary;
  for (int i = 0; i < kVerdicts; ++i) {
    summary[NameOf(static_cast<Verdict>(i))] = counts[static_cast<size_t>(i)];
  }
  const Json json = {{"file", file.path},
                     {"load_problem", file.load_problem.empty() ? Json() : Json(file.load_problem)},
                     {"norms", file.norms},
                     {"results", results},
                     {"summary", summary},
                     {"exit_code", ExitCodeOf(file)}};
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
