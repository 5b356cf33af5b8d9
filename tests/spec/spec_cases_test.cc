// SPDX-License-Identifier: Apache-2.0
// Runs the cases of cases/*.txt: texts with their errors as a user reads them, or with the calls to
// the backend.
//
//   ==== KIND
//   the text
//   ----
//   the result; a last line "..." stands for lines that depend on the build
//
// KIND is one of "text" (a whole model), "model" (the text after a line of dimensions), "placement"
// (the fields of a placement, from line 4), "statement", "scalar" (an expression) and "recipe",
// whose result is an error or "no error"; "trace" (the fields of a placement); "walk TEXT" (a whole
// model, whose result is the calls that contain the text); "printed" (expressions, one a line); or
// "stored recipe". Lines between cases that begin with # are comments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"
#include "runtime/spec/formula.h"
#include "runtime/spec/scalar.h"
#include "runtime/spec/train_spec.h"
#include "tests/spec/recorder.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

const char kSpecCases[] = PLUMB_SOURCE_DIR "/tests/spec/cases";

struct SpecCase {
  int line = 0;
  std::string kind, text, expected;
};

std::vector<SpecCase> ReadSpecCases(const std::string& path) {
  std::vector<SpecCase> cases;
  std::vector<std::string>* block = nullptr;
  std::vector<std::string> text, expected;
  const auto finish = [&] {
    if (cases.empty()) return;
    cases.back().text = absl::StrJoin(text, "\n");
    cases.back().expected = absl::StrJoin(expected, "\n");
  };
  int line = 0;
  for (absl::string_view at : absl::StrSplit(*ReadFile(path), '\n')) {
    ++line;
    if (absl::ConsumePrefix(&at, "==== ")) {
      finish();
      cases.push_back({line, std::string(at), "", ""});
      text.clear();
      expected.clear();
      block = &text;
    } else if (at == "----") {
      block = &expected;
    } else if (block == &expected && (at.empty() || absl::StartsWith(at, "# "))) {
      block = nullptr;  // until the next case
    } else if (block != nullptr) {
      block->emplace_back(at);
    }
  }
  finish();
  return cases;
}

std::string StatementError(const std::string& text) {
  const absl::StatusOr<Statement> statement = ParseStatement({text, {"p.pbtxt", 4, 9}}, "each");
  if (statement.ok()) return "no error";
  EXPECT_EQ(statement.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(statement.status().message());
}

std::string ScalarError(const std::string& text) {
  ModelDims dims;
  dims.n_layer = 12;
  dims.n_head = 4;
  const PlacementSpec placement;
  ScalarScope scope;
  scope.dims = &dims;
  scope.placement = &placement;
  const absl::StatusOr<Expression> expression = ParseExpression({text, {"p.pbtxt", 7, 5}});
  if (!expression.ok()) return std::string(expression.status().message());
  const absl::StatusOr<double> value = EvaluateScalar(*expression, scope);
  return value.ok() ? "no error" : std::string(value.status().message());
}

// Returns the expressions, each on its line, as they are printed.
std::string PrintedExpressions(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) {
    const absl::StatusOr<Expression> expression = ParseExpression({line, {}});
    line = expression.ok() ? expression->root.ToString() : expression.status().ToString();
  }
  return absl::StrJoin(lines, "\n");
}

std::string RecipeError(const std::string& text) {
  const absl::StatusOr<TrainSpec> spec = ParseTrainSpec(text, "t.pbtxt", {});
  if (spec.ok()) return "no error";
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(spec.status().message());
}

// Returns the trace of a model of one layer, which is short, without its last line break.
std::string GetTrace(const std::string& fields) {
  const std::string trace = Trace(
      absl::StrCat("n_layer: 1 n_head: 2 d_model: 8 d_ff: \"16\" vocab_size: 11 context_length: 4\n"
                   "placement { name: \"p\"\n",
                   fields, "\n}\nblock { placement: \"p\" norm: \"rms_norm\" }\n"));
  return std::string(absl::StripSuffix(trace, "\n"));
}

// Returns the recipe as a run stores it: all lines of the empty recipe, and of another one those
// that the empty one does not have. Fails if the stored recipe does not read back as the same.
std::string StoredRecipe(const std::string& text) {
  const auto store = [](const std::string& recipe) {
    const absl::StatusOr<TrainSpec> spec = ParseTrainSpec(recipe, "t.pbtxt", {});
    return spec.ok() ? spec->text : std::string(spec.status().message());
  };
  const std::string stored = store(text), defaults = store("");
  EXPECT_EQ(store(stored), stored);
  if (text.empty()) return std::string(absl::StripSuffix(stored, "\n"));
  const std::set<std::string> known = absl::StrSplit(defaults, '\n');
  std::vector<std::string> lines = absl::StrSplit(stored, '\n');
  lines.erase(std::remove_if(lines.begin(), lines.end(),
                             [&](const std::string& line) { return known.count(line) > 0; }),
              lines.end());
  return absl::StrJoin(lines, "\n");
}

std::string GetResult(const SpecCase& spec_case) {
  if (spec_case.kind == "text") return GetError(spec_case.text);
  if (spec_case.kind == "model") return ResolveError(spec_case.text);
  if (spec_case.kind == "placement") return PlacementError(spec_case.text);
  if (spec_case.kind == "statement") return StatementError(spec_case.text);
  if (spec_case.kind == "printed") return PrintedExpressions(spec_case.text);
  if (spec_case.kind == "scalar") return ScalarError(spec_case.text);
  if (spec_case.kind == "recipe") return RecipeError(spec_case.text);
  if (spec_case.kind == "trace") return GetTrace(spec_case.text);
  if (spec_case.kind == "stored recipe") return StoredRecipe(spec_case.text);
  absl::string_view kind = spec_case.kind;
  if (absl::ConsumePrefix(&kind, "walk")) {
    const std::string calls =
        LinesWith(absl::StripLeadingAsciiWhitespace(kind), Trace(spec_case.text));
    return std::string(absl::StripTrailingAsciiWhitespace(calls));
  }
  return absl::StrCat("no kind of case: ", spec_case.kind);
}

class SpecCasesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SpecCasesTest, MatchTheFile) {
  const std::vector<SpecCase> cases =
      ReadSpecCases(absl::StrCat(kSpecCases, "/", GetParam(), ".txt"));
  EXPECT_GT(cases.size(), 10u);
  for (const SpecCase& spec_case : cases) {
    SCOPED_TRACE(absl::StrCat(GetParam(), ".txt:", spec_case.line));
    const std::string got = GetResult(spec_case);
    if (absl::EndsWith(spec_case.expected, "\n...")) {
      EXPECT_THAT(got,
                  ::testing::StartsWith(std::string(absl::StripSuffix(spec_case.expected, "..."))));
    } else {
      EXPECT_EQ(got, spec_case.expected);
    }
  }
}

std::vector<std::string> SpecCaseFiles() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(kSpecCases)) {
    names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, SpecCasesTest, ::testing::ValuesIn(SpecCaseFiles()),
                         [](const auto& file) { return file.param; });

TEST(ErrorListTest, AnUnknownPlacementNamesRelatedOnes) {
  const auto error_of = [](const char* name) {
    return ResolveError(absl::StrCat("block { placement: \"", name, "\" norm: \"rms_norm\" }"));
  };
  EXPECT_THAT(error_of("sandwich"),
              ::testing::HasSubstr("; names with it: depth_scaled_sandwich\n"));
  EXPECT_THAT(error_of("per"), ::testing::HasSubstr("did you mean \"peri\"?"));
  EXPECT_THAT(error_of("prenorm"), ::testing::HasSubstr("\n  plumb help placements lists the "));
}

TEST(ErrorListTest, LimitsTheStatementsOfASection) {
  std::string fields = "each: \"x = x + f(x)\"\n";
  for (int i = 0; i < 65; ++i) absl::StrAppend(&fields, "each: \"x = norm(x)\"\n");
  EXPECT_EQ(PlacementError(fields), "m.pbtxt:4:1: each has 66 statements; at most 64");
}

}  // namespace
}  // namespace plumb
