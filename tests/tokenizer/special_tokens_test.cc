// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "runtime/tokenizer/tokenizer_file.h"

namespace plumb {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

// Directory with a tokenizer of the tokens <pad>, <bos>, <eos>, </s> (the HTML tag, which is not
// special) and <end_of_turn>, which have the ids 0 to 4, like Gemma's, and with further files.
class SpecialTokensTest : public testing::Test {
 protected:
  SpecialTokensTest() {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    Json vocab = Json::object(), added = Json::array();
    const std::pair<const char*, bool> tokens[] = {{"<pad>", true},
                                                   {"<bos>", true},
                                                   {"<eos>", true},
                                                   {"</s>", false},
                                                   {"<end_of_turn>", true}};
    for (const auto& [name, special] : tokens) {
      const size_t id = vocab.size();
      vocab[name] = id;
      added.push_back({{"id", id}, {"content", name}, {"special", special}});
    }
    for (const char* const letter : {"a", "b"}) {
      const size_t id = vocab.size();
      vocab[letter] = id;
    }
    Write("tokenizer.json",
          {{"added_tokens", added},
           {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}});
  }

  void Write(const char* name, const Json& json) { WriteText(name, json.dump()); }
  void WriteText(const char* name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(directory_, name), text).ok());
  }
  SpecialTokens Read() { return ReadTokenizer(directory_).value().special_tokens(); }
  std::string Error() { return std::string(ReadTokenizer(directory_).status().message()); }

  const std::string directory_ = testing::TempDir() + "special_tokens_test";
};

TEST_F(SpecialTokensTest, EndTokensAreGuessedAmongSpecialTokensOnly) {
  EXPECT_THAT(Read().end, ElementsAre(2, 4));
  EXPECT_EQ(Read().end_source, "");
}

TEST_F(SpecialTokensTest, FirstFileHasPrecedence) {
  Write("special_tokens_map.json", {{"eos_token", "<pad>"}, {"bos_token", "<bos>"}});
  EXPECT_THAT(Read().end, ElementsAre(0));
  EXPECT_EQ(Read().begin, 1);
  Write("tokenizer_config.json", {{"eos_token", {{"content", "</s>"}, {"lstrip", false}}},
                                  {"bos_token", nullptr},
                                  {"pad_token", "<pad>"}});
  EXPECT_THAT(Read().end, ElementsAre(3));
  EXPECT_EQ(Read().begin, 1);
  EXPECT_EQ(Read().pad, 0);
  Write("config.json", {{"eos_token_id", 2}});
  EXPECT_THAT(Read().end, ElementsAre(2));
  Write("generation_config.json", {{"eos_token_id", {4, 2}}, {"pad_token_id", 2}});
  EXPECT_THAT(Read().end, ElementsAre(4, 2));
  EXPECT_EQ(Read().end_source, "generation_config.json");
  EXPECT_EQ(Read().pad, 2);
  EXPECT_TRUE(Read().Ends(2) && Read().Ends(4) && !Read().Ends(3));
}

TEST_F(SpecialTokensTest, IgnoresUnknownTokens) {
  Write("generation_config.json", {{"eos_token_id", nullptr}});
  Write("config.json", {{"eos_token_id", {50256, -1}}});
  Write("tokenizer_config.json", {{"eos_token", "<|im_end|>"}});
  EXPECT_THAT(Read().end, ElementsAre(2, 4));
  // Without a tokenizer no token is guessed, and only ids are used.
  EXPECT_THAT(ReadSpecialTokens(directory_, nullptr, nullptr, 7).value().end, IsEmpty());
  EXPECT_THAT(ReadSpecialTokens(directory_, nullptr, nullptr, 50257).value().end,
              ElementsAre(50256));
}

TEST_F(SpecialTokensTest, OtherTypesAreErrorsWithTheFile) {
  for (const char* const value : {"\"two\"", "[2, \"four\"]", "2.5", "true", "{}"}) {
    WriteText("config.json", std::string("{\"eos_token_id\": ") + value + "}");
    EXPECT_THAT(Error(), HasSubstr("config.json: eos_token_id is ")) << value;
  }
  Write("config.json", Json::object());
  Write("tokenizer_config.json", {{"bos_token", 1}});
  EXPECT_THAT(Error(), HasSubstr("tokenizer_config.json: bos_token is 1, neither the name"));
  WriteText("tokenizer_config.json", "[]");
  EXPECT_THAT(Error(), HasSubstr("tokenizer_config.json"));
  WriteText("generation_config.json", "{");
  EXPECT_THAT(Error(), HasSubstr("generation_config.json: not valid JSON"));
}

TEST_F(SpecialTokensTest, IdsRoundTrip) {
  SpecialTokens tokens;
  tokens.end = {4, 2};
  tokens.pad = 0;
  const std::string json = GenerationConfigJson(tokens);
  EXPECT_EQ(Json::parse(json),
            Json({{"bos_token_id", nullptr}, {"eos_token_id", {4, 2}}, {"pad_token_id", 0}}));
  EXPECT_EQ(SpecialTokensOfJson(json, "x", 7).value(), tokens);
  tokens.end = {2};
  EXPECT_EQ(Json::parse(GenerationConfigJson(tokens))["eos_token_id"], 2);
}

TEST_F(SpecialTokensTest, TokensAreFoundByName) {
  const Tokenizer tokenizer = ReadTokenizer(directory_).value();
  EXPECT_EQ(tokenizer.FindNamed("<end_of_turn>").value(), 4);
  EXPECT_EQ(tokenizer.FindNamed("b").value(), 6);
  EXPECT_THAT(tokenizer.FindNamed("<end_of_turm>").status().message(),
              HasSubstr("did you mean \"<end_of_turn>\"?"));
  EXPECT_FALSE(tokenizer.FindNamed("").ok());
  const absl::string_view text[] = {"a\n"};
  const Tokenizer letters = Tokenizer::Characters(text, true).value();
  EXPECT_EQ(letters.FindNamed("\n").value(), 0);
  EXPECT_FALSE(letters.FindNamed("b").ok());
  EXPECT_EQ(letters.begin_token(), 2);
  EXPECT_EQ(letters.end_token(), 2);
}

}  // namespace
}  // namespace plumb
