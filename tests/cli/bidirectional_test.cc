// SPDX-License-Identifier: Apache-2.0
// Tests of bidirectional models on the command line: required options, resuming, evaluation, and
// the refusal to sample.

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class BidirectionalTest : public PlumbTest {
 protected:
  void SetUp() override {
    Write("bert.pbtxt", R"pbtxt(
      n_layer: 2 n_head: 2 d_model: 16 context_length: 16
      bidirectional: true token_types: 2 tie_embeddings: true
      block { placement: "post" norm: "rms_norm" })pbtxt");
  }
  Finished Train(const std::string& out, int steps, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train",   "bert.pbtxt",
                                          "--train", "train.pbtxt",
                                          "--data",  "names.txt",
                                          "--out",   out,
                                          "--set",   "train.max_steps=" + std::to_string(steps)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  }
  const std::vector<std::string> masked_ = {
      "--set", "train.masked_tokens.share=0.3", "--set", "train.eval_interval=10",
      "--set", "train.data.val_fraction=0.25",  "--set", "train.checkpoint_interval=10"};
};

TEST_F(BidirectionalTest, RequiresMaskedTokensAndViceVersa) {
  const Finished without = Train("run", 5);
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err, HasSubstr("write masked_tokens {} into the recipe"));
  EXPECT_FALSE(Exists("run"));
  const Finished causal =
      RunPlumb(TrainArguments("run", 5, {"--set", "train.masked_tokens.share=0.3"}));
  EXPECT_EQ(causal.exit_code, 2);
  EXPECT_THAT(causal.err, HasSubstr("masked_tokens needs a bidirectional model"));
  EXPECT_FALSE(Exists("run"));
}

TEST_F(BidirectionalTest, TrainsResumesAndEvaluatesTheSameMasks) {
  const Finished whole = Train("whole", 20, masked_);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  std::vector<std::string> until_10 = masked_;
  until_10.insert(until_10.end(), {"--stop-at", "10"});
  const Finished half = Train("half", 20, until_10);
  ASSERT_EQ(half.exit_code, 0) << half.err;
  const Finished resumed = RunPlumb({"train", "--resume", "--out", "half", "--data", "names.txt"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(Read("half/checkpoints/step-000020/model.safetensors"),
            Read("whole/checkpoints/step-000020/model.safetensors"));

  const auto eval = [&] {
    const Finished result = RunPlumb({"eval", "whole", "--data", "names.txt", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false)["splits"];
  };
  const auto splits = eval();
  EXPECT_EQ(eval(), splits);
  EXPECT_LT(splits["validation"]["targets"], 6 * 6);
  EXPECT_GE(splits["validation"]["targets"], 6);
  const Finished stride = RunPlumb({"eval", "whole", "--data", "names.txt", "--stride", "2"});
  EXPECT_EQ(stride.exit_code, 2);
  EXPECT_THAT(stride.err, HasSubstr("this one was trained with masked_tokens"));
}

TEST_F(BidirectionalTest, IsDescribedAndNotSampledFrom) {
  const Finished trained = Train("run", 5, masked_);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Finished sampled = RunPlumb({"sample", "run"});
  EXPECT_NE(sampled.exit_code, 0);
  EXPECT_THAT(sampled.err, AllOf(HasSubstr("bidirectional"), HasSubstr("nothing can be sampled")));
  const Finished described = RunPlumb({"describe", "run/model.pbtxt"});
  EXPECT_EQ(described.exit_code, 0) << described.err;
  // The vocabulary is the data's 23 letters, the begin token and the mask.
  EXPECT_THAT(described.out,
              AllOf(HasSubstr("vocab_size 25"), HasSubstr("2 token types"),
                    HasSubstr(", bidirectional\n"), HasSubstr("embedding.type.weight")));
}

TEST_F(BidirectionalTest, ModelsAreComparedWithoutSamples) {
  Write("masked.pbtxt", Read("train.pbtxt") + "\nmasked_tokens { share: 0.3 }\n");
  Write("pre_bert.pbtxt", Read("bert.pbtxt") + " name: \"pre_bert\"");
  const Finished compared =
      RunPlumb({"compare", "bert.pbtxt", "pre_bert.pbtxt", "--data", "names.txt", "--train",
                "masked.pbtxt", "--seeds", "2", "--out", "study", "--set", "train.max_steps=10"});
  EXPECT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_TRUE(Exists("study/report.html"));
}

}  // namespace
}  // namespace plumb::cli
