// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/formula.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/spec/formula_lexer.h"

namespace plumb {
namespace {

using Token = FormulaToken;

// Max nesting of parentheses, calls, signs and powers, and max height of the resulting tree, where
// each operator of a chain is a level. Functions that walk a tree recurse.
constexpr int kMaxDepth = 100;

bool IsKeyword(const std::string& name) {
  return name == "if" || name == "and" || name == "or" || name == "not" || name == "for";
}

// Precedence climbing parser. Functions that return bool set status_ when they return false, and
// write the tree to an output argument, so that a level of nesting uses little stack.
class Parser {
 public:
  Parser(const SourceText& source, std::vector<Token> tokens)
      : source_(source), tokens_(std::move(tokens)) {}

  absl::StatusOr<Statement> ParseStatement(std::string section) {
    Statement statement;
    statement.text = source_;
    statement.section = std::move(section);
    if (!IsName(Peek())) {
      return Error("a statement begins with the name that it sets: \"x = ...\"");
    }
    statement.target = Take().text;
    if (!Index(statement.target, &statement.index)) return status_;
    if (Peek().text != "=") {
      const std::string& op = Peek().text;
      const bool updates =
          (op == "+" || op == "-" || op == "*" || op == "/") && PeekAfter(1).text == "=";
      return Error(absl::StrCat("expected \"=\" after \"", statement.target, "\"",
                                updates ? absl::StrCat("; write ", statement.target, " = ",
                                                       statement.target, " ", op, " ...")
                                        : ""));
    }
    Take();
    if (!Parse(kSum, &statement.value)) return status_;
    if (Peek().text == "for") {
      Take();
      if (!Range(&statement.range.emplace())) return status_;
    }
    if (Peek().text == "if") {
      Take();
      if (!Parse(kOr, &statement.condition.emplace())) return status_;
    }
    if (Peek().text == "for") {
      return Error(statement.range.has_value()
                       ? "a statement has one range; write a statement for each value of the other"
                       : "\"for\" stands before \"if\": \"h[i] = x for i = 1..n if layer > 1\"");
    }
    PLUMB_RETURN_IF_ERROR(ExpectEnd());
    return statement;
  }

  absl::StatusOr<Expression> ParseAlone() {
    Expression expression;
    expression.text = source_;
    if (!Parse(kOr, &expression.root)) return status_;
    PLUMB_RETURN_IF_ERROR(ExpectEnd());
    return expression;
  }

  absl::StatusOr<RangeText> ParseRangeAlone() {
    RangeText range;
    range.text = source_;
    if (!Range(&range.range)) return status_;
    PLUMB_RETURN_IF_ERROR(ExpectEnd());
    return range;
  }

 private:
  static bool IsName(const Token& token) {
    return token.kind == Token::Kind::kName && !IsKeyword(token.text);
  }

  const Token& Peek() const { return tokens_[next_]; }
  const Token& PeekAfter(size_t n) const {
    return tokens_[std::min(next_ + n, tokens_.size() - 1)];
  }
  Token Take() {
    Token token = tokens_[next_];
    if (next_ + 1 < tokens_.size()) ++next_;
    return token;
  }
  absl::Status Error(absl::string_view message) const {
    return ErrorInText(source_, Peek().offset, message);
  }
  bool Fail(absl::string_view message) {
    status_ = Error(message);
    return false;
  }
  bool Expect(const char* symbol, absl::string_view where) {
    if (Peek().text != symbol) {
      return Fail(absl::StrCat("expected \"", symbol, "\"", where.empty() ? "" : " ", where));
    }
    Take();
    return true;
  }
  absl::Status ExpectEnd() const {
    if (Peek().kind == Token::Kind::kEnd) return absl::OkStatus();
    if (Peek().text == ")") return Error("\")\" without its \"(\"");
    if (Peek().text == "]") return Error("\"]\" without its \"[\"");
    if (Peek().text == "=") return Error("a second \"=\"; a comparison is written ==");
    if (Peek().text == "..") {
      return Error("\"..\" stands in a range: \"for i = 1..n\", \"sum(k = 1..n, h[k])\"");
    }
    if (Peek().text == "else") {
      return Error("there is no \"else\"; write a second statement, with \"if not\"");
    }
    const Precedence level = GetPrecedence(Peek().text);
    const bool condition = level == kComparison || level == kAnd || level == kOr;
    return Error(
        absl::StrCat("expected an operator or the end, not \"", Peek().text, "\"",
                     condition ? "; a condition stands after \"if\" or in parentheses" : ""));
  }

  // Calls Parse one nesting level deeper.
  bool Nested(Precedence lowest, Expr* out) {
    if (++depth_ > kMaxDepth) return Fail("the formula nests too deeply");
    const bool ok = Parse(lowest, out);
    --depth_;
    return ok;
  }

  // Parses an expression whose operators bind at least as tightly as `lowest`.
  bool Parse(Precedence lowest, Expr* out) {
    const bool negates = Peek().text == "not" && lowest <= kNot;
    if (negates || Peek().text == "-") {
      if (!Operator(Expr::Kind::kUnary, negates ? kNot : kFactor, out)) return false;
    } else if (!Primary(out)) {
      return false;
    }
    for (;;) {
      const Precedence level = GetPrecedence(Peek().text);
      if (level == kPrimary || level < lowest) return true;
      // Chains associate to the left and powers to the right; comparisons do not chain.
      const Precedence right = level == kPower        ? kFactor
                               : level == kComparison ? kSum
                                                      : static_cast<Precedence>(level + 1);
      if (!Operator(Expr::Kind::kBinary, right, out)) return false;
      if (level == kComparison && GetPrecedence(Peek().text) == kComparison) {
        return Fail("comparisons do not chain; write \"a < b and b < c\"");
      }
    }
  }

  // Parses an operator and the operand after it. For a binary operator *out holds the left operand.
  bool Operator(Expr::Kind kind, Precedence level, Expr* out) {
    Expr expr;
    expr.kind = kind;
    expr.offset = Peek().offset;
    expr.name = Take().text;
    expr.args.reserve(2);
    if (kind == Expr::Kind::kBinary) expr.args.push_back(std::move(*out));
    expr.args.emplace_back();
    const bool nests = kind == Expr::Kind::kUnary || expr.name == "^";
    if (!(nests ? Nested(level, &expr.args.back()) : Parse(level, &expr.args.back()))) return false;
    *out = std::move(expr);
    return true;
  }

  bool Primary(Expr* out) {
    *out = Expr();
    out->offset = Peek().offset;
    if (Peek().kind == Token::Kind::kNumber) {
      out->number = Take().number;
      return true;
    }
    if (Peek().text == "(") {
      Take();
      return Nested(kOr, out) && Expect(")", "");
    }
    if (!IsName(Peek())) {
      return Fail(Peek().kind == Token::Kind::kEnd
                      ? "the formula ends where a value is expected"
                      : absl::StrCat("expected a value, not \"", Peek().text, "\"",
                                     Peek().text == "not" ? "; in an expression a condition stands "
                                                            "in parentheses"
                                                          : ""));
    }
    out->kind = Expr::Kind::kName;
    out->name = Take().text;
    if (Reduces(*out)) return Reduce(out);
    if (!Index(out->name, &out->index)) return false;
    return Peek().text != "(" || Arguments(out);
  }

  // Returns true if "sum", "softmax" or "concat" is followed by a range: "(k = ".
  bool Reduces(const Expr& name) const {
    return (name.name == "sum" || name.name == "softmax" || name.name == "concat") &&
           Peek().text == "(" && PeekAfter(1).kind == Token::Kind::kName &&
           PeekAfter(2).text == "=";
  }

  bool Arguments(Expr* out) {
    Take();
    out->kind = Expr::Kind::kCall;
    while (Peek().text != ")") {
      out->args.emplace_back();
      if (!Nested(kOr, &out->args.back())) return false;
      if (Peek().text != ",") break;
      Take();
      if (Peek().text == ")") return Fail("expected a value, not \")\"");
    }
    const std::string& next = Peek().text;
    if (next == "=" || next == "in" || next == "..") {
      return Fail(
          "a range stands first in sum(k = 1..n, ..), softmax(k = 1..n, .., ..) and "
          "concat(k = 1..n, ..), and nowhere else in an expression");
    }
    return Expect(")", absl::StrCat("to close ", out->name, "(...)"));
  }

  bool Reduce(Expr* out) {
    Take();
    out->kind = Expr::Kind::kReduce;
    IndexRange range;
    if (!Range(&range)) return false;
    out->variable = std::move(range.variable);
    out->args.push_back(std::move(range.first));
    out->args.push_back(std::move(range.last));
    const bool weighted = out->name == "softmax";
    const std::string form = weighted ? "softmax(k = first..last, score, value)"
                                      : absl::StrCat(out->name, "(k = first..last, term)");
    for (int i = 0; i < (weighted ? 2 : 1); ++i) {
      if (!Expect(",", absl::StrCat("of ", form))) return false;
      out->args.emplace_back();
      if (!Nested(kOr, &out->args.back())) return false;
    }
    return Expect(")", absl::StrCat("to close ", form));
  }

  bool Range(IndexRange* out) {
    out->offset = Peek().offset;
    if (!IsName(Peek())) return Fail("expected a range: \"i = 1..n_layer\"");
    out->variable = Take().text;
    if (!Expect("=", absl::StrCat("of the range of ", out->variable, ": \"", out->variable,
                                  " = 1..n_layer\""))) {
      return false;
    }
    if (!Nested(kSum, &out->first)) return false;
    if (!Expect("..", absl::StrCat("and the last value of ", out->variable))) return false;
    return Nested(kSum, &out->last);
  }

  bool Index(const std::string& name, std::vector<Expr>* out) {
    if (Peek().text != "[") return true;
    do {
      Take();
      out->emplace_back();
      if (!Nested(kSum, &out->back())) return false;
    } while (Peek().text == ",");
    return Expect("]", absl::StrCat("to close ", name, "[...]"));
  }

  const SourceText& source_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  int depth_ = 0;
  absl::Status status_;
};

// Limits the height of the tree, including that of chains, which the parser does not count. Breadth
// first, since it must not recurse.
absl::Status CheckHeight(const SourceText& text, const Expr& root) {
  std::vector<const Expr*> level = {&root};
  for (int depth = 0; !level.empty(); ++depth) {
    if (depth > kMaxDepth) {
      return ErrorInText(text, level.front()->offset,
                         absl::StrCat("the formula has more than ", kMaxDepth,
                                      " operators inside of each other; give a part of it a name"));
    }
    std::vector<const Expr*> next;
    for (const Expr* expr : level) {
      for (const Expr& arg : expr->args) next.push_back(&arg);
      for (const Expr& index : expr->index) next.push_back(&index);
    }
    level = std::move(next);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Statement> ParseStatement(const SourceText& text, std::string section) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<Token> tokens, TokenizeFormula(text));
  PLUMB_ASSIGN_OR_RETURN(Statement statement,
                         Parser(text, std::move(tokens)).ParseStatement(std::move(section)));
  PLUMB_RETURN_IF_ERROR(CheckHeight(text, statement.value));
  if (statement.condition.has_value()) {
    PLUMB_RETURN_IF_ERROR(CheckHeight(text, *statement.condition));
  }
  for (const Expr& index : statement.index) PLUMB_RETURN_IF_ERROR(CheckHeight(text, index));
  if (statement.range.has_value()) {
    PLUMB_RETURN_IF_ERROR(CheckHeight(text, statement.range->first));
    PLUMB_RETURN_IF_ERROR(CheckHeight(text, statement.range->last));
  }
  return statement;
}

absl::StatusOr<Expression> ParseExpression(const SourceText& text) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<Token> tokens, TokenizeFormula(text));
  PLUMB_ASSIGN_OR_RETURN(Expression expression, Parser(text, std::move(tokens)).ParseAlone());
  PLUMB_RETURN_IF_ERROR(CheckHeight(text, expression.root));
  return expression;
}

absl::StatusOr<RangeText> ParseRange(const SourceText& text) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<Token> tokens, TokenizeFormula(text));
  PLUMB_ASSIGN_OR_RETURN(RangeText range, Parser(text, std::move(tokens)).ParseRangeAlone());
  PLUMB_RETURN_IF_ERROR(CheckHeight(text, range.range.first));
  PLUMB_RETURN_IF_ERROR(CheckHeight(text, range.range.last));
  return range;
}

}  // namespace plumb
