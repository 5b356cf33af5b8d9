// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/split_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer/unicode.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Matches(const std::string& pattern, const std::string& text,
                                 bool interpreted = false) {
  const auto compiled = SplitPattern::Compile(pattern);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  SplitMatcher matcher(*compiled);
  WorkBudget budget(text.size());
  if (interpreted) matcher.UseInterpreter();
  std::vector<std::string> found;
  size_t begin = 0, end = 0;
  for (bool first = true;; first = false) {
    const auto more = matcher.Find(text, first, &budget, &begin, &end);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return found;
    found.push_back(text.substr(begin, end - begin));
  }
}

TEST(SplitPatternTest, SpacesFollowUnicode) {
  // U+180E was a space in old versions of Unicode, and U+001C is one in Python.
  EXPECT_THAT(Matches(R"(\s)", "a\u180e\x1c\u3000"), ElementsAre("\u3000"));
  EXPECT_THAT(Matches(R"([^\S\n]+)", " \n\t\n"), ElementsAre(" ", "\t"));
}

TEST(SplitPatternTest, WordsIncludeMarks) {
  EXPECT_THAT(Matches(R"(\w+)", "e\u0301a_1!b"), ElementsAre("e\u0301a_1", "b"));
  EXPECT_THAT(Matches(R"(\W+)", "a!?b"), ElementsAre("!?"));
}

// U+1C89 has been a letter since Unicode 16.
TEST(SplitPatternTest, NewCharactersHaveCategories) {
  const auto pattern = SplitPattern::Compile(R"(\p{L}+)");
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  SplitMatcher matcher(*pattern);
  for (const std::string text : {"!ab", "!a\u1c89b", "!\u4e00b"}) {
    WorkBudget budget(text.size());
    size_t begin = 0, end = 0;
    EXPECT_EQ(matcher.Find(text, /*first=*/true, &budget, &begin, &end).value(), true);
    EXPECT_EQ(begin, 1u) << text;
    EXPECT_EQ(end, text.size()) << text;
  }
}

TEST(SplitPatternTest, FindsNewCharacters) {
  std::set<uint32_t> all;
  ForEachNewCharacterRange("", [&](uint32_t first, uint32_t last) {
    for (uint32_t c = first; c <= last; ++c) all.insert(c);
  });
  EXPECT_GT(all.size(), 5000u);
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;  // not characters
    std::string text = "a\u00e9";
    AppendUtf8(c, &text);
    ASSERT_EQ(HasNewCharacter(text + "z"), all.count(c) == 1) << std::hex << c;
  }
}

TEST(SplitPatternTest, EmptyMatchesSplitExceptAfterAMatch) {
  EXPECT_THAT(Matches("a*", "\u00e9aa\u00e9a"), ElementsAre("", "aa", "a"));
  EXPECT_THAT(Matches("(?=a)", "bab"), ElementsAre(""));
}

TEST(SplitPatternTest, InterpreterFindsTheSameMatches) {
  const std::string pattern = R"('s| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  const std::string text = "It's  12 \u00e9t\u00e9s,   and\n\n  \U0001F600!";
  EXPECT_EQ(Matches(pattern, text), Matches(pattern, text, /*interpreted=*/true));
}

// Compiled code has a stack of fixed size. Beyond it the interpreter continues.
TEST(SplitPatternTest, FindsMatchesBeyondTheStack) {
  const std::string text(200000, 'a');
  EXPECT_THAT(Matches("(a|b)+", text), ElementsAre(text));
}

TEST(SplitPatternTest, EndlessMatchesAreErrors) {
  const auto pattern = SplitPattern::Compile("(a+)+$");
  ASSERT_TRUE(pattern.ok());
  for (const bool interpreted : {false, true}) {
    SplitMatcher matcher(*pattern);
    if (interpreted) matcher.UseInterpreter();
    size_t begin = 0, end = 0;
    WorkBudget budget(61);
    const auto found = matcher.Find(std::string(60, 'a') + "b", true, &budget, &begin, &end);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kResourceExhausted) << found.status();
  }
}

// PCRE2 counts no step for the characters of a repeated class, whether in a lookaround or not.
// Reading the rest of the text from each start would be 2e10 bytes; the budget is 1.2e8 steps.
TEST(SplitPatternTest, ChargesRereadBytes) {
  const std::string text(200000, 'a');
  for (const char* pattern : {"(?=a*)a", "(?=a*b)a", "a*b|a", "(?!a*b)a", "(?>a*b)|a"}) {
    const auto compiled = SplitPattern::Compile(pattern);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    for (const bool interpreted : {false, true}) {
      SplitMatcher matcher(*compiled);
      if (interpreted) matcher.UseInterpreter();
      WorkBudget budget(text.size());
      size_t begin = 0, end = 0, matches = 0;
      absl::StatusOr<bool> found = true;
      while (found.ok() && *found) {
        found = matcher.Find(text, matches == 0, &budget, &begin, &end);
        ++matches;
      }
      EXPECT_EQ(found.status().code(), absl::StatusCode::kResourceExhausted) << pattern;
      EXPECT_LT(matches, 1000u) << pattern;
    }
  }
}

// A match is that of the whole text wherever the first bytes that are read end.
TEST(SplitPatternTest, MatchesDoNotDependOnTheReadWindow) {
  for (const size_t length : {250u, 254u, 255u, 256u, 257u, 300u, 3000u, 40000u}) {
    const std::string word(length, 'a'), rest = " \u00e9 b";
    for (const bool interpreted : {false, true}) {
      EXPECT_THAT(Matches("a+", word + rest, interpreted), ElementsAre(word));
      EXPECT_THAT(Matches(R"(\s+(?!\S)|\s+)", word + "  b", interpreted), ElementsAre(" ", " "));
      EXPECT_THAT(Matches(R"(\b(?=.b))", word + rest, interpreted), ElementsAre(""));
      EXPECT_THAT(Matches("\u00e9|b$", word + rest, interpreted), ElementsAre("\u00e9", "b"));
      EXPECT_THAT(Matches("(?<=a) ", word + rest, interpreted), ElementsAre(" "));
      EXPECT_THAT(Matches("(?:a|c)+$", word, interpreted), ElementsAre(word));
      EXPECT_THAT(Matches("(?:a|c)+d", word + "d", interpreted), ElementsAre(word + "d"));
      EXPECT_THAT(Matches("$", word, interpreted), ElementsAre(""));
      EXPECT_THAT(Matches("x", word, interpreted), ElementsAre());
    }
  }
}

TEST(SplitPatternTest, ErrorsHaveTheirPlace) {
  EXPECT_THAT(SplitPattern::Compile("a(b").status().message(), HasSubstr("byte 3"));
  EXPECT_THAT(SplitPattern::Compile("[\\W]").status().message(), HasSubstr("not supported"));
  EXPECT_FALSE(SplitPattern::Compile("\\C").ok());
  // Each of these has another meaning in Oniguruma than in PCRE2, or none.
  for (const char* pattern :
       {"(?<=(\\Ka))", "\\Ka", "[a&&b]", "[a[bc]]", "[[:punct:]]", "a(?i)b|c", "(?s:.)", "(?x)a b",
        "(*NO_JIT)a", "(?R)", "\\R", "\\X", "\\G", "\\xff", "\\p{L&}"}) {
    EXPECT_THAT(SplitPattern::Compile(pattern).status().message(), HasSubstr("not supported"))
        << pattern;
  }
}

TEST(SplitPatternTest, LiteralsAreNotExpressions) {
  const auto pattern = SplitPattern::Literal("a.\u00e9(");
  ASSERT_TRUE(pattern.ok());
  SplitMatcher matcher(*pattern);
  size_t begin = 0, end = 0;
  WorkBudget budget(12);
  const auto found = matcher.Find("ax\u00e9(a.\u00e9(", true, &budget, &begin, &end);
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ(begin, 5u);
}

}  // namespace
}  // namespace plumb
