// SPDX-License-Identifier: Apache-2.0
// Errors of invalid formulas that cannot be written in cases/statements.txt.
#include <gtest/gtest.h>

#include <string>

#include "runtime/spec/formula.h"

namespace plumb {
namespace {

std::string GetError(const std::string& text) {
  const absl::StatusOr<Statement> statement = ParseStatement({text, {"p.pbtxt", 4, 9}}, "each");
  if (statement.ok()) return "no error";
  EXPECT_EQ(statement.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(statement.status().message());
}

TEST(FormulaErrorTest, StatementsBeginWithAName) {
  EXPECT_EQ(GetError(""),
            "p.pbtxt:4:9: a statement begins with the name that it sets: \"x = ...\"\n"
            "  \n"
            "  ^");
  EXPECT_EQ(GetError("  "),
            "p.pbtxt:4:9: a statement begins with the name that it sets: \"x = ...\"\n"
            "    \n"
            "    ^");
}

TEST(FormulaErrorTest, NamesInvalidBytes) {
  EXPECT_EQ(GetError("x = \x80"),
            "p.pbtxt:4:9: a formula cannot hold the byte 0x80\n"
            "  x = \x80\n"
            "      ^");
  EXPECT_EQ(GetError(std::string("x = \0", 5)),
            "p.pbtxt:4:9: a formula cannot hold the byte 0x00\n"
            "  x =  \n"
            "      ^");
  EXPECT_EQ(GetError("x = \x1b[31m"),
            "p.pbtxt:4:9: a formula cannot hold the byte 0x1b\n"
            "  x =  [31m\n"
            "      ^");
}

TEST(FormulaErrorTest, ShowsLinesAsOneLine) {
  EXPECT_EQ(GetError("x =\n\tx + $"),
            "p.pbtxt:4:9: a formula cannot hold \"$\"\n"
            "  x =  x + $\n"
            "           ^");
}

TEST(FormulaErrorTest, LimitsLengthAndDepth) {
  EXPECT_EQ(GetError(std::string(3000, 'a')),
            "p.pbtxt:4:9: a formula of 3000 characters; at most 2000 are read");
  const std::string deep = GetError("x = " + std::string(150, '('));
  EXPECT_EQ(deep.substr(0, deep.find('\n')), "p.pbtxt:4:9: the formula nests too deeply");
}

}  // namespace
}  // namespace plumb
