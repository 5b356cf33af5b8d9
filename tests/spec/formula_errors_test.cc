// What the parser says of text that is no formula, as a user sees it.
#include <gtest/gtest.h>

#include <string>

#include "runtime/spec/formula.h"

namespace plumb {
namespace {

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<Statement> statement = ParseStatement({text, {"p.pbtxt", 4, 9}}, "each");
  if (statement.ok()) return "no error";
  EXPECT_EQ(statement.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(statement.status().message());
}

TEST(FormulaErrorTest, AStatementSetsAName) {
  EXPECT_EQ(ErrorOf(""),
            "p.pbtxt:4:9: a statement begins with the name that it sets: \"x = ...\"\n"
            "  \n"
            "  ^");
  EXPECT_EQ(ErrorOf("  "),
            "p.pbtxt:4:9: a statement begins with the name that it sets: \"x = ...\"\n"
            "    \n"
            "    ^");
  EXPECT_EQ(ErrorOf("2 = x"),
            "p.pbtxt:4:9: a statement begins with the name that it sets: \"x = ...\"\n"
            "  2 = x\n"
            "  ^");
  EXPECT_EQ(ErrorOf("if = x"),
            "p.pbtxt:4:9: a statement begins with the name that it sets: \"x = ...\"\n"
            "  if = x\n"
            "  ^");
  EXPECT_EQ(ErrorOf("x + f(x)"),
            "p.pbtxt:4:9: expected \"=\" after \"x\"\n"
            "  x + f(x)\n"
            "    ^");
  EXPECT_EQ(ErrorOf("x == f(x)"),
            "p.pbtxt:4:9: expected \"=\" after \"x\"\n"
            "  x == f(x)\n"
            "    ^");
  EXPECT_EQ(ErrorOf("x"),
            "p.pbtxt:4:9: expected \"=\" after \"x\"\n"
            "  x\n"
            "   ^");
}

TEST(FormulaErrorTest, AValueIsMissing) {
  EXPECT_EQ(ErrorOf("x ="),
            "p.pbtxt:4:9: the formula ends where a value is expected\n"
            "  x =\n"
            "     ^");
  EXPECT_EQ(ErrorOf("x = x +"),
            "p.pbtxt:4:9: the formula ends where a value is expected\n"
            "  x = x +\n"
            "         ^");
  EXPECT_EQ(ErrorOf("x = * x"),
            "p.pbtxt:4:9: expected a value, not \"*\"\n"
            "  x = * x\n"
            "      ^");
  EXPECT_EQ(ErrorOf("x = f(x, )"),
            "p.pbtxt:4:9: expected a value, not \")\"\n"
            "  x = f(x, )\n"
            "           ^");
  EXPECT_EQ(ErrorOf("x = x if"),
            "p.pbtxt:4:9: the formula ends where a value is expected\n"
            "  x = x if\n"
            "          ^");
  EXPECT_EQ(ErrorOf("x = if y"),
            "p.pbtxt:4:9: expected a value, not \"if\"\n"
            "  x = if y\n"
            "      ^");
  EXPECT_EQ(ErrorOf("x = x if not"),
            "p.pbtxt:4:9: the formula ends where a value is expected\n"
            "  x = x if not\n"
            "              ^");
  EXPECT_EQ(ErrorOf("x = x + +f(x)"),
            "p.pbtxt:4:9: expected a value, not \"+\"\n"
            "  x = x + +f(x)\n"
            "          ^");
}

TEST(FormulaErrorTest, ParenthesesDoNotMatch) {
  EXPECT_EQ(ErrorOf("x = x + f(norm(x)"),
            "p.pbtxt:4:9: expected \")\" to close f(...)\n"
            "  x = x + f(norm(x)\n"
            "                   ^");
  EXPECT_EQ(ErrorOf("x = (x + 1"),
            "p.pbtxt:4:9: expected \")\"\n"
            "  x = (x + 1\n"
            "            ^");
  EXPECT_EQ(ErrorOf("x = x + f(x))"),
            "p.pbtxt:4:9: \")\" without its \"(\"\n"
            "  x = x + f(x))\n"
            "              ^");
  EXPECT_EQ(ErrorOf("x = ()"),
            "p.pbtxt:4:9: expected a value, not \")\"\n"
            "  x = ()\n"
            "       ^");
  EXPECT_EQ(ErrorOf("x = f(x y)"),
            "p.pbtxt:4:9: expected \")\" to close f(...)\n"
            "  x = f(x y)\n"
            "          ^");
}

TEST(FormulaErrorTest, SomethingFollowsTheEnd) {
  EXPECT_EQ(ErrorOf("x = 2 x"),
            "p.pbtxt:4:9: expected an operator or the end, not \"x\"\n"
            "  x = 2 x\n"
            "        ^");
  EXPECT_EQ(ErrorOf("x = 2x"),
            "p.pbtxt:4:9: expected an operator or the end, not \"x\"\n"
            "  x = 2x\n"
            "       ^");
  EXPECT_EQ(ErrorOf("x = y = f(x)"),
            "p.pbtxt:4:9: a second \"=\"; a comparison is written ==\n"
            "  x = y = f(x)\n"
            "        ^");
  EXPECT_EQ(ErrorOf("x = x if layer = 2"),
            "p.pbtxt:4:9: a second \"=\"; a comparison is written ==\n"
            "  x = x if layer = 2\n"
            "                 ^");
  EXPECT_EQ(ErrorOf("x = f(x), y"),
            "p.pbtxt:4:9: expected an operator or the end, not \",\"\n"
            "  x = f(x), y\n"
            "          ^");
  EXPECT_EQ(ErrorOf("x = x < 2"),
            "p.pbtxt:4:9: expected an operator or the end, not \"<\"; a condition stands after "
            "\"if\" or in parentheses\n"
            "  x = x < 2\n"
            "        ^");
  EXPECT_EQ(ErrorOf("x = x if 1 < layer < 3"),
            "p.pbtxt:4:9: comparisons do not chain; write \"a < b and b < c\"\n"
            "  x = x if 1 < layer < 3\n"
            "                     ^");
}

TEST(FormulaErrorTest, ACharacterHasNoMeaning) {
  EXPECT_EQ(ErrorOf("x = x & y"),
            "p.pbtxt:4:9: a formula cannot hold \"&\"\n"
            "  x = x & y\n"
            "        ^");
  EXPECT_EQ(ErrorOf("x = x if a && b"),
            "p.pbtxt:4:9: a formula cannot hold \"&\"; write \"and\"\n"
            "  x = x if a && b\n"
            "             ^");
  EXPECT_EQ(ErrorOf("x = x if a || b"),
            "p.pbtxt:4:9: a formula cannot hold \"|\"; write \"or\"\n"
            "  x = x if a || b\n"
            "             ^");
  EXPECT_EQ(ErrorOf("x = x ** 2"),
            "p.pbtxt:4:9: \"**\" is not an operator; a power is written ^\n"
            "  x = x ** 2\n"
            "        ^");
  EXPECT_EQ(ErrorOf("x = x if !a"),
            "p.pbtxt:4:9: a formula cannot hold \"!\"; write \"not\"\n"
            "  x = x if !a\n"
            "           ^");
  EXPECT_EQ(ErrorOf("x = x{1}"),
            "p.pbtxt:4:9: a formula cannot hold \"{\"\n"
            "  x = x{1}\n"
            "       ^");
  EXPECT_EQ(ErrorOf("x = x."),
            "p.pbtxt:4:9: a formula cannot hold \".\"\n"
            "  x = x.\n"
            "       ^");
  EXPECT_EQ(ErrorOf("x = 2 \xc3\x97 f(x)"),
            "p.pbtxt:4:9: a formula cannot hold \"\xc3\x97\"\n"
            "  x = 2 \xc3\x97 f(x)\n"
            "        ^");
  EXPECT_EQ(ErrorOf("x = \xe2\x88\x9a x"),
            "p.pbtxt:4:9: a formula cannot hold \"\xe2\x88\x9a\"\n"
            "  x = \xe2\x88\x9a x\n"
            "      ^");
  EXPECT_EQ(ErrorOf("x = \x80"),
            "p.pbtxt:4:9: a formula cannot hold the byte 0x80\n"
            "  x = \x80\n"
            "      ^");
  EXPECT_EQ(ErrorOf(std::string("x = \0", 5)),
            "p.pbtxt:4:9: a formula cannot hold the byte 0x00\n"
            "  x =  \n"
            "      ^");
  EXPECT_EQ(ErrorOf("x = \x1b[31m"),
            "p.pbtxt:4:9: a formula cannot hold the byte 0x1b\n"
            "  x =  [31m\n"
            "      ^");
}

TEST(FormulaErrorTest, ANumberIsNoNumber) {
  EXPECT_EQ(ErrorOf("x = 1.2.3 * x"),
            "p.pbtxt:4:9: \"1.2.3\" is not a number\n"
            "  x = 1.2.3 * x\n"
            "      ^");
  EXPECT_EQ(ErrorOf("x = 1e999 * x"),
            "p.pbtxt:4:9: \"1e999\" is too large a number\n"
            "  x = 1e999 * x\n"
            "      ^");
  EXPECT_EQ(ErrorOf("x = 1e * x"),
            "p.pbtxt:4:9: expected an operator or the end, not \"e\"\n"
            "  x = 1e * x\n"
            "       ^");
}

TEST(FormulaErrorTest, ALineOfTheTextIsShownAsOneLine) {
  EXPECT_EQ(ErrorOf("x =\n\tx + $"),
            "p.pbtxt:4:9: a formula cannot hold \"$\"\n"
            "  x =  x + $\n"
            "           ^");
}

TEST(FormulaErrorTest, TextIsTooLongOrTooDeep) {
  EXPECT_EQ(ErrorOf(std::string(3000, 'a')),
            "p.pbtxt:4:9: a formula of 3000 characters; at most 2000 are read");
  const std::string deep = ErrorOf("x = " + std::string(150, '('));
  EXPECT_EQ(deep.substr(0, deep.find('\n')), "p.pbtxt:4:9: the formula nests too deeply");
}

}  // namespace
}  // namespace plumb
