// SPDX-License-Identifier: Apache-2.0
#include "tests/app/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/app/test_models.h"
#include "tests/session/test_datasets.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

class EvaluateTest : public ::testing::Test {
 protected:
  EvaluateTest() {
    TinyModel model;
    model.vocab_size = 6;
    model.context_length = 14;
    context_ = MakeContext(runtime_.get(), model.Text());
    parameters_ = std::make_unique<ParameterStore>(GenericParameters(*context_));
  }
  EvalResult Evaluate(const Dataset& data, int64_t batch_size, int64_t max_batches = 0) {
    const auto session = EvalSession::Create(context_.get(), parameters_.get(), &data,
                                             Split::kValidation, batch_size, 1);
    EXPECT_TRUE(session.ok()) << session.status();
    const auto result = (*session)->Run(max_batches);
    EXPECT_TRUE(result.ok()) << result.status();
    return *result;
  }
  // Returns the loss of one sequence alone.
  double ComputeLoss(const std::vector<int32_t>& tokens) {
    const auto outputs = RunBatch(*context_, *parameters_, {tokens}, /*with_gradients=*/true, 1);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs->loss;
  }
  absl::Status RunError(const Tokens& tokens) {
    return RunBatch(*context_, *parameters_, tokens, /*with_gradients=*/true, 1).status();
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  std::unique_ptr<ModelContext> context_;
  std::unique_ptr<ParameterStore> parameters_;
};

TEST_F(EvaluateTest, DocumentLossIsWeightedByLength) {
  const Dataset data = Documents(11, 1, 12, /*val_fraction=*/1);
  const int32_t mark = *data.tokenizer().end_token();
  double sum = 0;
  int64_t targets = 0;
  for (int64_t i = 0; i < 11; ++i) {
    std::vector<int32_t> tokens = {mark};
    const auto document = data.document(Split::kValidation, i);
    tokens.insert(tokens.end(), document.begin(), document.end());
    tokens.push_back(mark);
    sum += ComputeLoss(tokens) * static_cast<double>(tokens.size() - 1);
    targets += static_cast<int64_t>(tokens.size()) - 1;
  }
  // In batches that divide the number of documents, that do not, and all at once.
  for (int64_t batch_size : {1, 3, 11, 40}) {
    const EvalResult result = Evaluate(data, batch_size);
    EXPECT_EQ(result.targets, targets);
    EXPECT_EQ(result.sequences, 11);
    EXPECT_NEAR(result.loss, sum / static_cast<double>(targets), 1e-6) << batch_size;
  }
}

TEST_F(EvaluateTest, TextLossCountsEveryTargetOnce) {
  const Dataset data =
      TextDataset(48, 5, /*val_fraction=*/1);  // windows of 14, 14, 14 and 5 targets
  std::vector<int32_t> text(static_cast<size_t>(data.num_tokens(Split::kValidation)));
  data.ReadText(Split::kValidation, 0, absl::MakeSpan(text));
  double sum = 0;
  int64_t targets = 0;
  for (size_t start = 0; start + 1 < text.size(); start += 14) {
    // A window has 14 inputs and the token after them. RunBatch takes 14 tokens, so the loss of the
    // last target is computed from the logits.
    const size_t inputs = std::min<size_t>(14, text.size() - 1 - start);
    const auto outputs =
        RunBatch(*context_, *parameters_,
                 {std::vector<int32_t>(text.begin() + static_cast<std::ptrdiff_t>(start),
                                       text.begin() + static_cast<std::ptrdiff_t>(start + inputs))},
                 /*with_gradients=*/true, 1);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const float* last = outputs->logits.data() + (inputs - 1) * 6;
    double total = 0;
    for (int v = 0; v < 6; ++v) total += std::exp(static_cast<double>(last[v]));
    sum += outputs->loss * static_cast<double>(inputs - 1) + std::log(total) -
           static_cast<double>(last[text[start + inputs]]);
    targets += static_cast<int64_t>(inputs);
  }
  ASSERT_EQ(targets, 47);
  for (int64_t batch_size : {1, 3, 4}) {
    const EvalResult result = Evaluate(data, batch_size);
    EXPECT_EQ(result.targets, 47);
    EXPECT_NEAR(result.loss, sum / 47, 1e-6) << batch_size;
  }
}

TEST_F(EvaluateTest, FewerBatchesCoverFewerSequences) {
  const Dataset data = Documents(11, 1, 12, /*val_fraction=*/1);
  EXPECT_EQ(Evaluate(data, 4, 2).sequences, 8);
  EXPECT_EQ(Evaluate(data, 4, 3).sequences, 11);
  EXPECT_EQ(Evaluate(data, 4, 99).sequences, 11);
  EXPECT_LT(Evaluate(data, 4, 1).targets, Evaluate(data, 4).targets);
}

TEST_F(EvaluateTest, LogitsAndGradientsDoNotDependOnTheOtherRows) {
  const Tokens tokens = RandomTokens(3, 7, 6);
  const auto all = RunBatch(*context_, *parameters_, tokens, /*with_gradients=*/true, 1);
  ASSERT_TRUE(all.ok());
  std::vector<float> logits;
  std::vector<double> gradients(all->gradients.size(), 0);
  for (const std::vector<int32_t>& row : tokens) {
    const auto one = RunBatch(*context_, *parameters_, {row}, /*with_gradients=*/true, 1);
    logits.insert(logits.end(), one->logits.begin(), one->logits.end());
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] += static_cast<double>(one->gradients[i]) / 3;
    }
  }
  EXPECT_LE(RelativeError(all->logits, logits), 1e-6);
  EXPECT_LE(RelativeError(all->gradients, gradients), 1e-5);
}

TEST_F(EvaluateTest, InvalidTokensAreErrors) {
  EXPECT_THAT(std::string(RunError({}).message()), HasSubstr("no sequences"));
  EXPECT_THAT(std::string(RunError({{1}}).message()), HasSubstr("at least two"));
  EXPECT_THAT(std::string(RunError({{}}).message()), HasSubstr("at least two"));
  EXPECT_THAT(std::string(RunError({{1, 2}, {1, 2, 3}}).message()), HasSubstr("sequence 1 has 3"));
  EXPECT_THAT(std::string(RunError({{1, 6}}).message()), HasSubstr("sequence 0, token 1: 6"));
  EXPECT_THAT(std::string(RunError({{-1, 2}}).message()), HasSubstr("-1"));
  EXPECT_THAT(std::string(RunError({std::vector<int32_t>(15, 0)}).message()),
              HasSubstr("context_length 14"));
}

}  // namespace
}  // namespace plumb
