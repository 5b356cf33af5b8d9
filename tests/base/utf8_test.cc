// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/utf8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Utf8Test, EveryCodePointRoundTrips) {
  for (uint32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(c, &text);
    size_t offset = 0;
    const absl::optional<uint32_t> read = NextCodePoint(text, &offset);
    ASSERT_TRUE(read.has_value()) << c;
    ASSERT_EQ(*read, c);
    ASSERT_EQ(offset, text.size());
  }
}

TEST(Utf8Test, RefusesSequencesThatRfc3629Forbids) {
  for (const std::string& bad : {
           std::string("\x80"),              // continuation without a lead
           std::string("\xc3"),              // truncated
           std::string("\xe2\x82"),          //
           std::string("\xf0\x9f\x98"),      //
           std::string("\xc0\x80"),          // overlong
           std::string("\xe0\x80\x80"),      //
           std::string("\xf0\x80\x80\x80"),  //
           std::string("\xed\xa0\x80"),      // surrogate
           std::string("\xf4\x90\x80\x80"),  // above U+10FFFF
           std::string("\xff"),              //
           std::string("\xc3("),             // a lead without its continuation
       }) {
    EXPECT_EQ(FindInvalidUtf8("ab" + bad), absl::optional<size_t>(2)) << bad.size();
  }
}

TEST(Utf8Test, FindsIncompleteCharacters) {
  for (const std::string character : {"é", "中", "😀"}) {
    for (size_t n = 0; n <= character.size(); ++n) {
      const size_t expected = n == character.size() ? 0 : n;
      EXPECT_EQ(IncompleteUtf8End(character.substr(0, n)), expected);
      EXPECT_EQ(IncompleteUtf8End("é" + character.substr(0, n)), expected);
    }
  }
  // No further bytes can complete these to characters.
  for (const char* const bad : {"\x80", "\xc0", "\xf5", "\xff", "\xc3(", "\xe2\x82\x82\x82"}) {
    EXPECT_EQ(IncompleteUtf8End(bad), 0u);
  }
}

TEST(Utf8Test, ErrorsSayLineAndByte) {
  EXPECT_TRUE(CheckUtf8("h\u00e9llo\n").ok());
  EXPECT_EQ(CheckUtf8("ab\ncd\xe9z").message(), "line 2, byte 5 (0xe9) is not valid UTF-8");
}

TEST(Utf8Test, ColumnsCountCharacters) {
  const std::string text = "ab\n\u00e9\u4e2dx";
  const TextPlace place = GetPlace(text, text.find('x'));
  EXPECT_EQ(place.line, 2);
  EXPECT_EQ(place.column, 3);
}

TEST(Utf8Test, EscapesInvisibleCharacters) {
  EXPECT_EQ(DisplayCharacter('a'), "a");
  EXPECT_EQ(DisplayCharacter('\n'), "\\n");
  EXPECT_EQ(DisplayCharacter(0x1b), "\\u{1b}");
  EXPECT_EQ(DisplayCharacter(0x202E), "\\u{202e}");
  EXPECT_EQ(DisplayCharacter(0xE9), "\u00e9");
  EXPECT_EQ(QuoteName(std::string(1000, 'x')).size(), 125u);
}

TEST(Utf8Test, ShortensQuotations) {
  EXPECT_EQ(Excerpt("a\x1b"), "a\\u{1b}");
  EXPECT_EQ(Excerpt(std::string(60, 'x')), std::string(60, 'x'));
  EXPECT_EQ(Excerpt(std::string(61, 'x')), std::string(60, 'x') + "...");
  // The text is cut between characters, not inside one.
  EXPECT_EQ(Excerpt(std::string(59, 'x') + "\u00e9\u00e9"), std::string(59, 'x') + "...");
  EXPECT_EQ(ShortMessage("unknown \"x\""), "unknown \"x\"");
  const std::string cut = ShortMessage("unknown \"" + std::string(1 << 20, 'x') + "\"; known: y");
  EXPECT_THAT(cut, AllOf(StartsWith("unknown \"xxx"), HasSubstr("x... (1045596 bytes) ...x"),
                         EndsWith("x\"; known: y")));
  EXPECT_LT(cut.size(), 4000u);
}

TEST(Utf8Test, XmlTextHasNoMarkup) {
  EXPECT_EQ(XmlText("<a b=\"c\">&'\x1b</a>"),
            "&lt;a b=&quot;c&quot;&gt;&amp;&#39;\\u{1b}&lt;/a&gt;");
}

TEST(Utf8Test, PrintableTextEscapesControlCharacters) {
  EXPECT_EQ(PrintableText("h\u00e9llo\n\tw\u00f6rld \U0001f600"),
            "h\u00e9llo\n\tw\u00f6rld \U0001f600");
  EXPECT_EQ(PrintableText("\x1b[31m\r\a\x7f"), "\\u{1b}[31m\\r\\u{7}\\u{7f}");
  EXPECT_EQ(PrintableText("\xc2\x9b"
                          "31m"),
            "\\u{9b}31m");  // CSI as one character
  EXPECT_EQ(PrintableText("\u202egpj.exe"), "\\u{202e}gpj.exe");
  EXPECT_EQ(PrintableText("a\xff\x9b\xc3"), "a\\xff\\x9b\\xc3");
  EXPECT_EQ(PrintableText(absl::string_view("\0", 1)), "\\u{0}");
}

TEST(Utf8Test, PrintableJsonStaysTheSameValue) {
  EXPECT_EQ(PrintableJson("{\"a\u00e9\": \"\u009b\x7f\u2066\"}\n"),
            "{\"a\u00e9\": \"\\u009b\\u007f\\u2066\"}\n");
  EXPECT_EQ(PrintableJson("\"\xff\""), "\"\ufffd\"");
}

}  // namespace
}  // namespace plumb
