// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/stop_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace plumb {
namespace {

using testing::HasSubstr;

StopTexts Made(const std::vector<std::string>& texts) { return StopTexts::Create(texts).value(); }

// Returns the text that is shown if `text` arrives in pieces of `piece` bytes.
std::string Shown(const std::vector<std::string>& stops, const std::string& text, size_t piece) {
  StopTexts made = Made(stops);
  std::string shown;
  for (size_t at = 0; at < text.size() && !made.stopped(); at += piece) {
    shown += made.Add(text.substr(at, piece));
  }
  return made.stopped() ? shown : shown + made.Rest();
}

TEST(StopTextsTest, EndsBeforeAStopTextInAnyPieces) {
  for (const size_t piece : {1u, 2u, 3u, 5u, 100u}) {
    EXPECT_EQ(Shown({"\nUser:"}, "fine\nUse\nUser: more", piece), "fine\nUse") << piece;
    EXPECT_EQ(Shown({"aab"}, "aaaaab", piece), "aaa") << piece;
    EXPECT_EQ(Shown({"abcx"}, "abcabcabc", piece), "abcabcabc") << piece;  // never complete
    // "bc" completes before "abcd" does. If two stop texts end together, the longer one counts.
    EXPECT_EQ(Shown({"abcd", "bc"}, "xabcd", piece), "xa") << piece;
    EXPECT_EQ(Shown({"c", "abc"}, "xabcd", piece), "x") << piece;
    EXPECT_EQ(Shown({"\xe2\x82\xac"}, "5 \xe2\x82\xac", piece), "5 ") << piece;
  }
}

TEST(StopTextsTest, HoldsBackPrefixesOfStopTexts) {
  StopTexts stops = Made({"END", "\n\n"});
  EXPECT_EQ(stops.Add("one E"), "one ");
  EXPECT_EQ(stops.Add("N"), "");
  EXPECT_EQ(stops.Add("Two\n"), "ENTwo");
  EXPECT_FALSE(stops.stopped());
  EXPECT_EQ(stops.Add("\nrest"), "");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.Rest(), "");
  stops.Restart();
  EXPECT_EQ(stops.Add("\nE"), "\n");
  EXPECT_EQ(stops.Rest(), "E");
}

TEST(StopTextsTest, SlowSearchOfRandomTextsAgrees) {
  std::mt19937 random(1);
  const auto text_of = [&](size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::vector<std::string> stops = {text_of(1 + random() % 6), text_of(1 + random() % 6)};
    const std::string text = text_of(random() % 20);
    std::string expected = text;
    for (size_t end = 1, done = 0; end <= text.size() && done == 0; ++end) {
      for (const std::string& stop : stops) {
        if (stop.size() > end || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
        done = 1;
        if (end - stop.size() < expected.size()) expected = text.substr(0, end - stop.size());
      }
    }
    ASSERT_EQ(Shown(stops, text, 1 + random() % 4), expected) << stops[0] << " " << stops[1];
  }
}

TEST(StopTextsTest, EmptyOrDamagedStopTextsAreErrors) {
  EXPECT_THAT(StopTexts::Create({"a", ""}).status().message(), HasSubstr("empty"));
  EXPECT_FALSE(StopTexts::Create({"\xff"}).ok());
  EXPECT_EQ(StopTexts().Add("all"), "all");
}

}  // namespace
}  // namespace plumb
