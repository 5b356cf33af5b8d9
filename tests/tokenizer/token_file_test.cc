// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/data/batches.h"
#include "runtime/data/data.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string GetBytes(const std::vector<int32_t>& tokens, TokenLayout layout, int64_t vocab_size) {
  std::string bytes = TokenFileHeader(layout, vocab_size, static_cast<int64_t>(tokens.size()));
  AppendTokenBytes(tokens, layout, vocab_size, &bytes);
  return bytes;
}

TEST(TokenFileTest, EveryLayoutRoundTrips) {
  struct Case {
    TokenLayout layout;
    int64_t vocab_size;
    size_t bytes;
  };
  for (const Case& c :
       {Case{TokenLayout::kUint16, 65536, 6}, Case{TokenLayout::kUint32, 100000, 12},
        Case{TokenLayout::kLlmc, 50257, 1030}, Case{TokenLayout::kLlmc, 100000, 1036}}) {
    const std::string bytes = GetBytes({1, 65535, 3}, c.layout, c.vocab_size);
    EXPECT_EQ(bytes.size(), c.bytes);
    const auto file = TokenFile::FromContent(
        bytes, "t.bin", c.layout == TokenLayout::kLlmc ? TokenLayout::kUint16 : c.layout);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->layout(), c.layout);
    std::vector<int32_t> tokens(2);
    ASSERT_TRUE(file->Read(1, absl::MakeSpan(tokens)).ok());
    EXPECT_THAT(tokens, ElementsAre(65535, 3));
    EXPECT_EQ(file->size(), 3);
  }
  EXPECT_FALSE(CheckLayout(TokenLayout::kUint16, 65537).ok());
}

TEST(TokenFileTest, DamageIsAnError) {
  EXPECT_THAT(TokenFile::FromContent("abc", "t.bin", TokenLayout::kUint16).status().message(),
              HasSubstr("t.bin: its 3 bytes are not a whole number"));
  std::string bytes = GetBytes({1, 2, 3}, TokenLayout::kLlmc, 300);
  bytes.resize(bytes.size() - 2);
  EXPECT_THAT(TokenFile::FromContent(bytes, "t.bin", TokenLayout::kUint16).status().message(),
              HasSubstr("its header records 3 tokens"));
  bytes[4] = 9;
  EXPECT_THAT(TokenFile::FromContent(bytes, "t.bin", TokenLayout::kUint16).status().message(),
              HasSubstr("version 9"));
}

// Windows cross the borders of shards, and some shards are held out.
TEST(TokenFileTest, ShardsAreOneText) {
  const std::string directory = JoinPath(testing::TempDir(), "shards");
  ASSERT_TRUE(MakeDirectories(directory).ok());
  const std::string tokenizer = Tokenizer::Bytes(false).ToJson();
  ASSERT_TRUE(WriteFileAtomically(JoinPath(directory, "tokenizer.json"), tokenizer).ok());
  const auto write = [&](const char* name, const std::vector<int32_t>& tokens, TokenLayout layout) {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(directory, name), GetBytes(tokens, layout, 256)).ok());
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

TEST(TokenFileTest, RecognizesValidationNames) {
  for (const char* name : {"val.bin", "val0.bin", "fineweb_val_000001.bin", "tiny-Val.bin",
                           "validation.bin", "text.valid.bin", "eval_3.bin", "EVALUATION.bin"}) {
    EXPECT_TRUE(IsValidationName(name)) << name;
  }
  for (const char* name : {"train.bin", "retrieval_000.bin", "values.bin", "medieval.bin",
                           "upheaval-2.bin", "intervals_1.bin", "\xc3\xa9val.bin", ".bin", ""}) {
    EXPECT_FALSE(IsValidationName(name)) << name;
  }
}

// Directory of files that contain bytes as tokens.
struct Shards {
  explicit Shards(const char* name, const std::vector<const char*>& files)
      : directory(JoinPath(testing::TempDir(), name)) {
    EXPECT_TRUE(RemoveTree(directory).ok());
    EXPECT_TRUE(MakeDirectories(directory).ok());
    options.format = DatasetOptions::Format::kTokens;
    options.tokenizer_path = directory;
    EXPECT_TRUE(
        WriteFileAtomically(JoinPath(directory, "tokenizer.json"), Tokenizer::Bytes(false).ToJson())
            .ok());
    const std::string content = GetBytes({1, 2, 3, 4, 5, 6, 7, 8}, TokenLayout::kUint16, 256);
    for (const char* file : files) {
      EXPECT_TRUE(WriteFileAtomically(JoinPath(directory, file), content).ok());
    }
  }
  std::string directory;
  DatasetOptions options;
};

TEST(TokenFileTest, RetrievalShardIsTrainingData) {
  Shards shards("retrieval", {"retrieval_0.bin", "text_0.bin"});
  shards.options.val_fraction = 0;
  const auto data = Dataset::Load(shards.directory, shards.options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->num_tokens(Split::kTrain), 16);
  EXPECT_EQ(data->num_tokens(Split::kValidation), 0);
}

// a.bin has the tokens 1 to 8 and a mask, b.bin the same and none.
TEST(TokenFileTest, AMaskExcludesTargets) {
  Shards shards("mask_shards", {"a.bin", "b.bin", "val.bin"});
  const std::string mask = JoinPath(shards.directory, "a.bin.mask");
  const std::string plain_hash = Dataset::Load(shards.directory, shards.options)->data_hash();
  const auto load = [&](absl::string_view bytes) {
    EXPECT_TRUE(WriteFileAtomically(mask, bytes).ok());
    return Dataset::Load(shards.directory, shards.options);
  };
  const auto data = load(absl::string_view("\1\0\0\1\0\0\1\0", 8));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_TRUE(data->has_masks());
  EXPECT_NE(data->data_hash(), plain_hash);
  EXPECT_NE(load(absl::string_view("\1\0\0\1\0\0\0\1", 8))->data_hash(), data->data_hash());
  EXPECT_EQ(data->num_targets(Split::kTrain), 2 + 8) << "the first token is no target";
  EXPECT_EQ(data->num_targets(Split::kValidation), 7);
  EXPECT_THAT(data->Description(), HasSubstr("16 tokens to train on, 8 held out; 10 targets to "
                                             "train on, 7 held out; "));
  std::vector<int32_t> tokens(10);
  data->ReadTargets(Split::kTrain, 1, absl::MakeSpan(tokens));
  EXPECT_THAT(tokens, ElementsAre(-1, -1, 4, -1, -1, 7, -1, 1, 2, 3));
  data->ReadText(Split::kTrain, 1, absl::MakeSpan(tokens));
  EXPECT_THAT(tokens, ElementsAre(2, 3, 4, 5, 6, 7, 8, 1, 2, 3));
  for (const int64_t stride : {0, 1, 2}) {
    const auto batches = EvalBatches::Create(&*data, Split::kTrain, {2, 3, stride});
    ASSERT_TRUE(batches.ok()) << batches.status();
    EXPECT_EQ(batches->num_targets(), 10);
    Batch batch = batches->MakeBatch();
    int64_t targets = 0;
    for (int64_t i = 0; i < batches->size(); ++i) {
      batches->Fill(i, &batch);
      targets += batch.valid_targets;
    }
    EXPECT_EQ(targets, 10) << "stride " << stride;
  }
}

TEST(TokenFileTest, RedrawsWindowsWithoutTargets) {
  Shards shards("sparse_mask", {"a.bin"});
  shards.options.val_fraction = 0;
  const std::string mask = JoinPath(shards.directory, "a.bin.mask");
  ASSERT_TRUE(WriteFileAtomically(mask, absl::string_view("\0\0\0\0\0\1\0\0", 8)).ok());
  const auto data = Dataset::Load(shards.directory, shards.options);
  ASSERT_TRUE(data.ok()) << data.status();
  auto train = TrainBatches::Create(&*data, {3, 2, 2, 1});
  ASSERT_TRUE(train.ok()) << train.status();
  auto whole = TrainBatches::Create(&*data, {6, 1, 2, 1});
  ASSERT_TRUE(whole.ok()) << whole.status();
  Batch batch = train->MakeBatch(), step = whole->MakeBatch();
  for (int64_t i = 0; i < 20; ++i) {
    whole->Fill(i, &step);
    EXPECT_EQ(step.valid_targets, 6);
    std::vector<int32_t> targets;
    for (const int64_t part : {0, 1}) {
      train->Fill(2 * i + part, &batch);
      targets.insert(targets.end(), batch.targets.begin(), batch.targets.end());
    }
    EXPECT_EQ(targets, step.targets) << "also if the step is divided";
  }
  ASSERT_TRUE(WriteFileAtomically(mask, std::string(8, '\0')).ok());
  const auto none = Dataset::Load(shards.directory, shards.options);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(std::string(TrainBatches::Create(&*none, {3, 2, 2, 1}).status().message()),
              HasSubstr("the training split has nothing to predict"));
}

TEST(TokenFileTest, AWrongMaskIsAnError) {
  Shards shards("wrong_masks", {"a.bin"});
  const std::string mask = JoinPath(shards.directory, "a.bin.mask");
  const auto error = [&](absl::string_view bytes) {
    EXPECT_TRUE(WriteFileAtomically(mask, bytes).ok());
    return std::string(Dataset::Load(shards.directory, shards.options).status().message());
  };
  EXPECT_THAT(
      error(std::string(64, '\1')),
      HasSubstr("a.bin.mask: has 64 bytes, but a mask has one for each of the 8 tokens in"));
  EXPECT_THAT(error("10110111"), HasSubstr("a.bin.mask: byte 1 is 48; a mask has 0 and 1 only"));
}

TEST(TokenFileTest, FileTruncatedInUseIsAnError) {
  const Shards shards("cut", {"a.bin", "b.bin", "val.bin"});
  const auto data = Dataset::Load(shards.directory, shards.options);
  ASSERT_TRUE(data.ok()) << data.status();
  auto train = TrainBatches::Create(&*data, {1, 15, 1, false, 0});
  ASSERT_TRUE(train.ok()) << train.status();
  const auto held_out = EvalBatches::Create(&*data, Split::kValidation, {1, 7, 0});
  ASSERT_TRUE(held_out.ok()) << held_out.status();
  Batch batch = train->MakeBatch();
  ASSERT_TRUE(train->TryFill(0, &batch).ok());
  std::error_code error;
  std::filesystem::resize_file(JoinPath(shards.directory, "b.bin"), 4, error);
  ASSERT_FALSE(error);
  const absl::Status cut = train->TryFill(1, &batch);
  EXPECT_THAT(std::string(cut.message()), HasSubstr("b.bin: was truncated while it was in use"));
  for (const int32_t token : batch.tokens) EXPECT_GE(token, 0);
  // After the error all data is refused.
  EXPECT_EQ(held_out->TryFill(0, &batch), cut);
}

}  // namespace
}  // namespace plumb
