// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/strict_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace plumb {
namespace {

std::string GetError(absl::string_view text, int max_depth = 4) {
  return std::string(ParseStrictJson(text, max_depth).status().message());
}

TEST(StrictJsonTest, AgreesWithTheLibraryOnValidText) {
  const std::string text =
      R"({"b":[1,-2,3.5,1e300,true,null,"\u00e9\n"],"a":{"x":[],"y":{}},"c":18446744073709551615})";
  const absl::StatusOr<nlohmann::json> value = ParseStrictJson(text, 4);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, nlohmann::json::parse(text));
}

TEST(StrictJsonTest, RefusesAmbiguousAndBrokenText) {
  EXPECT_EQ(GetError(R"({"a":1,"b":2,"a":3})"), "the name \"a\" stands twice");
  EXPECT_EQ(GetError(R"({"o":{"a":1,"a":1}})"), "the name \"a\" stands twice");
  EXPECT_EQ(GetError(R"({"a":{"b":1},"c":{"b":1}})"), "");
  EXPECT_EQ(GetError("[[[[1]]]]"), "");
  EXPECT_EQ(GetError("[[[[[1]]]]]"), "values are nested deeper than 4");
  EXPECT_NE(GetError(std::string(1000000, '[')), "");
  EXPECT_EQ(GetError(""), "is empty");
  for (const char* text :
       {"{", "{}x", "[1,]", "nan", "{\"a\":1e999}", "{a:1}", "\"\xff\"", "{} {}"}) {
    EXPECT_NE(GetError(text), "") << text;
  }
  EXPECT_EQ(GetError("[1").find("json.exception"), std::string::npos);
  EXPECT_NE(GetError("[1").find("line 1, column"), std::string::npos);
}

TEST(StrictJsonTest, AnErrorInALongTokenIsShort) {
  EXPECT_LT(GetError("[1e" + std::string(5000000, '9') + "]").size(), 5000u);
  EXPECT_LT(GetError("[\"" + std::string(5000000, 'x')).size(), 5000u);
}

TEST(StrictJsonTest, IntegersMustFitInt64) {
  EXPECT_EQ(AsInt64(nlohmann::json(-5)), absl::optional<int64_t>(-5));
  EXPECT_EQ(AsInt64(nlohmann::json(5u)), absl::optional<int64_t>(5));
  EXPECT_EQ(AsInt64(nlohmann::json(uint64_t{1} << 63)), absl::nullopt);
  EXPECT_EQ(AsInt64(nlohmann::json(5.0)), absl::nullopt);
  EXPECT_EQ(AsInt64(nlohmann::json("5")), absl::nullopt);
}

TEST(StrictJsonTest, QuotesAnyBytes) {
  EXPECT_EQ(QuoteJson("a\"\n"), R"("a\"\n")");
  EXPECT_EQ(QuoteJson("\xff"), "\"\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace plumb
