// SPDX-License-Identifier: Apache-2.0
// Compares runtime/schema with protobuf's library: both accept or refuse a text, and for an
// accepted text both print the same bytes and have the same locations of fields. oracle.h lists the
// intended differences. A text that shows a difference is reduced before it is printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
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

// Returns one of the lists of edges.json: "pieces" of texts for mutations, "numbers" and the like,
// which follow the name of a field, or whole "texts".
std::vector<std::string> Edges(const char* list) {
  const absl::StatusOr<std::string> text = ReadFile(PLUMB_SOURCE_DIR "/tests/schema/edges.json");
  EXPECT_TRUE(text.ok()) << text.status();
  return nlohmann::json::parse(*text).at(list);
}

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
  static const std::vector<std::string> pieces = Edges("pieces");
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
        text.replace(colon + 2, end - colon - 2, pieces[(*random)() % pieces.size()]);
        break;
      }
      default:
        text.insert(at, pieces[(*random)() % pieces.size()]);
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
  for (const std::string& number : Edges("numbers")) {
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
  for (const std::string& text : Edges("texts")) {
    for (const std::string& type : Oracle::Types()) EXPECT_TRUE(Agree(&oracle, type, text));
  }
  EXPECT_TRUE(Agree(&oracle, "Model", std::string("name: \"a\0b\"", 12)));
  EXPECT_TRUE(Agree(&oracle, "Model", std::string("# a\0b\nn_layer: 1", 16)));
  EXPECT_TRUE(Agree(&oracle, "Model", std::string("n_layer: 1\0", 11)));
}

}  // namespace
}  // namespace plumb
