// A let or a learned value that nothing uses is a slip, and an error.

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

std::string UnusedNameError(absl::string_view placement_fields) {
  return ErrorOf(ModelWith(placement_fields));
}

TEST(UnusedNamesTest, ALetThatNothingUsesIsAnErrorAtItsPlace) {
  EXPECT_EQ(UnusedNameError("let: \"a = 2\"\nlet: \"b = 3\" each: \"x = x + a * f(x)\""),
            "m.pbtxt:5:1: placement \"p\": let \"b\" is set and never used\n"
            "  b = 3\n"
            "  ^");
}

TEST(UnusedNamesTest, ALearnedValueThatNothingUsesIsAnErrorAtItsPlace) {
  EXPECT_EQ(UnusedNameError("each: \"x = x + f(x)\"\n  learned { name: \"gate\" init: 1 }"),
            "m.pbtxt:5:3: placement \"p\": learned \"gate\" is declared and never used");
}

TEST(UnusedNamesTest, EveryExpressionUsesTheNamesInIt) {
  // Another let, a condition, a learned value's beginning, init rules, a rule inside.
  EXPECT_EQ(UnusedNameError("let: \"a = 2\" let: \"b = a\" each: \"x = x + b * f(x)\""),
            "no error");
  EXPECT_EQ(UnusedNameError("let: \"a = 2\" each: \"x = x + f(x)\" end: \"x = norm(x) if a > 2\""),
            "no error");
  EXPECT_EQ(UnusedNameError("let: \"a = 2\" learned { name: \"g\" init_expression: \"a\" }"
                            " each: \"x = x + g * f(x)\""),
            "no error");
  EXPECT_EQ(UnusedNameError(
                "let: \"a = 2\" each: \"x = x + f(x)\" init { match: \"*.weight\" scale: \"a\" }"),
            "no error");
  EXPECT_EQ(UnusedNameError("let: \"a = 2\" each: \"x = x + f(x)\""
                            " init { match: \"*.weight\" normal { std: \"a\" } }"),
            "no error");
  EXPECT_EQ(UnusedNameError("let: \"a = 2\" each: \"x = x + f(x)\""
                            " inside { point: \"mlp.hidden\" rule: \"hidden = a * hidden\" }"),
            "no error");
}

TEST(UnusedNamesTest, TheModelMayUseALetOfItsPlacement) {
  const auto error = [](absl::string_view fields, absl::string_view block_fields) {
    return ErrorOf(absl::StrCat(kDims,
                                "placement { name: \"p\" let: \"a = 2\" each: \"x = x + f(x)\" }\n",
                                fields, " block { placement: \"p\" ", block_fields, " }"));
  };
  EXPECT_NE(error("", ""), "no error");
  EXPECT_EQ(error("embedding_scale: \"a\"", ""), "no error");
  EXPECT_EQ(error("init { match: \"*.weight\" scale: \"a\" }", ""), "no error");
  for (const char* field : {"scale", "score_cap", "window"}) {
    EXPECT_EQ(error(absl::StrCat("attention { ", field, ": \"a\" }"), ""), "no error");
  }
  for (const char* field :
       {"rope_base: \"a\"", "rope_dims: \"a\"", "rope_scaling { linear: \"a\" }"}) {
    EXPECT_EQ(error(absl::StrCat("positions { kind: ROPE ", field, " }"), ""), "no error");
  }
  EXPECT_EQ(error("positions { kind: ALIBI alibi_scale: \"a\" }", ""), "no error");
  EXPECT_EQ(error("", "inside { point: \"mlp.hidden\" rule: \"hidden = a * hidden\" }"),
            "no error");
}

TEST(UnusedNamesTest, WhatIsInheritedNeedsNoUse) {
  const std::string base =
      "placement { name: \"base\" let: \"a = 2\" learned { name: \"g\" }"
      " each: \"x = x + a * g * f(x)\" }\n";
  const auto error = [&](absl::string_view own) {
    return ErrorOf(absl::StrCat(kDims, base, "placement { name: \"p\" extends: \"base\" ", own,
                                " }\nblock { placement: \"p\" }"));
  };
  EXPECT_EQ(error("each: \"x = x + f(x)\""), "no error");
  EXPECT_EQ(error("let: \"a = 3\""), "no error");
  EXPECT_EQ(error("let: \"a = 3\" each: \"x = x + f(x)\""),
            "m.pbtxt:3:39: placement \"p\": let \"a\" is set and never used\n"
            "  a = 3\n"
            "  ^");
}

TEST(UnusedNamesTest, AMistakeInAFormulaIsToldFirst) {
  EXPECT_EQ(UnusedNameError("let: \"alpha = 2\" each: \"x = x + alhpa * f(x)\""),
            "m.pbtxt:4:18: placement \"p\", each, attention: unknown name \"alhpa\"; did you mean "
            "\"alpha\"?\n"
            "  x = x + alhpa * f(x)\n"
            "          ^");
}

}  // namespace
}  // namespace plumb
