// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/formula.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"

namespace plumb {
namespace {

Expr Parsed(const std::string& text) {
  const absl::StatusOr<Expression> expression = ParseExpression({text, {}});
  EXPECT_TRUE(expression.ok()) << text << "\n" << expression.status();
  return expression.ok() ? expression->root : Expr();
}

std::string Tree(const Expr& e);

std::string Index(const Expr& e) {
  std::string out;
  for (const Expr& index : e.index) absl::StrAppend(&out, "[", Tree(index), "]");
  return out;
}

// Returns the expression with all parentheses: "(1 + (2 * 3))".
std::string Tree(const Expr& e) {
  switch (e.kind) {
    case Expr::Kind::kNumber:
      return absl::StrCat(e.number);
    case Expr::Kind::kName:
      return absl::StrCat(e.name, Index(e));
    case Expr::Kind::kUnary:
      return absl::StrCat("(", e.name, " ", Tree(e.args[0]), ")");
    case Expr::Kind::kBinary:
      return absl::StrCat("(", Tree(e.args[0]), " ", e.name, " ", Tree(e.args[1]), ")");
    case Expr::Kind::kCall:
    case Expr::Kind::kReduce:
      break;
  }
  std::string out = absl::StrCat(e.name, Index(e), "(");
  if (e.kind == Expr::Kind::kReduce) absl::StrAppend(&out, e.variable, "=");
  for (const Expr& arg : e.args) absl::StrAppend(&out, Tree(arg), ";");
  return out + ")";
}

bool Same(const Expr& a, const Expr& b) {
  if (a.kind != b.kind || a.name != b.name || a.variable != b.variable) return false;
  if (a.kind == Expr::Kind::kNumber && a.number != b.number) return false;
  return std::equal(a.args.begin(), a.args.end(), b.args.begin(), b.args.end(), Same) &&
         std::equal(a.index.begin(), a.index.end(), b.index.begin(), b.index.end(), Same);
}

TEST(FormulaTest, OperatorsBindAsInMathematics) {
  EXPECT_EQ(Tree(Parsed("1 + 2 * 3")), "(1 + (2 * 3))");
  EXPECT_EQ(Tree(Parsed("(1 + 2) * 3")), "((1 + 2) * 3)");
  EXPECT_EQ(Tree(Parsed("1 - 2 - 3")), "((1 - 2) - 3)");
  EXPECT_EQ(Tree(Parsed("8 / 4 / 2 % 3 * 5")), "((((8 / 4) / 2) % 3) * 5)");
  EXPECT_EQ(Tree(Parsed("2 * 3 ^ 2")), "(2 * (3 ^ 2))");
}

TEST(FormulaTest, PowersAreRightAssociative) {
  EXPECT_EQ(Tree(Parsed("2 ^ 3 ^ 2")), "(2 ^ (3 ^ 2))");
  EXPECT_EQ(Tree(Parsed("-2 ^ 2")), "(- (2 ^ 2))");
  EXPECT_EQ(Tree(Parsed("(-2) ^ 2")), "((- 2) ^ 2)");
  EXPECT_EQ(Tree(Parsed("2 ^ -0.25")), "(2 ^ (- 0.25))");
  EXPECT_EQ(Tree(Parsed("--a")), "(- (- a))");
  EXPECT_EQ(Tree(Parsed("a * -b")), "(a * (- b))");
}

TEST(FormulaTest, ConditionsBindLoosest) {
  EXPECT_EQ(Tree(Parsed("a or b and not c == 1 + 2")), "(a or (b and (not (c == (1 + 2)))))");
  EXPECT_EQ(Tree(Parsed("(a or b) and c")), "((a or b) and c)");
  EXPECT_EQ(Tree(Parsed("not not a")), "(not (not a))");
  for (const char* op : {"==", "!=", "<", "<=", ">", ">="}) {
    EXPECT_EQ(Tree(Parsed(absl::StrCat("a", op, "b"))), absl::StrCat("(a ", op, " b)"));
  }
}

TEST(FormulaTest, CallsTakeAnyNumberOfArguments) {
  EXPECT_EQ(Tree(Parsed("f()")), "f()");
  EXPECT_EQ(Tree(Parsed("min(1, a + 2, g(x))")), "min(1;(a + 2);g(x;);)");
  EXPECT_EQ(Tree(Parsed("f (x)")), "f(x;)");
}

TEST(FormulaTest, ReadsNumbersAsTheyAreWritten) {
  EXPECT_EQ(Parsed("12").number, 12);
  EXPECT_EQ(Parsed("0.5").number, 0.5);
  EXPECT_EQ(Parsed(".5").number, 0.5);
  EXPECT_EQ(Parsed("5.").number, 5);
  EXPECT_EQ(Parsed("1e-4").number, 1e-4);
  EXPECT_EQ(Parsed("2.5E+3").number, 2500);
  EXPECT_EQ(Tree(Parsed("1-1")), "(1 - 1)");
}

TEST(FormulaTest, ParsesStatements) {
  const absl::StatusOr<Statement> plain =
      ParseStatement({"x=x+f(norm(x))", {"a.pbtxt", 3, 4}}, "each");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->section, "each");
  EXPECT_EQ(plain->target, "x");
  EXPECT_EQ(plain->text.place.ToString(), "a.pbtxt:3:4");
  EXPECT_FALSE(plain->condition.has_value());
  EXPECT_EQ(plain->ToString(), "x = x + f(norm(x))");

  const absl::StatusOr<Statement> conditional =
      ParseStatement({"  x = norm( x )\n if sublayer %12==0 ", {}}, "each");
  ASSERT_TRUE(conditional.ok()) << conditional.status();
  EXPECT_EQ(conditional->ToString(), "x = norm(x) if sublayer % 12 == 0");
}

TEST(FormulaTest, OffsetsPointIntoTheText) {
  const Expr expr = Parsed("x + f(norm(y))");
  EXPECT_EQ(expr.offset, 2u);
  EXPECT_EQ(expr.args[1].offset, 4u);
  EXPECT_EQ(expr.args[1].args[0].args[0].offset, 11u);
}

TEST(FormulaTest, PrintsNumbersThatReadBackTheSame) {
  for (const double number : {0.1, 1.0 / 3, 0.123456789, 1234567.0, 123456789012.5, 1e-4, 1e22,
                              5e-324, std::numeric_limits<double>::max()}) {
    Expr expr;
    expr.number = number;
    EXPECT_EQ(Parsed(expr.ToString()).number, number) << expr.ToString();
  }
}

TEST(FormulaTest, ComparisonsKeepTheirParentheses) {
  for (const char* text : {"x = (a < b)", "x = (a and b)", "x = (not a) if (a or b) and c"}) {
    const absl::StatusOr<Statement> statement = ParseStatement({text, {}}, "let");
    ASSERT_TRUE(statement.ok()) << statement.status();
    EXPECT_EQ(statement->ToString(), text);
  }
}

TEST(FormulaTest, NamesHaveIndicesAndRanges) {
  EXPECT_EQ(Tree(Parsed("h[layer - 1] * r[i, j]")), "(h[(layer - 1)] * r[i][j])");
  EXPECT_EQ(Tree(Parsed("norm[k](h[k])")), "norm[k](h[k];)");
  EXPECT_EQ(Tree(Parsed("sum(k = 0..layer, w[k] * h[k])")), "sum(k=0;layer;(w[k] * h[k]);)");
  EXPECT_EQ(Tree(Parsed("softmax(k = 0.5..1.5, s, v)")), "softmax(k=0.5;1.5;s;v;)");
  EXPECT_EQ(Tree(Parsed("sum(x)")), "sum(x;)");
  const absl::StatusOr<Statement> statement =
      ParseStatement({"h[i]=x for i=0..n-1 if layer>1", {}}, "each");
  ASSERT_TRUE(statement.ok()) << statement.status();
  EXPECT_EQ(statement->ToString(), "h[i] = x for i = 0..n - 1 if layer > 1");
}

TEST(FormulaTest, CollectsTheNamesOfAKind) {
  std::set<std::string> names;
  const Expr expr = Parsed("x + f(norm(d * 2)) - max(x, layer)");
  CollectNames(expr, Expr::Kind::kName, &names);
  EXPECT_EQ(names, (std::set<std::string>{"d", "layer", "x"}));
  names.clear();
  CollectNames(expr, Expr::Kind::kCall, &names);
  EXPECT_EQ(names, (std::set<std::string>{"f", "max", "norm"}));
}

// Generator of random expression trees from a fixed seed.
class RandomFormula {
 public:
  explicit RandomFormula(uint64_t seed) : stream_(seed, "formula") {}

  Expr Draw(int depth) {
    Expr expr;
    const uint64_t kind = depth == 0 ? Pick(2) : Pick(6);
    if (kind == 0) {
      constexpr double kNumbers[] = {0, 1, 2.5, 0.1, 1e-7, 1e21, 0.123456789012345};
      expr.number = kNumbers[Pick(7)];
    } else if (kind == 1) {
      expr.kind = Expr::Kind::kName;
      expr.name = std::string(1, static_cast<char>('a' + Pick(4)));
      if (depth > 0) expr.index = Some(depth - 1);
    } else if (kind == 5) {
      expr.kind = Expr::Kind::kReduce;
      expr.variable = "k";
      expr.name = Pick(2) == 0 ? "sum" : "softmax";
      for (int n = expr.name == "sum" ? 3 : 4; n > 0; --n) expr.args.push_back(Draw(depth - 1));
    } else if (kind == 2) {
      expr.kind = Expr::Kind::kUnary;
      expr.name = Pick(2) == 0 ? "-" : "not";
      expr.args = {Draw(depth - 1)};
    } else if (kind == 3) {
      constexpr const char* kOperators[] = {"or", "and", "==", "!=", "<", "<=", ">",
                                            ">=", "+",   "-",  "*",  "/", "%",  "^"};
      expr.kind = Expr::Kind::kBinary;
      expr.name = kOperators[Pick(14)];
      expr.args = {Draw(depth - 1), Draw(depth - 1)};
    } else {
      expr.kind = Expr::Kind::kCall;
      expr.name = "f";
      expr.args = Some(depth - 1);
      expr.index = Some(depth - 1);
    }
    return expr;
  }

 private:
  std::vector<Expr> Some(int depth) {
    std::vector<Expr> some;
    for (uint64_t n = Pick(3); n > 0; --n) some.push_back(Draw(depth));
    return some;
  }
  uint64_t Pick(uint64_t n) { return stream_.Below(next_++, n); }

  RngStream stream_;
  uint64_t next_ = 0;
};

TEST(FormulaTest, PrintedTextParsesToTheSameTree) {
  RandomFormula random(1);
  for (int i = 0; i < 20000; ++i) {
    const Expr expr = random.Draw(i % 6);
    const std::string text = expr.ToString();
    if (text.size() > 2000) continue;
    const absl::StatusOr<Expression> again = ParseExpression({text, {}});
    ASSERT_TRUE(again.ok()) << text << "\n" << again.status();
    ASSERT_TRUE(Same(again->root, expr)) << text << "\n" << Tree(expr);
    ASSERT_EQ(again->root.ToString(), text);

    const absl::StatusOr<Statement> statement = ParseStatement(
        {absl::StrCat("x[(", text, ")] = (", text, ") for k = (", text, ")..2 if ", text), {}},
        "each");
    if (text.size() > 450) continue;
    ASSERT_TRUE(statement.ok()) << statement.status();
    const absl::StatusOr<Statement> printed = ParseStatement({statement->ToString(), {}}, "each");
    ASSERT_TRUE(printed.ok()) << printed.status();
    ASSERT_TRUE(Same(printed->value, expr)) << statement->ToString();
    ASSERT_TRUE(Same(*printed->condition, expr)) << statement->ToString();
    ASSERT_TRUE(Same(printed->index[0], expr)) << statement->ToString();
    ASSERT_TRUE(Same(printed->range->first, expr)) << statement->ToString();
  }
}

TEST(FormulaTest, AnyBytesAreReadOrRefused) {
  const RngStream stream(1, "bytes");
  uint64_t next = 0;
  const std::string likely = "xfa01.e+-*/%^(),=<>!& |\"\n\t_#[]";
  int read = 0;
  for (int i = 0; i < 60000; ++i) {
    std::string text;
    for (uint64_t n = stream.Below(next++, i % 3 == 0 ? 200 : 12); n > 0; --n) {
      text.push_back(i % 2 == 0 ? static_cast<char>(stream.Below(next++, 256))
                                : likely[stream.Below(next++, likely.size())]);
    }
    const absl::StatusOr<Statement> statement = ParseStatement({text, {"a.pbtxt", 1, 1}}, "each");
    const absl::StatusOr<Expression> expression = ParseExpression({text, {"a.pbtxt", 1, 1}});
    if (!statement.ok()) {
      ASSERT_EQ(statement.status().code(), absl::StatusCode::kInvalidArgument);
      ASSERT_EQ(statement.status().message().find("a.pbtxt:1:1: "), 0u);
    }
    if (!expression.ok()) continue;
    ++read;
    const absl::StatusOr<Expression> again = ParseExpression({expression->root.ToString(), {}});
    ASSERT_TRUE(again.ok() && Same(again->root, expression->root)) << text;
  }
  EXPECT_GT(read, 1000);  // many texts are accepted, not only refused
}

TEST(FormulaTest, LimitsDepthAndLength) {
  const auto parses = [](const std::string& text) { return ParseExpression({text, {}}).ok(); };
  const auto nested = [](const std::string& open, int n, const std::string& close) {
    std::string text;
    for (int i = 0; i < n; ++i) text += open;
    text += "a";
    for (int i = 0; i < n; ++i) text += close;
    return text;
  };
  EXPECT_TRUE(parses(nested("(", 90, ")")));
  for (const char* open : {"(", "-", "not ", "f(", "2 ^ "}) {
    const std::string close = std::string(open).back() == '(' ? ")" : "";
    EXPECT_TRUE(parses(nested(open, 50, close))) << open;
    EXPECT_FALSE(parses(nested(open, 400, close))) << open;
  }
  // Each operator of a chain is a level of the tree, into which recursive functions descend.
  EXPECT_TRUE(parses(nested("a+", 100, "")));
  EXPECT_FALSE(parses(nested("a+", 101, "")));
  EXPECT_FALSE(parses(nested("a+", 1000, "")));
}

}  // namespace
}  // namespace plumb
