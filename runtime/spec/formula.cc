#include "runtime/spec/formula.h"

#include <cmath>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// A formula is a line that a person wrote; longer or deeper text is not one, and recursion must
// end.
constexpr size_t kMaxLength = 2000;
// A level takes up to 6 KiB of stack; the command line makes sure of 1 MiB.
constexpr int kMaxDepth = 100;

struct Token {
  enum class Kind { kEnd, kNumber, kName, kSymbol } kind = Kind::kEnd;
  std::string text;
  double number = 0;
  size_t offset = 0;
};

// The character at `i`, whole where it is UTF-8 and by its number where it cannot be shown.
std::string ShowCharacter(const std::string& s, size_t i) {
  const unsigned char first = static_cast<unsigned char>(s[i]);
  if (absl::ascii_isprint(first)) return absl::StrCat("\"", s.substr(i, 1), "\"");
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  bool whole = length > 0 && first < 0xf5 && i + length <= s.size();
  for (size_t k = 1; whole && k < length; ++k) {
    whole = (static_cast<unsigned char>(s[i + k]) & 0xc0) == 0x80;
  }
  if (whole) return absl::StrCat("\"", s.substr(i, length), "\"");
  return absl::StrFormat("the byte 0x%02x", first);
}

absl::StatusOr<std::vector<Token>> Tokenize(const Text& source) {
  const std::string& s = source.value;
  if (s.size() > kMaxLength) {
    return ErrorAt(source.place, absl::StrCat("a formula of ", s.size(), " characters; at most ",
                                              kMaxLength, " are read"));
  }
  const auto at = [&s](size_t i) { return i < s.size() ? s[i] : '\0'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_name = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  std::vector<Token> tokens;
  for (size_t i = 0; i < s.size();) {
    Token token;
    token.offset = i;
    if (absl::ascii_isspace(static_cast<unsigned char>(s[i]))) {
      ++i;
      continue;
    }
    if (is_digit(s[i]) || (s[i] == '.' && is_digit(at(i + 1)))) {
      size_t j = i;
      while (is_digit(at(j)) || at(j) == '.') ++j;
      if (at(j) == 'e' || at(j) == 'E') {
        size_t k = j + 1;
        if (at(k) == '+' || at(k) == '-') ++k;
        if (is_digit(at(k))) {
          while (is_digit(at(k))) ++k;
          j = k;
        }
      }
      token.kind = Token::Kind::kNumber;
      token.text = s.substr(i, j - i);
      if (!absl::SimpleAtod(token.text, &token.number)) {
        return ErrorInText(source, i, absl::StrCat("\"", token.text, "\" is not a number"));
      }
      if (!std::isfinite(token.number)) {
        return ErrorInText(source, i, absl::StrCat("\"", token.text, "\" is too large a number"));
      }
      i = j;
    } else if (is_name(s[i])) {
      size_t j = i;
      while (is_name(at(j))) ++j;
      token.kind = Token::Kind::kName;
      token.text = s.substr(i, j - i);
      i = j;
    } else {
      token.kind = Token::Kind::kSymbol;
      const std::string two = s.substr(i, 2);
      if (two == "**") {
        return ErrorInText(source, i, "\"**\" is not an operator; a power is written ^");
      }
      if (two == "==" || two == "!=" || two == "<=" || two == ">=") {
        token.text = two;
      } else if (std::string("+-*/%^(),=<>").find(s[i]) != std::string::npos) {
        token.text = s.substr(i, 1);
      } else {
        std::string hint;
        if (two == "&&") hint = "; write \"and\"";
        if (two == "||") hint = "; write \"or\"";
        if (two[0] == '!') hint = "; write \"not\"";
        return ErrorInText(source, i,
                           absl::StrCat("a formula cannot hold ", ShowCharacter(s, i), hint));
      }
      i += token.text.size();
    }
    tokens.push_back(std::move(token));
  }
  Token end;
  end.offset = s.size();
  tokens.push_back(end);
  return tokens;
}

class Parser {
 public:
  Parser(const Text& source, std::vector<Token> tokens)
      : source_(source), tokens_(std::move(tokens)) {}

  absl::StatusOr<Statement> ParseStatement(std::string section) {
    Statement statement;
    statement.text = source_;
    statement.section = std::move(section);
    if (Peek().kind != Token::Kind::kName || IsKeyword(Peek().text)) {
      return Error("a statement begins with the name that it sets: \"x = ...\"");
    }
    statement.target = Take().text;
    if (Peek().text != "=") {
      return Error(absl::StrCat("expected \"=\" after \"", statement.target, "\""));
    }
    Take();
    PLUMB_ASSIGN_OR_RETURN(statement.value, ParseSum());
    if (Peek().text == "if") {
      Take();
      PLUMB_ASSIGN_OR_RETURN(Expr condition, ParseOr());
      statement.condition = std::move(condition);
    }
    PLUMB_RETURN_IF_ERROR(ExpectEnd());
    return statement;
  }

  absl::StatusOr<Expression> ParseAlone() {
    Expression expression;
    expression.text = source_;
    PLUMB_ASSIGN_OR_RETURN(expression.root, ParseOr());
    PLUMB_RETURN_IF_ERROR(ExpectEnd());
    return expression;
  }

 private:
  static bool IsComparison(const std::string& t) {
    return t == "==" || t == "!=" || t == "<" || t == "<=" || t == ">" || t == ">=";
  }
  static bool IsKeyword(const std::string& name) {
    return name == "if" || name == "and" || name == "or" || name == "not";
  }

  const Token& Peek() const { return tokens_[next_]; }
  Token Take() {
    Token token = tokens_[next_];
    if (next_ + 1 < tokens_.size()) ++next_;
    return token;
  }
  absl::Status Error(absl::string_view message) const {
    return ErrorInText(source_, Peek().offset, message);
  }
  absl::Status ExpectEnd() const {
    if (Peek().kind == Token::Kind::kEnd) return absl::OkStatus();
    if (Peek().text == ")") return Error("\")\" without its \"(\"");
    if (Peek().text == "=") return Error("a second \"=\"; a comparison is written ==");
    const bool condition = IsComparison(Peek().text) || Peek().text == "and" || Peek().text == "or";
    return Error(
        absl::StrCat("expected an operator or the end, not \"", Peek().text, "\"",
                     condition ? "; a condition stands after \"if\" or in parentheses" : ""));
  }

  static Expr Binary(Token op, Expr left, Expr right) {
    Expr expr;
    expr.kind = Expr::Kind::kBinary;
    expr.name = std::move(op.text);
    expr.offset = op.offset;
    expr.args.push_back(std::move(left));
    expr.args.push_back(std::move(right));
    return expr;
  }
  static Expr Unary(Token op, Expr operand) {
    Expr expr;
    expr.kind = Expr::Kind::kUnary;
    expr.name = std::move(op.text);
    expr.offset = op.offset;
    expr.args.push_back(std::move(operand));
    return expr;
  }

  // A left-associative chain of the operators for which `is_op` holds.
  template <class IsOp, class ParseOperand>
  absl::StatusOr<Expr> Chain(const IsOp& is_op, const ParseOperand& operand) {
    PLUMB_ASSIGN_OR_RETURN(Expr left, operand());
    while (is_op(Peek().text)) {
      Token op = Take();
      PLUMB_ASSIGN_OR_RETURN(Expr right, operand());
      left = Binary(std::move(op), std::move(left), std::move(right));
    }
    return left;
  }

  absl::StatusOr<Expr> ParseOr() {
    return Chain([](const std::string& t) { return t == "or"; }, [this] { return ParseAnd(); });
  }
  absl::StatusOr<Expr> ParseAnd() {
    return Chain([](const std::string& t) { return t == "and"; }, [this] { return ParseNot(); });
  }
  absl::StatusOr<Expr> ParseNot() {
    if (Peek().text != "not") return ParseComparison();
    Token op = Take();
    PLUMB_RETURN_IF_ERROR(Deeper());
    PLUMB_ASSIGN_OR_RETURN(Expr operand, ParseNot());
    --depth_;
    return Unary(std::move(op), std::move(operand));
  }
  absl::StatusOr<Expr> ParseComparison() {
    PLUMB_ASSIGN_OR_RETURN(Expr left, ParseSum());
    if (!IsComparison(Peek().text)) return left;
    Token op = Take();
    PLUMB_ASSIGN_OR_RETURN(Expr right, ParseSum());
    if (IsComparison(Peek().text)) {
      return Error("comparisons do not chain; write \"a < b and b < c\"");
    }
    return Binary(std::move(op), std::move(left), std::move(right));
  }
  absl::StatusOr<Expr> ParseSum() {
    return Chain([](const std::string& t) { return t == "+" || t == "-"; },
                 [this] { return ParseTerm(); });
  }
  absl::StatusOr<Expr> ParseTerm() {
    return Chain([](const std::string& t) { return t == "*" || t == "/" || t == "%"; },
                 [this] { return ParseFactor(); });
  }
  absl::StatusOr<Expr> ParseFactor() {
    PLUMB_RETURN_IF_ERROR(Deeper());
    absl::StatusOr<Expr> result = ParseFactorInner();
    --depth_;
    return result;
  }
  absl::StatusOr<Expr> ParseFactorInner() {
    if (Peek().text == "-") {
      Token op = Take();
      PLUMB_ASSIGN_OR_RETURN(Expr operand, ParseFactor());
      return Unary(std::move(op), std::move(operand));
    }
    PLUMB_ASSIGN_OR_RETURN(Expr base, ParsePrimary());
    if (Peek().text == "^") {
      Token op = Take();
      PLUMB_ASSIGN_OR_RETURN(Expr exponent, ParseFactor());
      base = Binary(std::move(op), std::move(base), std::move(exponent));
    }
    return base;
  }
  absl::StatusOr<Expr> ParsePrimary() {
    Expr expr;
    expr.offset = Peek().offset;
    if (Peek().kind == Token::Kind::kNumber) {
      expr.number = Take().number;
      return expr;
    }
    if (Peek().text == "(") {
      Take();
      PLUMB_ASSIGN_OR_RETURN(Expr inner, ParseOr());
      if (Peek().text != ")") return Error("expected \")\"");
      Take();
      return inner;
    }
    if (Peek().kind != Token::Kind::kName || IsKeyword(Peek().text)) {
      return Error(Peek().kind == Token::Kind::kEnd
                       ? "the formula ends where a value is expected"
                       : absl::StrCat("expected a value, not \"", Peek().text, "\""));
    }
    expr.kind = Expr::Kind::kName;
    expr.name = Take().text;
    if (Peek().text != "(") return expr;
    Take();
    expr.kind = Expr::Kind::kCall;
    if (Peek().text != ")") {
      for (;;) {
        PLUMB_ASSIGN_OR_RETURN(Expr argument, ParseOr());
        expr.args.push_back(std::move(argument));
        if (Peek().text != ",") break;
        Take();
      }
    }
    if (Peek().text != ")") {
      return Error(absl::StrCat("expected \")\" to close ", expr.name, "(...)"));
    }
    Take();
    return expr;
  }

  absl::Status Deeper() {
    if (++depth_ <= kMaxDepth) return absl::OkStatus();
    return Error("the formula nests too deeply");
  }

  const Text& source_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  int depth_ = 0;
};

// How tightly an expression holds together: by the rule of the grammar that makes it.
enum Precedence { kOr, kAnd, kNot, kComparison, kSum, kTerm, kFactor, kPower, kPrimary };

Precedence PrecedenceOf(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::kBinary:
      if (expr.name == "or") return kOr;
      if (expr.name == "and") return kAnd;
      if (expr.name == "+" || expr.name == "-") return kSum;
      if (expr.name == "*" || expr.name == "/" || expr.name == "%") return kTerm;
      if (expr.name == "^") return kPower;
      return kComparison;
    case Expr::Kind::kUnary:
      return expr.name == "not" ? kNot : kFactor;
    default:
      return kPrimary;
  }
}

// The expression where the grammar takes one of at least `lowest`.
std::string Operand(const Expr& expr, Precedence lowest) {
  const std::string text = expr.ToString();
  return PrecedenceOf(expr) < lowest ? absl::StrCat("(", text, ")") : text;
}

// The shortest text that reads as the same number.
std::string NumberText(double number) {
  for (int digits = 6; digits < 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, number);
    double read = 0;
    if (absl::SimpleAtod(text, &read) && read == number) return text;
  }
  return absl::StrFormat("%.17g", number);
}

}  // namespace

std::string Expr::ToString() const {
  switch (kind) {
    case Kind::kNumber:
      return NumberText(number);
    case Kind::kName:
      return name;
    case Kind::kCall:
      return absl::StrCat(name, "(",
                          absl::StrJoin(args, ", ",
                                        [](std::string* out, const Expr& arg) {
                                          absl::StrAppend(out, arg.ToString());
                                        }),
                          ")");
    case Kind::kUnary:
      return name == "not" ? absl::StrCat("not ", Operand(args[0], kNot))
                           : absl::StrCat("-", Operand(args[0], kFactor));
    case Kind::kBinary: {
      const Precedence mine = PrecedenceOf(*this);
      // Chains go to the left, so a right operand holds tighter. A comparison does not chain, and a
      // power goes to the right.
      Precedence left = mine;
      Precedence right = static_cast<Precedence>(mine + 1);
      if (mine == kComparison) left = kSum;
      if (mine == kPower) {
        left = kPrimary;
        right = kFactor;
      }
      return absl::StrCat(Operand(args[0], left), " ", name, " ", Operand(args[1], right));
    }
  }
  return "";
}

std::string Statement::ToString() const {
  std::string out = absl::StrCat(target, " = ", Operand(value, kSum));
  if (condition.has_value()) absl::StrAppend(&out, " if ", condition->ToString());
  return out;
}

void CollectNames(const Expr& expr, Expr::Kind kind, std::set<std::string>* names) {
  if (expr.kind == kind) names->insert(expr.name);
  for (const Expr& arg : expr.args) CollectNames(arg, kind, names);
}

absl::StatusOr<Statement> ParseStatement(const Text& text, std::string section) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(text));
  return Parser(text, std::move(tokens)).ParseStatement(std::move(section));
}

absl::StatusOr<Expression> ParseExpression(const Text& text) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(text));
  return Parser(text, std::move(tokens)).ParseAlone();
}

}  // namespace plumb
