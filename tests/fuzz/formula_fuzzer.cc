// SPDX-License-Identifier: Apache-2.0
// Fuzzes the text of one statement or expression: a parsed text is printed, and its print parses to
// the same.
#include <string>

#include "runtime/base/check.h"
#include "runtime/spec/formula.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

// Maximum length of the input. A print may have more spaces than its text, and longer texts are
// refused.
constexpr size_t kMaxRead = 2000;

std::string Print(const Statement& statement) { return statement.ToString(); }
std::string Print(const Expression& expression) { return expression.root.ToString(); }

template <class Parse>
void CheckReadsItself(const SourceText& text, const Parse& parse) {
  const auto parsed = parse(text);
  if (!parsed.ok()) {
    PLUMB_CHECK(!parsed.status().message().empty(), "an error without words");
    return;
  }
  SourceText printed;
  printed.value = Print(*parsed);
  if (printed.value.size() > kMaxRead) return;
  const auto again = parse(printed);
  PLUMB_CHECK(again.ok() && Print(*again) == printed.value, "a formula does not read itself");
}

PLUMB_FUZZER(formula) {
  SourceText text;
  text.value = std::string(AsText(data, size));
  CheckReadsItself(text, [](const SourceText& t) { return ParseStatement(t, "each"); });
  CheckReadsItself(text, [](const SourceText& t) { return ParseExpression(t); });
}

}  // namespace
}  // namespace plumb
