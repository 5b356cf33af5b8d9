// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Dataset MakeDataset(absl::string_view content, DatasetOptions::Format format,
                    double val_fraction = 0) {
  DatasetOptions options;
  options.format = format;
  options.val_fraction = val_fraction;
  absl::StatusOr<Dataset> dataset = Dataset::FromContent(content, "d.txt", options);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *std::move(dataset);
}

Dataset MakeDocuments(absl::string_view content, double val_fraction = 0) {
  return MakeDataset(content, DatasetOptions::Format::kDocuments, val_fraction);
}

Dataset TextDataset(absl::string_view content, double val_fraction = 0) {
  return MakeDataset(content, DatasetOptions::Format::kText, val_fraction);
}

// Returns documents a, b, ... of one letter each.
Dataset Letters(int n) {
  std::string content;
  for (int i = 0; i < n; ++i)
    absl::StrAppend(&content, std::string(1, static_cast<char>('a' + i)), "\n");
  return MakeDocuments(content);
}

TrainBatches Train(const Dataset& dataset, int64_t batch_size, int64_t context_length,
                   uint64_t seed = 1, bool keep_order = false) {
  TrainBatches::Options options;
  options.batch_size = batch_size;
  options.context_length = context_length;
  options.seed = seed;
  options.keep_order = keep_order;
  absl::StatusOr<TrainBatches> batches = TrainBatches::Create(&dataset, options);
  EXPECT_TRUE(batches.ok()) << batches.status();
  return *std::move(batches);
}

bool Same(const Batch& a, const Batch& b) {
  return a.batch == b.batch && a.seq == b.seq && a.valid_targets == b.valid_targets &&
         a.tokens == b.tokens && a.targets == b.targets && a.positions == b.positions;
}

TEST(TrainBatchesTest, DocumentsHaveBeginAndEndTokens) {
  const Dataset dataset = MakeDocuments("ab\nc\nabcab\n");  // ids of a b c <be>: 0 1 2 3
  TrainBatches batches = Train(dataset, 3, 4, 1, /*keep_order=*/true);
  EXPECT_EQ(batches.max_seq(), 4);
  Batch batch = batches.MakeBatch();
  batches.Fill(0, &batch);
  EXPECT_EQ(batch.batch, 3);
  EXPECT_EQ(batch.seq, 4);
  EXPECT_EQ(batch.valid_targets, 3 + 2 + 4);
  EXPECT_THAT(batch.tokens, ElementsAre(3, 0, 1, 0,  //
                                        3, 2, 0, 0,  //
                                        3, 0, 1, 2));
  EXPECT_THAT(batch.targets, ElementsAre(0, 1, 3, -1,   //
                                         2, 3, -1, -1,  //
                                         0, 1, 2, 0));  // truncated: the end token is dropped
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
}

// Ids of a b c <be>: 0 1 2 3.
constexpr char kPrompts[] = R"({"prompt": "ab", "completion": "ca"}
{"text": "bc"}
{"prompt": "abcabc", "completion": "c"}
{"prompt": "abc", "completion": "abcabc"}
)";

TEST(TrainBatchesTest, PromptsAreNoTargets) {
  const Dataset dataset = MakeDataset(kPrompts, DatasetOptions::Format::kJsonl);
  TrainBatches batches = Train(dataset, 3, 5, 1, /*keep_order=*/true);
  Batch batch = batches.MakeBatch();
  batches.Fill(0, &batch);
  EXPECT_EQ(batch.seq, 5);
  EXPECT_EQ(batch.valid_targets, 3 + 3 + 2);
  EXPECT_THAT(batch.tokens, ElementsAre(3, 0, 1, 2, 0,     //
                                        3, 1, 2, 0, 0,     //
                                        3, 0, 1, 2, 0));   // the third document has no target
  EXPECT_THAT(batch.targets, ElementsAre(-1, -1, 2, 0, 3,  //
                                         1, 2, 3, -1, -1,  //
                                         -1, -1, -1, 0, 1));
  TrainBatches shuffled = Train(dataset, 3, 5, 1);
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    shuffled.Fill(epoch, &batch);
    EXPECT_EQ(batch.valid_targets, 8) << "each epoch has the same three documents";
  }
  TrainBatches whole = Train(dataset, 4, 12, 1, true);
  whole.Fill(0, &batch);
  EXPECT_EQ(batch.valid_targets, dataset.num_targets(Split::kTrain));

  const Dataset prompts =
      MakeDataset("{\"prompt\": \"abc\", \"completion\": \"b\"}", DatasetOptions::Format::kJsonl);
  TrainBatches::Options options;
  options.context_length = 3;
  EXPECT_EQ(TrainBatches::Create(&prompts, options).status().message(),
            "d.txt: the training split has nothing to predict; change val_fraction or use more "
            "data, a larger context_length or another mask");
  options.context_length = 4;
  EXPECT_TRUE(TrainBatches::Create(&prompts, options).ok());
}

TEST(EvalBatchesTest, PromptsAreContextOnly) {
  const Dataset dataset = MakeDataset(kPrompts, DatasetOptions::Format::kJsonl, 1);
  EvalBatches::Options options;
  options.batch_size = 3;
  options.context_length = 5;
  const auto batches = EvalBatches::Create(&dataset, Split::kValidation, options);
  ASSERT_TRUE(batches.ok()) << batches.status();
  EXPECT_EQ(batches->num_targets(), 3 + 3 + 0 + 2);
  EXPECT_EQ(batches->num_sequences(), 4);
  Batch batch = batches->MakeBatch();
  batches->Fill(0, &batch);
  EXPECT_EQ(batch.valid_targets, 6);
  EXPECT_THAT(batch.targets, ElementsAre(-1, -1, 2, 0, 3,  //
                                         1, 2, 3, -1, -1,  //
                                         -1, -1, -1, -1, -1));
  batches->Fill(1, &batch);
  EXPECT_EQ(batch.valid_targets, 2);
}

TEST(TrainBatchesTest, OptionsNameTheTokensAroundDocuments) {
  DatasetOptions options;
  options.format = DatasetOptions::Format::kDocuments;
  options.val_fraction = 0;
  options.begin_token = "c";
  options.end_token = "b";
  const absl::StatusOr<Dataset> dataset = Dataset::FromContent("ab\nc\n", "d.txt", options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  TrainBatches batches = Train(*dataset, 2, 4, 1, /*keep_order=*/true);
  Batch batch = batches.MakeBatch();
  batches.Fill(0, &batch);
  EXPECT_THAT(batch.tokens, ElementsAre(2, 0, 1, 2, 2, 0));
  EXPECT_THAT(batch.targets, ElementsAre(0, 1, 1, 2, 1, -1));
  options.end_token = "d";
  EXPECT_THAT(
      std::string(Dataset::FromContent("ab\nc\n", "d.txt", options).status().message()),
      testing::StartsWith("data.end_token: the vocabulary (3 characters \"abc\", and a begin/end "
                          "token) has no token \"d\""));
}

TEST(TrainBatchesTest, ABatchIsAsLongAsItsLongestRow) {
  const Dataset dataset = MakeDocuments("ab\nc\nabcab\n");
  TrainBatches batches = Train(dataset, 1, 100, 1, true);
  EXPECT_EQ(batches.max_seq(), 6);
  Batch batch = batches.MakeBatch();
  batches.Fill(1, &batch);
  EXPECT_EQ(batch.seq, 2);
  EXPECT_THAT(batch.tokens, ElementsAre(3, 2));
  EXPECT_THAT(batch.targets, ElementsAre(2, 3));
  batches.Fill(2, &batch);
  EXPECT_EQ(batch.seq, 6);
  EXPECT_THAT(batch.targets, ElementsAre(0, 1, 2, 0, 1, 3));
  // A document that fills the context to the last token is complete.
  TrainBatches exact = Train(dataset, 1, 6, 1, true);
  exact.Fill(2, &batch);
  EXPECT_THAT(batch.targets, ElementsAre(0, 1, 2, 0, 1, 3));
  TrainBatches one = Train(dataset, 1, 1, 1, true);
  one.Fill(2, &batch);
  EXPECT_THAT(batch.tokens, ElementsAre(3));
  EXPECT_THAT(batch.targets, ElementsAre(0));
}

TEST(TrainBatchesTest, EachEpochHoldsEveryDocumentOnceInTheStreamsOrder) {
  const Dataset dataset = Letters(10);
  TrainBatches batches = Train(dataset, 1, 8, /*seed=*/7);
  Batch batch = batches.MakeBatch();
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> seen;
    for (int64_t i = 0; i < 10; ++i) {
      batches.Fill(epoch * 10 + i, &batch);
      seen.push_back(batch.targets[0]);
    }
    EXPECT_EQ(seen, Permutation(RngStream(7, "document-order", static_cast<uint64_t>(epoch)), 10));
    epochs.push_back(seen);
    std::sort(seen.begin(), seen.end());
    EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(TrainBatchesTest, RowsContinueAcrossEpochs) {
  const Dataset dataset = Letters(5);
  TrainBatches one = Train(dataset, 1, 8);
  TrainBatches many = Train(dataset, 12, 8);  // more rows than documents
  Batch row = one.MakeBatch();
  Batch batch = many.MakeBatch();
  for (int64_t index = 0; index < 4; ++index) {
    many.Fill(index, &batch);
    for (int64_t i = 0; i < 12; ++i) {
      one.Fill(index * 12 + i, &row);
      EXPECT_EQ(batch.targets[static_cast<size_t>(i * batch.seq)], row.targets[0]);
    }
  }
}

TEST(TrainBatchesTest, KeepOrderFollowsTheFile) {
  const Dataset dataset = Letters(3);
  TrainBatches batches = Train(dataset, 2, 8, 1, true);
  Batch batch = batches.MakeBatch();
  std::vector<int32_t> first;
  for (int64_t i = 0; i < 3; ++i) {
    batches.Fill(i, &batch);
    first.push_back(batch.targets[0]);
    first.push_back(batch.targets[2]);
  }
  EXPECT_THAT(first, ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(TrainBatchesTest, BatchesDependOnTheirStepOnly) {
  std::string content;
  for (int i = 0; i < 137; ++i)
    absl::StrAppend(&content, std::string(1 + i % 9, static_cast<char>('a' + i % 26)), "\n");
  for (const Dataset& dataset : {MakeDocuments(content), TextDataset(content)}) {
    TrainBatches walked = Train(dataset, 4, 6, 3);
    Batch expected = walked.MakeBatch();
    for (int64_t step = 0; step <= 700; ++step) walked.Fill(step, &expected);
    TrainBatches fresh = Train(dataset, 4, 6, 3);
    Batch batch = fresh.MakeBatch();
    fresh.Fill(700, &batch);
    EXPECT_TRUE(Same(batch, expected));
    fresh.Fill(3, &batch);  // backwards across the border of an epoch
    fresh.Fill(900, &batch);
    fresh.Fill(700, &batch);
    EXPECT_TRUE(Same(batch, expected));
    TrainBatches other_seed = Train(dataset, 4, 6, 4);
    other_seed.Fill(700, &batch);
    EXPECT_FALSE(Same(batch, expected));
  }
}

TEST(TrainBatchesTest, WindowsFollowTheRandomStream) {
  const Dataset dataset = TextDataset("abcdefghijklmnopqrstuvwxyz");
  TrainBatches batches = Train(dataset, 3, 5, 11);
  EXPECT_EQ(batches.max_seq(), 5);
  Batch batch = batches.MakeBatch();
  batches.Fill(4, &batch);
  EXPECT_EQ(batch.seq, 5);
  EXPECT_EQ(batch.valid_targets, 15);
  for (uint64_t row = 0; row < 3; ++row) {
    const uint64_t start = RngStream(11, "window", 4).Below(row, 21);
    for (uint64_t t = 0; t < 5; ++t) {
      EXPECT_EQ(batch.tokens[row * 5 + t], static_cast<int32_t>(start + t));
      EXPECT_EQ(batch.targets[row * 5 + t], static_cast<int32_t>(start + t + 1));
      EXPECT_EQ(batch.positions[row * 5 + t], static_cast<int32_t>(t));
    }
  }
}

TEST(TrainBatchesTest, TheSequencesOfAStepDoNotDependOnItsMicroBatches) {
  const Dataset text = TextDataset("abcdefghijklmnopqrstuvwxyz"), documents = Letters(9);
  for (const Dataset* dataset : {&text, &documents}) {
    const auto step_of = [&](int64_t batch_size, int64_t micro_batches, int64_t step) {
      TrainBatches::Options options;
      options.batch_size = batch_size;
      options.micro_batches = micro_batches;
      options.context_length = 5;
      options.seed = 11;
      TrainBatches batches = *TrainBatches::Create(dataset, options);
      Batch batch = batches.MakeBatch();
      std::vector<int32_t> tokens;
      for (int64_t i = 0; i < micro_batches; ++i) {
        batches.Fill(step * micro_batches + i, &batch);
        tokens.insert(tokens.end(), batch.tokens.begin(), batch.tokens.end());
      }
      return tokens;
    };
    for (const int64_t step : {0, 1, 7}) {
      const std::vector<int32_t> whole = step_of(12, 1, step);
      EXPECT_EQ(step_of(4, 3, step), whole);
      EXPECT_EQ(step_of(1, 12, step), whole);
      EXPECT_NE(step_of(12, 1, step + 1), whole);
    }
  }
}

TEST(TrainBatchesTest, WindowsReachBothEndsOfTheText) {
  const Dataset dataset = TextDataset("abcdefgh");
  TrainBatches batches = Train(dataset, 1, 5);
  Batch batch = batches.MakeBatch();
  std::set<int32_t> starts;
  for (int64_t step = 0; step < 100; ++step) {
    batches.Fill(step, &batch);
    starts.insert(batch.tokens[0]);
  }
  EXPECT_THAT(starts, ElementsAre(0, 1, 2));
}

TEST(TrainBatchesTest, ImpossibleRequestsAreErrors) {
  const auto error = [](const Dataset& dataset, int64_t batch_size, int64_t context_length) {
    TrainBatches::Options options;
    options.batch_size = batch_size;
    options.context_length = context_length;
    const absl::Status status = TrainBatches::Create(&dataset, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const Dataset text = TextDataset("abcdef");
  EXPECT_EQ(error(text, 1, 6),
            "d.txt: the training split has 6 tokens, but a window of context_length 6 needs at "
            "least 7; use more text or a smaller context_length");
  EXPECT_THAT(error(text, 0, 4), HasSubstr("batch_size must be >= 1, is 0"));
  EXPECT_THAT(error(text, 1, 0), HasSubstr("context_length must be >= 1, is 0"));
  EXPECT_THAT(error(text, int64_t{1} << 62, int64_t{1} << 62), HasSubstr("more than"));
  EXPECT_THAT(error(MakeDocuments("a\nb\n", 1), 1, 4), HasSubstr("the training split has nothing"));
  EXPECT_THAT(error(TextDataset("abc", 1), 1, 1), HasSubstr("the training split has nothing"));
  Train(text, 1, 5);  // exactly as many tokens as needed
}

TEST(EvalBatchesTest, AdjacentWindowsPredictEveryTokenOnce) {
  const Dataset dataset = TextDataset("abcdefghijk", 1);  // 11 tokens, 10 targets
  EvalBatches::Options options;
  options.batch_size = 2;
  options.context_length = 4;
  const absl::StatusOr<EvalBatches> batches =
      EvalBatches::Create(&dataset, Split::kValidation, options);
  ASSERT_TRUE(batches.ok()) << batches.status();
  EXPECT_EQ(batches->num_sequences(), 3);
  EXPECT_EQ(batches->num_targets(), 10);
  ASSERT_EQ(batches->size(), 2);
  Batch batch = batches->MakeBatch();
  batches->Fill(0, &batch);
  EXPECT_THAT(batch.tokens, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(batch.targets, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(batch.valid_targets, 8);
  batches->Fill(1, &batch);
  EXPECT_EQ(batch.batch, 2);
  EXPECT_EQ(batch.seq, 4);
  EXPECT_THAT(batch.tokens, ElementsAre(8, 9, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.targets, ElementsAre(9, 10, -1, -1, -1, -1, -1, -1));
  EXPECT_EQ(batch.valid_targets, 2);
}

// With every stride, each token but the first is a target exactly once, in order, after at least
// context_length - stride tokens.
TEST(EvalBatchesTest, OverlappingWindowsPredictEveryTokenOnce) {
  for (const char* content : {"ab", "abcde", "abcdef", "abcdefghijk", "abcdefghijkl"}) {
    const Dataset dataset = TextDataset(content, 1);
    const int64_t n = dataset.num_tokens(Split::kValidation);
    for (int64_t stride = 1; stride <= 4; ++stride) {
      for (const int64_t batch_size : {1, 3}) {
        SCOPED_TRACE(testing::Message() << content << " " << stride << " x " << batch_size);
        EvalBatches::Options options;
        options.batch_size = batch_size;
        options.context_length = 4;
        options.stride = stride;
        const absl::StatusOr<EvalBatches> batches =
            EvalBatches::Create(&dataset, Split::kValidation, options);
        ASSERT_TRUE(batches.ok()) << batches.status();
        EXPECT_EQ(batches->num_targets(), n - 1);
        Batch batch = batches->MakeBatch();
        std::vector<int32_t> targets;
        int64_t valid = 0;
        for (int64_t i = 0; i < batches->size(); ++i) {
          batches->Fill(i, &batch);
          valid += batch.valid_targets;
          for (int64_t at = 0; at < batch.batch * batch.seq; ++at) {
            const int32_t target = batch.targets[static_cast<size_t>(at)];
            if (target < 0) continue;
            targets.push_back(target);
            EXPECT_EQ(batch.tokens[static_cast<size_t>(at)], target - 1) << "letters in order";
            if (target > 4) {
              EXPECT_GE(at % batch.seq, 4 - stride);
            }
          }
        }
        std::vector<int32_t> all;
        for (int32_t token = 1; token < n; ++token) all.push_back(token);
        EXPECT_EQ(targets, all);
        EXPECT_EQ(valid, n - 1);
      }
    }
  }
}

TEST(EvalBatchesTest, StrideRequiresTextAndFits) {
  EvalBatches::Options options;
  options.context_length = 4;
  const Dataset text = TextDataset("abcdefghij", 1), documents = MakeDocuments("ab\nc\n", 1);
  const auto error = [&](const Dataset& dataset, int64_t stride) {
    options.stride = stride;
    return std::string(
        EvalBatches::Create(&dataset, Split::kValidation, options).status().message());
  };
  EXPECT_EQ(error(text, 5), "a stride must be 1 to context_length 4, not 5");
  EXPECT_EQ(error(text, -1), "a stride must be 1 to context_length 4, not -1");
  EXPECT_THAT(error(documents, 2), HasSubstr("d.txt: a stride is for running text"));
}

TEST(EvalBatchesTest, DocumentsAreInOrder) {
  const Dataset dataset = MakeDocuments("ab\nc\nabcab\n", 1);
  for (int64_t batch_size : {1, 2, 3, 50}) {
    EvalBatches::Options options;
    options.batch_size = batch_size;
    options.context_length = 4;
    const absl::StatusOr<EvalBatches> batches =
        EvalBatches::Create(&dataset, Split::kValidation, options);
    ASSERT_TRUE(batches.ok());
    EXPECT_EQ(batches->rows(), std::min<int64_t>(batch_size, 3));
    Batch batch = batches->MakeBatch();
    std::vector<int32_t> targets;
    int64_t valid = 0;
    for (int64_t i = 0; i < batches->size(); ++i) {
      batches->Fill(i, &batch);
      EXPECT_EQ(batch.batch, batches->rows());
      valid += batch.valid_targets;
      for (int32_t target : batch.targets) {
        if (target >= 0) targets.push_back(target);
      }
    }
    EXPECT_THAT(targets, ElementsAre(0, 1, 3, 2, 3, 0, 1, 2, 0));
    EXPECT_EQ(valid, 9);
    EXPECT_EQ(batches->num_targets(), 9);
  }
}

TEST(EvalBatchesTest, ASplitWithoutTargetsIsAnError) {
  EvalBatches::Options options;
  options.context_length = 4;
  for (const Dataset& dataset : {MakeDocuments("ab\nc\n", 0), TextDataset("abcdefghij", 0.1)}) {
    const absl::Status status = EvalBatches::Create(&dataset, Split::kValidation, options).status();
    EXPECT_EQ(status.message(),
              "d.txt: the validation split has nothing to predict; change val_fraction or use more "
              "data");
  }
}

}  // namespace
}  // namespace plumb
