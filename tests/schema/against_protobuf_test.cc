// SPDX-License-Identifier: Apache-2.0
// Compares runtime/schema with protobuf's library: both accept or refuse a text, and for an
// accepted text both print the same bytes and have the same locations of fields. oracle.h lists the
// intended differences. A text that shows a difference is reduced before it is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/schema/reader.h"
#include "tests/schema/oracle.h"

namespace plumb {
namespace {

constexpr uint64_t kSeed = 1;

// Returns the smallest text, found by removing pieces, that still shows a difference.
std::string Shrink(Oracle* oracle, const std::string& type, std::string text) {
  size_t before;
  do {
    before = text.size();
    for (size_t piece = std::max<size_t>(text.size() / 2, 1); piece > 0; piece /= 2) {
      for (size_t at = 0; at < text.size();) {
        std::string shorter = text;
        shorter.erase(at, piece);
        if (Difference(oracle, type, shorter).empty()) {
          at += piece;
        } else {
          text = std::move(shorter);
        }
      }
    }
  } while (text.size() < before);
  return text;
}

testing::AssertionResult Agree(Oracle* oracle, const std::string& type, const std::string& text) {
  if (Difference(oracle, type, text).empty()) return testing::AssertionSuccess();
  const std::string small = Shrink(oracle, type, text);
  return testing::AssertionFailure() << type << ":\n"
                                     << small << "\n-- " << Difference(oracle, type, small);
}

std::vector<std::string> ShippedTexts() {
  std::vector<std::string> texts;
  for (const char* folder : {"examples", "plugins", "tests", "bench", "cli"}) {
    const std::filesystem::path top = std::filesystem::path(PLUMB_SOURCE_DIR) / folder;
    for (const auto& file : std::filesystem::recursive_directory_iterator(top)) {
      if (file.path().extension() != ".pbtxt") continue;
      texts.push_back(ReadFile(file.path().string(), 1 << 20).value());
    }
  }
  return texts;
}

TEST(AgainstProtobufTest, ReadsEveryShippedFile) {
  Oracle oracle;
  const std::vector<std::string> texts = ShippedTexts();
  EXPECT_GT(texts.size(), 40u);
  for (const std::string& text : texts) {
    int accepted = 0;
    for (const std::string& type : Oracle::Types()) {
      ASSERT_TRUE(Agree(&oracle, type, text));
      accepted += ReadByPlumb(type, text).accepted;
    }
    EXPECT_GT(accepted, 0) << text;
  }
}

TEST(AgainstProtobufTest, ReadsMessagesPrintedByProtobuf) {
  Oracle oracle;
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 4000; ++i) {
    const std::string& type = Oracle::Types()[static_cast<size_t>(i) % Oracle::Types().size()];
    const auto message = oracle.New(type);
    FillAtRandom(&random, message.get());
    const std::string text = PrintInSomeStyle(&random, *message);
    ASSERT_TRUE(Agree(&oracle, type, text));
    const Reading read = ReadByPlumb(type, text);
    ASSERT_TRUE(read.accepted) << read.error << "\n" << text;
    ASSERT_EQ(read.printed, PrintByProtobuf(*message));
  }
}

TEST(AgainstProtobufTest, ProtobufReadsPrintedMessages) {
  Oracle oracle;
  std::mt19937_64 random(kSeed + 1);
  for (int i = 0; i < 4000; ++i) {
    const std::string& type = Oracle::Types()[static_cast<size_t>(i) % Oracle::Types().size()];
    const auto message = oracle.New(type);
    FillAtRandom(&random, message.get());
    const auto own = NewMessage(type);
    Copy(*message, own.get());
    const std::string text = textproto::PrintText(*own);
    ASSERT_EQ(text, PrintByProtobuf(*message));
    const Reading read = oracle.Read(type, text);
    ASSERT_TRUE(read.accepted) << read.error << "\n" << text;
    ASSERT_EQ(read.printed, text);
  }
}

// Changes the text in one to four places: bytes, tokens of the language, or pieces of the text
// itself.
std::string Mutate(std::mt19937_64* random, std::string text) {
  static const char* const kPieces[] = {"{",
                                        "}",
                                        "<",
                                        ">",
                                        "[",
                                        "]",
                                        ":",
                                        ",",
                                        ";",
                                        "\"",
                                        "'",
                                        "\\",
                                        "#",
                                        "\n",
                                        "\t",
                                        " ",
                                        "-",
                                        ".",
                                        "+",
                                        "e",
                                        "f",
                                        "0x",
                                        "0x1F",
                                        "010",
                                        "08",
                                        "1.5f",
                                        "5f",
                                        "1e5",
                                        "1e",
                                        ".5",
                                        "5.",
                                        "1.2.3",
                                        "0x",
                                        "-1",
                                        "- 1",
                                        "inf",
                                        "-nan",
                                        "Infinity",
                                        "nan",
                                        "inff",
                                        "true",
                                        "True",
                                        "t",
                                        "f",
                                        "False",
                                        "0",
                                        "1",
                                        "2",
                                        "2147483648",
                                        "-2147483648",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "1e400",
                                        "1e-400",
                                        "\"a\" 'b'",
                                        "\"\\x4\"",
                                        "\"\\x\"",
                                        "\"\\400\"",
                                        "\"\\7\"",
                                        "\"\\u00e9\"",
                                        "\"\\uD83D\\uDE00\"",
                                        "\"\\uD83D\"",
                                        "\"\\U0001F600\"",
                                        "\"\\U00110000\"",
                                        "\"\\u12\"",
                                        "\"\\q\"",
                                        "\"\\?\"",
                                        "[1, 2]",
                                        "[]",
                                        "[\"a\", \"b\"]",
                                        "[{}, {}]",
                                        "{}",
                                        "<>",
                                        "name: ",
                                        "block ",
                                        "n_layer: 4",
                                        "seed: 1",
                                        "attention {",
                                        "mlp <",
                                        "bias: ",
                                        "kind: ",
                                        "unknown: 1",
                                        "unknown {",
                                        "[a.b]: 1",
                                        "\v",
                                        "\f",
                                        "\r\n",
                                        "\x7f",
                                        "\x80",
                                        "\xc3\xa9",
                                        "\xef\xbb\xbf"};
  for (uint64_t n = 1 + (*random)() % 4; n > 0; --n) {
    const size_t at = (*random)() % (text.size() + 1);
    switch ((*random)() % 6) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>((*random)());
        break;
      case 1:
        text.erase(at, 1 + (*random)() % 8);
        break;
      case 2:
        text.insert(at, text.substr((*random)() % (text.size() + 1), (*random)() % 40));
        break;
      case 3: {  // replaces a value
        const size_t colon = text.find(": ", at);
        if (colon == std::string::npos) break;
        const size_t end = text.find_first_of(" \n", colon + 2);
        text.replace(colon + 2, end - colon - 2, kPieces[(*random)() % std::size(kPieces)]);
        break;
      }
      default:
        text.insert(at, kPieces[(*random)() % std::size(kPieces)]);
    }
  }
  return text;
}

TEST(AgainstProtobufTest, ReadsMutatedTexts) {
  Oracle oracle;
  std::mt19937_64 random(kSeed + 2);
  std::vector<std::pair<std::string, std::string>> shipped;  // (type, text)
  for (const std::string& text : ShippedTexts()) {
    for (const std::string& type : Oracle::Types()) {
      if (ReadByPlumb(type, text).accepted) shipped.emplace_back(type, text);
    }
  }
  int accepted = 0;
  for (int i = 0; i < 40000; ++i) {
    auto [type, text] = shipped[random() % shipped.size()];
    if (i % 2 == 0) {
      type = Oracle::Types()[random() % Oracle::Types().size()];
      const auto message = oracle.New(type);
      FillAtRandom(&random, message.get());
      text = PrintInSomeStyle(&random, *message);
    }
    text = Mutate(&random, text);
    ASSERT_TRUE(Agree(&oracle, type, text));
    accepted += ReadByPlumb(type, text).accepted;
  }
  EXPECT_GT(accepted, 4000);
}

// These texts are ones that mutations seldom produce.
TEST(AgainstProtobufTest, ReadsEdgeCases) {
  Oracle oracle;
  const std::vector<std::string> numbers = {"0",
                                            "-0",
                                            "00",
                                            "07",
                                            "08",
                                            "0x0",
                                            "0XfF",
                                            "0x",
                                            "1f",
                                            "1F",
                                            "1.f",
                                            "1.e3",
                                            ".5",
                                            ".5.",
                                            "1..2",
                                            ".",
                                            "-.5",
                                            "- 5",
                                            "--5",
                                            "+5",
                                            "1e+5",
                                            "1E-5",
                                            "1e5f",
                                            "1ee5",
                                            "0.0",
                                            "00.5",
                                            "0f",
                                            "0xf",
                                            "inf",
                                            "INF",
                                            "-Inf",
                                            "inff",
                                            "infinity",
                                            "nan",
                                            "-nan",
                                            "nanf",
                                            "1e308",
                                            "1e309",
                                            "-1e309",
                                            "5e-324",
                                            "2e-324",
                                            "1e-400",
                                            "9007199254740993",
                                            "179769313486231580793728971405301199999999999999",
                                            "18446744073709551615",
                                            "18446744073709551616",
                                            "2147483647",
                                            "2147483648",
                                            "-2147483648",
                                            "-2147483649",
                                            "0x7fffffff",
                                            "0x80000000",
                                            "-0x80000000",
                                            "017777777777",
                                            "020000000000",
                                            "01777777777777777777777",
                                            "02000000000000000000000",
                                            "1a",
                                            "1_",
                                            "0b1",
                                            "1 f",
                                            "true",
                                            "t",
                                            "T",
                                            "TRUE",
                                            "ROPE",
                                            "rope",
                                            "\"1\"",
                                            "''",
                                            "{}",
                                            "[1]",
                                            "[]",
                                            "[1,]",
                                            "[,1]",
                                            "[1 2]",
                                            "99",
                                            "-7",
                                            "1.0"};
  for (const std::string& number : numbers) {
    for (const char* field : {"n_layer: ", "rope_theta: ", "kind: ", "bias: ", "name: "}) {
      const std::string scalar = absl::StrCat(field, number);
      for (const std::string& text :
           {scalar, absl::StrCat("positions { ", scalar, " }"), absl::StrCat("mlp <", scalar, ">"),
            absl::StrCat(scalar, ";"), absl::StrCat(scalar, ",,")}) {
        EXPECT_TRUE(Agree(&oracle, "Model", text));
      }
    }
    EXPECT_TRUE(Agree(&oracle, "Study", absl::StrCat("seed: ", number)));
    EXPECT_TRUE(Agree(&oracle, "Study", absl::StrCat("seed: [1, ", number, "] seed: 2")));
    EXPECT_TRUE(Agree(&oracle, "Study", absl::StrCat("seed: [", number, "]")));
  }
  for (const int levels : {1, 2, 49, 50, 51, 60}) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += "unknown {";
    EXPECT_TRUE(
        Agree(&oracle, "Model", absl::StrCat(text, std::string(static_cast<size_t>(levels), '}'))));
  }
  for (const char* text : {"",
                           " ",
                           "#",
                           "# only\n#comments",
                           "n_layer#c\n:#c\n4",
                           "n_layer\t:\t4\tn_head: 2",
                           "\t\tn_layer: 4\n \t n_head: 3",
                           "n_layer: 1 n_layer: 1",
                           "n_layer: 0 n_layer: 1",
                           "n_kv_head: 0 n_kv_head: 0",
                           "mlp {} mlp {}",
                           "mlp { } ; attention: { }, positions: <>",
                           "block { sublayer { attention {} mlp {} } }",
                           "block { sublayer { mlp {} mlp {} } }",
                           "block { sublayer { attention {} attention {} } }",
                           "norm { attr { number: 0 flag: false } }",
                           "norm { attr { flag: false } }",
                           "import: \"a\" 'b' import: 'c'",
                           "import: ['a' \"b\", 'c']",
                           "norm: [{name: 'a'}, <name: 'b'>] norm { name: 'c' }",
                           "norm [{}]",
                           "norm []",
                           "norm: []",
                           "mlp: [{}]",
                           "mlp { > ",
                           "mlp < } ",
                           "}",
                           "n_layer",
                           "n_layer:",
                           ":",
                           "n_layer 4",
                           "3: 4",
                           "N_LAYER: 4",
                           "[x.y]: 3",
                           "[type.googleapis.com/plumb.v1.Model] {}",
                           "name: \"a\nb\"",
                           "name: \"\t\x01\x7f\"",
                           "name: \"\\",
                           "name: 'a\" \"b'",
                           "name: \"\\\"",
                           "name: \"\\'\"",
                           "name: \"\\a\\b\\f\\n\\r\\t\\v\\\\\\?\\'\\\"\"",
                           "name: \"\\08\\008\\0008\"",
                           "name: \"\\x4g\\x414\"",
                           "name: \"\\u0041\\U00000041\\u00e9\"",
                           "name: \"\\U0010FFFF\"",
                           "name: \"\\U00200000\"",
                           "name: \"\\uD800\\u0041\"",
                           "name: \"\\uDC00\"",
                           "name: \"\\uD83D\\uDE00\"",
                           "name: \"\\U0000D83D\\uDE00\"",
                           "name: \"\\uD83D\\U0000DE00\"",
                           "name: \"\\xc3\\xa9\"",
                           "name: \"\\377\"",
                           "name: \"\\777\"",
                           "name: \xc3\xa9",
                           "\xef\xbb\xbfn_layer: 1",
                           "name: \"\xef\xbb\xbf\"",
                           "learned: 4",
                           "block { each: 'x' }",
                           "positions { kind: 1 }",
                           "positions { kind: 17 kind: 2 }",
                           "positions { kind: -1 }",
                           "positions { kind: 0 kind: ROPE }",
                           "positions { kind: ROPE.5 }",
                           "n_layer: 1.5.",
                           "/ * c * /",
                           "n_layer: 1 // c",
                           "n_layer = 4",
                           "n_layer: 4; ; n_head: 2"}) {
    for (const std::string& type : Oracle::Types()) EXPECT_TRUE(Agree(&oracle, type, text));
  }
  EXPECT_TRUE(Agree(&oracle, "Model", std::string("name: \"a\0b\"", 12)));
  EXPECT_TRUE(Agree(&oracle, "Model", std::string("# a\0b\nn_layer: 1", 16)));
  EXPECT_TRUE(Agree(&oracle, "Model", std::string("n_layer: 1\0", 11)));
}

}  // namespace
}  // namespace plumb
