// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/formula_lexer.h"

#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"

namespace plumb {
namespace {

// Max length of a formula. A person writes formulas in one line; longer text is not a formula.
constexpr size_t kMaxLength = 2000;

// Returns the character at `i` for an error message: quoted if it is valid UTF-8, otherwise as a
// byte number.
std::string ShowCharacter(const std::string& s, size_t i) {
  const unsigned char first = static_cast<unsigned char>(s[i]);
  size_t end = i;
  if (!absl::ascii_iscntrl(first) && NextCodePoint(s, &end).has_value()) {
    return absl::StrCat("\"", s.substr(i, end - i), "\"");
  }
  return absl::StrFormat("the byte 0x%02x", first);
}

// Returns `; write "gamma"` for the character at `i`; "" if nothing is known to replace it.
std::string WriteInstead(const std::string& s, size_t i) {
  constexpr std::pair<const char*, const char*> kSymbols[] = {
      {"&&", "and"}, {"||", "or"}, {"!", "not"},  {":=", "="},  {"←", "="},  {"·", "*"},
      {"×", "*"},    {"⊙", "*"},   {"÷", "/"},    {"−", "-"},   {"≤", "<="}, {"≥", ">="},
      {"≠", "!="},   {"²", "^2"},  {"√", "sqrt"}, {"Σ", "sum"}, {"∑", "sum"}};
  constexpr const char* kGreek[] = {
      "alpha", "beta",   "gamma",   "delta", "epsilon", "zeta",    "eta",  "theta", "iota",
      "kappa", "lambda", "mu",      "nu",    "xi",      "omicron", "pi",   "rho",   "sigma",
      "sigma", "tau",    "upsilon", "phi",   "chi",     "psi",     "omega"};
  const absl::string_view rest = absl::string_view(s).substr(i);
  for (const auto& [symbol, replacement] : kSymbols) {
    if (absl::StartsWith(rest, symbol)) return absl::StrCat("; write \"", replacement, "\"");
  }
  constexpr uint32_t kAlpha = 0x3b1, kCapitalAlpha = 0x391;
  const uint32_t letter = NextCodePoint(s, &i).value_or(0);
  const uint32_t index = letter - (letter >= kAlpha ? kAlpha : kCapitalAlpha);
  if (index >= std::size(kGreek)) return "";
  return absl::StrCat("; write \"", kGreek[index], "\"");
}

}  // namespace

Precedence GetPrecedence(const std::string& op) {
  if (op == "or") return kOr;
  if (op == "and") return kAnd;
  if (op == "+" || op == "-") return kSum;
  if (op == "*" || op == "/" || op == "%") return kTerm;
  if (op == "^") return kPower;
  const bool compares =
      op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=";
  return compares ? kComparison : kPrimary;
}

absl::StatusOr<std::vector<FormulaToken>> TokenizeFormula(const SourceText& source) {
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
  std::vector<FormulaToken> tokens;
  for (size_t i = 0; i < s.size();) {
    FormulaToken token;
    token.offset = i;
    if (absl::ascii_isspace(static_cast<unsigned char>(s[i]))) {
      ++i;
      continue;
    }
    if (is_digit(s[i]) || (s[i] == '.' && is_digit(at(i + 1)))) {
      size_t j = i;
      // "0..n" is a range: its dots are not part of the number.
      while (is_digit(at(j)) || (at(j) == '.' && at(j + 1) != '.')) ++j;
      if (at(j) == 'e' || at(j) == 'E') {
        size_t k = j + 1;
        if (at(k) == '+' || at(k) == '-') ++k;
        if (is_digit(at(k))) {
          while (is_digit(at(k))) ++k;
          j = k;
        }
      }
      token.kind = FormulaToken::Kind::kNumber;
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
      token.kind = FormulaToken::Kind::kName;
      token.text = s.substr(i, j - i);
      i = j;
    } else {
      token.kind = FormulaToken::Kind::kSymbol;
      const std::string two = s.substr(i, 2);
      if (two == "**") {
        return ErrorInText(source, i, "\"**\" is not an operator; a power is written ^");
      }
      if (two == "==" || two == "!=" || two == "<=" || two == ">=" || two == "..") {
        token.text = two;
      } else if (std::string("+-*/%^(),=<>[]").find(s[i]) != std::string::npos) {
        token.text = s.substr(i, 1);
      } else {
        return ErrorInText(
            source, i,
            absl::StrCat("a formula cannot hold ", ShowCharacter(s, i), WriteInstead(s, i)));
      }
      i += token.text.size();
    }
    tokens.push_back(std::move(token));
  }
  FormulaToken end;
  end.offset = s.size();
  tokens.push_back(end);
  return tokens;
}

}  // namespace plumb
