#include "runtime/data/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/data/batches.h"
#include "runtime/data/data.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string BytesOf(const std::vector<int32_t>& tokens, TokenLayout layout, int64_t vocab_size) {
  std::string bytes = TokenFileHeader(layout, vocab_size, static_cast<int64_t>(tokens.size()));
  AppendTokenBytes(tokens, layout, vocab_size, &bytes);
  return bytes;
}

TEST(TokenFileTest, EveryLayoutComesBack) {
  struct Case {
    TokenLayout layout;
    int64_t vocab_size;
    size_t bytes;
  };
  for (const Case& c :
       {Case{TokenLayout::kUint16, 65536, 6}, Case{TokenLayout::kUint32, 100000, 12},
        Case{TokenLayout::kLlmc, 50257, 1030}, Case{TokenLayout::kLlmc, 100000, 1036}}) {
    const std::string bytes = BytesOf({1, 65535, 3}, c.layout, c.vocab_size);
    EXPECT_EQ(bytes.size(), c.bytes);
    const auto file = TokenFile::FromContent(
        bytes, "t.bin", c.layout == TokenLayout::kLlmc ? TokenLayout::kUint16 : c.layout);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->layout(), c.layout);
    std::vector<int32_t> tokens(2);
    file->Read(1, absl::MakeSpan(tokens));
    EXPECT_THAT(tokens, ElementsAre(65535, 3));
    EXPECT_EQ(file->size(), 3);
  }
  EXPECT_FALSE(CheckLayout(TokenLayout::kUint16, 65537).ok());
}

TEST(TokenFileTest, DamageIsAnError) {
  EXPECT_THAT(TokenFile::FromContent("abc", "t.bin", TokenLayout::kUint16).status().message(),
              HasSubstr("t.bin: 3 bytes are no whole number"));
  std::string bytes = BytesOf({1, 2, 3}, TokenLayout::kLlmc, 300);
  bytes.resize(bytes.size() - 2);
  EXPECT_THAT(TokenFile::FromContent(bytes, "t.bin", TokenLayout::kUint16).status().message(),
              HasSubstr("says 3 tokens, and it has room for 2"));
  bytes[4] = 9;
  EXPECT_THAT(TokenFile::FromContent(bytes, "t.bin", TokenLayout::kUint16).status().message(),
              HasSubstr("version 9"));
}

// Windows over the borders of shards, and shards that are held out.
TEST(TokenFileTest, ShardsAreOneText) {
  const std::string directory = JoinPath(testing::TempDir(), "shards");
  ASSERT_TRUE(MakeDirectories(directory).ok());
  const std::string tokenizer = Tokenizer::Bytes(false).ToJson();
  ASSERT_TRUE(WriteFileAtomically(JoinPath(directory, "tokenizer.json"), tokenizer).ok());
  const auto write = [&](const char* name, const std::vector<int32_t>& tokens, TokenLayout layout) {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(directory, name), BytesOf(tokens, layout, 256)).ok());
  };
  write("train_0.bin", {1, 2, 3}, TokenLayout::kUint16);
  write("train_1.bin", {4, 5}, TokenLayout::kLlmc);
  write("val_0.bin", {6, 7, 8}, TokenLayout::kUint16);
  DatasetOptions options;
  options.format = DatasetOptions::Format::kTokens;
  options.tokenizer_path = directory;
  const auto data = Dataset::Load(directory, options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->num_tokens(Split::kTrain), 5);
  std::vector<int32_t> tokens(4);
  data->ReadText(Split::kTrain, 1, absl::MakeSpan(tokens));
  EXPECT_THAT(tokens, ElementsAre(2, 3, 4, 5));
  const auto batches = EvalBatches::Create(&*data, Split::kValidation, {1, 8, 0});
  ASSERT_TRUE(batches.ok()) << batches.status();
  Batch batch = batches->MakeBatch();
  batches->Fill(0, &batch);
  EXPECT_THAT(batch.tokens, ElementsAre(6, 7));
  EXPECT_THAT(batch.targets, ElementsAre(7, 8));
}

}  // namespace
}  // namespace plumb
