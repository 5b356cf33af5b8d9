// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/jsonl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

std::string JsonlError(absl::string_view content) {
  const auto parsed = ParseJsonl(content, "f.jsonl");
  EXPECT_FALSE(parsed.ok()) << content;
  return std::string(parsed.status().message());
}

TEST(JsonlTest, LinesHaveAPromptOrAText) {
  const auto parsed = ParseJsonl(
      "{\"prompt\": \"a\\n\", \"completion\": \"\\u00e9\\ud83d\\ude00\"}\r\n"
      " \n"
      "  {\"text\": \"b\"}\n"
      "{\"completion\": \" c\", \"prompt\": \"\"}",
      "f.jsonl");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->texts, ElementsAre("a\n", "\xc3\xa9\xf0\x9f\x98\x80", "", "b", "", " c"));
  ASSERT_EQ(parsed->places.size(), 6u);
  EXPECT_EQ(parsed->places[0], 1u);
  EXPECT_EQ(parsed->places[1], 18u);
  EXPECT_TRUE(ParseJsonl(" \n\n", "f.jsonl")->texts.empty());
}

TEST(JsonlTest, OtherLinesAreErrorsWithTheirPlace) {
  const std::string good = "{\"text\": \"\xc3\xa9\"}\n";
  const std::string forms =
      "a line is {\"prompt\": \"..\", \"completion\": \"..\"} or {\"text\": \"..\"}";
  EXPECT_EQ(JsonlError(good + "{\"prompt\": \"a\", \"completions\": \"b\"}"),
            "f.jsonl:2:17: unknown key \"completions\"; did you mean \"completion\"?; " + forms);
  EXPECT_EQ(JsonlError("{\"text\": \"id\", \"id\" : 3}"),
            "f.jsonl:1:16: unknown key \"id\"; " + forms);
  EXPECT_EQ(JsonlError(good + "{\"prompt\": \"a\", \"completion\": [\"b\"]}"),
            "f.jsonl:2:17: \"completion\" must be a string, is array");
  EXPECT_EQ(JsonlError("{\"text\": null}"), "f.jsonl:1:2: \"text\" must be a string, is null");
  EXPECT_EQ(JsonlError("{\"prompt\": \"a\"}"),
            "f.jsonl:1:1: keys are missing, or too many; " + forms);
  EXPECT_EQ(JsonlError("{\"completion\": \"a\"}"),
            "f.jsonl:1:1: keys are missing, or too many; " + forms);
  EXPECT_EQ(JsonlError("{}"), "f.jsonl:1:1: keys are missing, or too many; " + forms);
  EXPECT_EQ(JsonlError("{\"text\": \"a\", \"prompt\": \"b\"}"),
            "f.jsonl:1:1: keys are missing, or too many; " + forms);
  EXPECT_EQ(JsonlError(good + "[1]"), "f.jsonl:2:1: " + forms + ", not array");
  EXPECT_EQ(JsonlError(good + "{\"prompt\": \"a\", \"completion\": \"\"}"),
            "f.jsonl:2:17: \"completion\" is empty; drop the line, or write what to learn");
  EXPECT_THAT(JsonlError("{\"id\": 1, \"messages\": [{\"role\": \"user\"}]}"),
              StartsWith("f.jsonl:1:11: \"messages\" need the chat template of a model"));
}

TEST(JsonlTest, TextThatIsNotJsonIsAnErrorWithItsPlace) {
  // Columns count characters: the second line has one of two bytes before the error.
  EXPECT_THAT(JsonlError("\n{\"text\": \"\xc3\xa9\" x}"),
              StartsWith("f.jsonl:2:14: syntax error while parsing object"));
  EXPECT_THAT(JsonlError("{\"text\": \"a"), StartsWith("f.jsonl:1:12: syntax error"));
  EXPECT_THAT(JsonlError("{\"text\": \"a\"} {\"text\": \"b\"}"),
              StartsWith("f.jsonl:1:15: syntax"));
  EXPECT_THAT(JsonlError("{\"text\": \"\\ud800\"}"), StartsWith("f.jsonl:1:17: syntax error"));
  EXPECT_THAT(JsonlError("{\"text\": \"\\q\"}"), StartsWith("f.jsonl:1:12: syntax error"));
  EXPECT_THAT(JsonlError("{\"text\": \"a\"}\n{\"text\": \"b\xe9\"}"),
              StartsWith("f.jsonl:2:12: byte 0xe9 is not valid UTF-8; convert the file"));
  EXPECT_THAT(JsonlError("{\"text\": \"a\", \"text\": \"b\"}"),
              StartsWith("f.jsonl:1:1: the name \"text\" stands twice"));
  EXPECT_THAT(JsonlError(std::string(100000, '[')), StartsWith("f.jsonl:1:1: values are nested"));
}

}  // namespace
}  // namespace plumb
