// The text of one statement: what parses, prints to what parses the same.
#include "runtime/base/check.h"
#include "runtime/spec/formula.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

PLUMB_FUZZER(formula) {
  Text text;
  text.value = std::string(AsText(data, size));
  if (const auto statement = ParseStatement(text, "each"); statement.ok()) {
    Text printed;
    printed.value = statement->ToString();
    const auto again = ParseStatement(printed, "each");
    PLUMB_CHECK(again.ok() && again->ToString() == printed.value,
                "a statement does not read itself");
  } else {
    PLUMB_CHECK(!statement.status().message().empty(), "an error without words");
  }
  if (const auto expression = ParseExpression(text); expression.ok()) {
    Text printed;
    printed.value = expression->root.ToString();
    const auto again = ParseExpression(printed);
    PLUMB_CHECK(again.ok() && again->root.ToString() == printed.value,
                "an expression does not read itself");
  }
}

}  // namespace
}  // namespace plumb
