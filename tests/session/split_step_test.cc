// SPDX-License-Identifier: Apache-2.0
// A step does not depend on its division: as one batch, as micro-batches, as units and on ranks it
// has, up to rounding, one loss, which is that of an evaluation of the same sequences, and one
// gradient. This holds for documents of very different lengths, for prompts, for token files with a
// mask and for masked tokens, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/data/batches.h"
#include "tests/app/evaluate.h"
#include "tests/session/rank_train_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

enum class Kind { kText, kDocuments, kTokens, kMasked, kPrompts, kTokenMask };

constexpr const char* kKindNames[] = {"text",   "documents", "tokens",
                                      "masked", "prompts",   "token_mask"};
constexpr int64_t kRows = 4;  // rows of a step
constexpr int kSteps = 3;

// A way to compute a step of kRows sequences.
struct Division {
  int64_t batch_size, micro_batches, units;
  int ranks;
};

const Division kDivisions[] = {{2, 2, 0, 1}, {1, 4, 0, 1}, {4, 1, 2, 1}, {4, 1, 4, 1},
                               {2, 2, 4, 1}, {2, 2, 0, 2}, {4, 1, 2, 2}, {1, 4, 0, 2},
                               {1, 4, 0, 3}, {4, 1, 4, 3}, {2, 2, 4, 3}};

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<int64_t> tokens;
  std::vector<float> gradients;  // gradients of the last step
};

class SplitStepTest : public RankTrainTest,
                      public ::testing::WithParamInterface<std::tuple<Kind, DType>> {
 protected:
  SplitStepTest() : data_(MakeData()), context_(MakeContext(runtime_.get(), ModelText())) {}

  static Kind kind() { return std::get<0>(GetParam()); }
  static bool is_bf16() { return std::get<1>(GetParam()) == DType::kBF16; }

  // Returns documents with 1 to 30 tokens.
  static std::string MixedLengthDocuments() {
    std::string content;
    for (int i = 0; i < 12; ++i) {
      const int length = i % 3 == 0 ? 29 : 1 + i % 5;
      for (int k = 0; k < length; ++k) content += static_cast<char>('a' + (i * 3 + k * k) % 5);
      content += '\n';
    }
    return content;
  }

  // Returns documents with prompts of 0 to 28 tokens and 2 to 9 targets.
  static std::string PromptDocuments() {
    std::string content;
    for (int i = 0; i < 12; ++i) {
      std::string prompt, completion;
      for (int k = 0; k < i * 7 % 4 * 9 + i % 2; ++k) prompt += static_cast<char>('a' + i * k % 5);
      for (int k = 0; k <= i * 5 % 8; ++k) completion += static_cast<char>('a' + (i + k * k) % 5);
      absl::StrAppend(&content, "{\"prompt\": \"", prompt, "\", \"completion\": \"", completion,
                      "\"}\n");
    }
    return content;
  }

  Dataset MakeData() const {
    DatasetOptions options;
    options.val_fraction = 0;
    if (kind() == Kind::kDocuments || kind() == Kind::kMasked) {
      options.format = DatasetOptions::Format::kDocuments;
      return *Dataset::FromContent(MixedLengthDocuments(), "documents.txt", options);
    }
    if (kind() == Kind::kPrompts) {
      options.format = DatasetOptions::Format::kJsonl;
      return *Dataset::FromContent(PromptDocuments(), "prompts.jsonl", options);
    }
    if (kind() == Kind::kText) return TextDataset(900, 6);
    std::string ids;
    for (int i = 0; i < 700; ++i) ids += {static_cast<char>(i * i % 7 % 6), 0};
    scratch_.Write("ids.bin", ids);
    if (kind() == Kind::kTokenMask) {
      std::string mask;
      for (int i = 0; i < 700; ++i) mask += static_cast<char>(i % 90 > 70 && i % 3 > 0);
      scratch_.Write("ids.bin.mask", mask);
    }
    options.format = DatasetOptions::Format::kTokens;
    options.token_bits = 16;
    const Dataset letters = TextDataset(60, 6);
    return *Dataset::Load(scratch_.File("ids.bin"), options, &letters.tokenizer());
  }

  static std::string ModelText() {
    TinyModel model = Model();
    model.vocab_size = kind() == Kind::kMasked ? 7 : 6;
    model.context_length = 32;
    if (kind() == Kind::kMasked) model.more = "bidirectional: true";
    return model.Text();
  }

  static TrainSpec MakeSpec(const Division& division) {
    std::string recipe = absl::StrCat(
        "batch_size: ", division.batch_size,
        " gradient_accumulation_steps: ", division.micro_batches, " units: ", division.units,
        // Large compared with a gradient's rounding errors around 0.
        " learning_rate: 0.01 eps: 1e-3 max_steps: 100 seed: 3 grad_clip: 0.5 ");
    if (is_bf16()) absl::StrAppend(&recipe, "dtype: BF16 ");
    if (kind() == Kind::kMasked) absl::StrAppend(&recipe, "masked_tokens { share: 0.3 }");
    const auto spec = ParseTrainSpec(recipe, "recipe", {});
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.value_or(TrainSpec());
  }

  static absl::Status Train(TrainSession* session, Outcome* outcome) {
    for (int i = 0; i < kSteps; ++i) {
      PLUMB_ASSIGN_OR_RETURN(const StepResult step, session->Step());
      outcome->losses.push_back(step.loss);
      outcome->norms.push_back(step.grad_norm);
      outcome->tokens.push_back(step.tokens);
    }
    outcome->gradients.assign(session->gradients(),
                              session->gradients() + session->parameters().layout().size);
    return absl::OkStatus();
  }

  // Returns the outcome on rank 0.
  Outcome Run(const Division& division) {
    Outcome outcome;
    const TrainSpec spec = MakeSpec(division);
    const auto results = RunRanks(division.ranks, [&](Communicator* rank) -> absl::Status {
      PLUMB_ASSIGN_OR_RETURN(const auto session,
                             TrainSession::Create(context_.get(), &data_, spec, 1, rank));
      Outcome own;
      PLUMB_RETURN_IF_ERROR(Train(session.get(), &own));
      if (rank->rank() == 0) outcome = own;
      return absl::OkStatus();
    });
    for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
    return outcome;
  }

  // Returns the mean loss over the targets of the first step, by evaluations of one sequence each.
  double LossOfFirstStep() {
    const TrainSpec spec = MakeSpec({kRows, 1, 0, 1});
    const auto session = TrainSession::Create(context_.get(), &data_, spec, 1);
    TrainBatches::Options options;
    options.batch_size = 1;
    options.micro_batches = kRows;
    options.context_length = context_->model.dims.context_length;
    options.seed = spec.seed;
    options.padding = kind() == Kind::kMasked ? -1 : 0;
    TrainBatches batches = *TrainBatches::Create(&data_, options);
    Batch batch = batches.MakeBatch();
    Evaluator evaluator(context_.get(), &(*session)->weights(), 1, batches.max_seq(),
                        /*logits=*/false, 1);
    TokenMasking masking;
    masking.seed = spec.seed;
    masking.share = 0.3;
    masking.mask_token = 6;
    masking.vocab_size = 7;
    double sum = 0;
    int64_t targets = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      batches.Fill(row, &batch);
      if (kind() == Kind::kMasked) MaskTokens(masking, kTrainingMasks, row, &batch);
      const auto loss = evaluator.Run(
          {batch.tokens.data(), batch.positions.data(), batch.targets.data()}, batch.seq);
      EXPECT_TRUE(loss.ok()) << loss.status();
      sum += *loss * static_cast<double>(batch.valid_targets);
      targets += batch.valid_targets;
    }
    return sum / static_cast<double>(targets);
  }

  const ScratchDir scratch_;
  const Dataset data_;
  const std::unique_ptr<ModelContext> context_;
};

TEST_P(SplitStepTest, LossAndGradientAreIndependentOfTheSplit) {
  // bf16 has 8 bits: a number that is rounded differently changes the sums that contain it.
  const double near = is_bf16() ? 4e-3 : 1e-5;
  const Outcome whole = Run({kRows, 1, 0, 1});
  ASSERT_EQ(whole.losses.size(), static_cast<size_t>(kSteps));
  EXPECT_NEAR(whole.losses[0], LossOfFirstStep(), near);
  float largest = 0;
  for (const float g : whole.gradients) largest = std::max(largest, std::fabs(g));
  for (const Division& division : kDivisions) {
    SCOPED_TRACE(absl::StrCat(division.batch_size, " x ", division.micro_batches, ", ",
                              division.units, " units, ", division.ranks, " ranks"));
    const Outcome split = Run(division);
    EXPECT_EQ(split.tokens, whole.tokens);
    ASSERT_EQ(split.losses.size(), whole.losses.size());
    for (size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(split.losses[i], whole.losses[i], near) << "step " << i + 1;
      EXPECT_NEAR(split.norms[i], whole.norms[i], 5 * near * whole.norms[i]) << "step " << i + 1;
    }
    ASSERT_EQ(split.gradients.size(), whole.gradients.size());
    double farthest = 0;
    for (size_t i = 0; i < whole.gradients.size(); ++i) {
      farthest = std::max(farthest,
                          std::fabs(static_cast<double>(split.gradients[i] - whole.gradients[i])));
    }
    EXPECT_LT(farthest, 10 * near * static_cast<double>(largest));
  }
}

INSTANTIATE_TEST_SUITE_P(All, SplitStepTest,
                         ::testing::Combine(::testing::Values(Kind::kText, Kind::kDocuments,
                                                              Kind::kTokens, Kind::kMasked,
                                                              Kind::kPrompts, Kind::kTokenMask),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& at) {
                           return absl::StrCat(
                               kKindNames[static_cast<size_t>(std::get<0>(at.param))], "_",
                               std::get<1>(at.param) == DType::kBF16 ? "bf16" : "f32");
                         });

// A dropped element belongs to a row of the step, whichever pass computes it.
TEST_F(RankTrainTest, DropoutIsIndependentOfTheSplit) {
  TinyModel model = Model();
  model.vocab_size = 6;
  model.placement = "mine";
  model.more =
      "placement { name: \"mine\" extends: \"pre\" each: \"y = f(norm(x))\" "
      "each: \"x = x + drop(y, 0.3) + drop_path(y, 0.2)\" }";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = Documents(40, 1, 11);
  const auto losses = [&](const Settings& settings) {
    Settings all = {{"units", "0"}, {"eps", "1e-3"}};
    all.insert(all.end(), settings.begin(), settings.end());
    return TraceOfOne(*context, data, Recipe("", all), 2);
  };
  const std::vector<double> whole =
      losses({{"batch_size", "8"}, {"gradient_accumulation_steps", "1"}});
  for (const Settings& settings :
       {Settings{{"batch_size", "2"}, {"gradient_accumulation_steps", "4"}},
        Settings{{"batch_size", "8"}, {"gradient_accumulation_steps", "1"}, {"units", "8"}}}) {
    const std::vector<double> split = losses(settings);
    ASSERT_EQ(split.size(), whole.size());
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(split[i], whole[i], 1e-5 * whole[i]) << i;
  }
}

// Label smoothing and the z-loss are means over the same targets.
TEST_F(RankTrainTest, LossIsIndependentOfTheSplit) {
  TinyModel model = Model();
  model.vocab_size = 6;
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = Documents(40, 1, 11);
  const auto trace = [&](const char* batch_size, const char* micro_batches) {
    return TraceOfOne(*context, data,
                      Recipe("label_smoothing: 0.1 z_loss: 0.01",
                             {{"units", "0"},
                              {"eps", "1e-3"},
                              {"batch_size", batch_size},
                              {"gradient_accumulation_steps", micro_batches}}),
                      2);
  };
  const std::vector<double> whole = trace("8", "1"), split = trace("1", "8");
  ASSERT_EQ(split.size(), whole.size());
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(split[i], whole[i], 1e-5 * whole[i]) << i;
}

}  // namespace
}  // namespace plumb
