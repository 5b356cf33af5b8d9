// SPDX-License-Identifier: Apache-2.0
// Tests of plumb bench and plumb train --profile. Times are arbitrary; the tests check that the
// numbers exist, agree with each other and count the right work.

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class BenchTest : public PlumbTest {
 protected:
  nlohmann::json Bench(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"bench", "pre.pbtxt", "--rounds", "1", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }
};

TEST_F(BenchTest, MeasuresTrainingPromptAndDecoding) {
  const nlohmann::json json = Bench({"--prompt", "8", "--tokens", "4"});
  ASSERT_TRUE(json.is_object());
  ASSERT_EQ(json["passes"].size(), 3u);
  const char* const names[] = {"training", "prompt", "decode"};
  const char* const shapes[] = {"1 x 16", "1 x 8", "1 x 4"};
  for (size_t i = 0; i < 3; ++i) {
    const nlohmann::json& pass = json["passes"][i];
    EXPECT_EQ(pass["pass"], names[i]);
    EXPECT_EQ(pass["shape"], shapes[i]);
    for (const char* figure : {"seconds", "tokens_per_second", "rate", "machine", "share"}) {
      EXPECT_GT(pass[figure]["median"].get<double>(), 0) << figure;
      EXPECT_LE(pass[figure]["p10"], pass[figure]["p90"]) << figure;
    }
  }
}

// The model has 25,968 parameters: 2 * 27 * 16 + 16 * 16 in embeddings and head, 17 * 16 in norms.
// A step of 16 tokens takes 6 FLOPs per token for each weight of a product, and 12 * 16 * 16 for
// attention.
TEST_F(BenchTest, CountsTheWorkOfTheModel) {
  const nlohmann::json json = Bench({"--only", "train"});
  ASSERT_EQ(json["passes"].size(), 1u);
  const nlohmann::json& pass = json["passes"][0];
  const double flops =
      pass["rate"]["median"].get<double>() * pass["seconds"]["median"].get<double>();
  const double weights = 8 * (4 * 16 * 16 + 2 * 16 * 64) + 27 * 16;
  const double expected = 6 * weights * 16 + 8 * 12.0 * 16 * 16 * 16;
  EXPECT_NEAR(flops / expected, 1, 1e-6);
}

// The last of the 8 layers computes only keys and values for all 12 tokens of the prompt.
TEST_F(BenchTest, PromptWorkIsThatOfItsLastToken) {
  const nlohmann::json json = Bench({"--only", "prompt", "--prompt", "12"});
  ASSERT_EQ(json["passes"].size(), 1u);
  const nlohmann::json& pass = json["passes"][0];
  const double flops =
      pass["rate"]["median"].get<double>() * pass["seconds"]["median"].get<double>();
  const double keys_and_values = 2 * 16 * 16, others = 2 * 16 * 16 + 2 * 16 * 64;
  const double weights = 12 * (7 * others + 8 * keys_and_values) + others + 27 * 16;
  const double expected = 2 * weights + (7 * 12 + 1) * 4.0 * 12 * 16;
  EXPECT_NEAR(flops / expected, 1, 1e-6);
}

TEST_F(BenchTest, DecodingReadsEveryWeightButTheEmbeddings) {
  const nlohmann::json json = Bench({"--only", "decode", "--tokens", "2"});
  ASSERT_EQ(json["passes"].size(), 1u);
  const nlohmann::json& pass = json["passes"][0];
  const double bytes =
      pass["rate"]["median"].get<double>() * pass["seconds"]["median"].get<double>();
  EXPECT_NEAR(bytes, 4 * (25968 - 27 * 16 - 16 * 16), 1);
}

TEST_F(BenchTest, UsesTheGivenBatchAndContext) {
  const nlohmann::json json = Bench({"--only", "train", "--batch", "3", "--seq", "5"});
  EXPECT_EQ(json["passes"][0]["shape"], "3 x 5");
}

TEST_F(BenchTest, TheProfileExplainsEveryPass) {
  const nlohmann::json json = Bench({"--profile", "--prompt", "4", "--tokens", "3"});
  const std::map<std::string, int> steps = {{"prompt", 1}, {"decode", 3}};
  for (const nlohmann::json& pass : json["passes"]) {
    SCOPED_TRACE(pass["pass"]);
    const nlohmann::json& profile = pass["profile"];
    if (pass["pass"] == "training") {
      EXPECT_GT(profile["steps"].get<int>(), 0);
    } else {
      EXPECT_EQ(profile["steps"], steps.at(pass["pass"]));
    }
    double sum = 0;
    bool has_product = false, has_optimizer = false;
    for (const auto& row : profile["rows"]) {
      sum += row["seconds"].get<double>();
      has_product = has_product || (row["in_graph"].get<bool>() && row["flops"].get<double>() > 0);
      has_optimizer = has_optimizer || row["name"] == "optimizer";
    }
    EXPECT_TRUE(has_product);
    EXPECT_EQ(has_optimizer, pass["pass"] == "training");
    EXPECT_NEAR(sum / profile["seconds"].get<double>(), 1, 1e-6);
  }
}

TEST_F(BenchTest, TrainPrintsAProfileAndTheSameLosses) {
  const Finished plain = RunPlumb(TrainArguments("plain", 3));
  const Finished timed = RunPlumb(TrainArguments("timed", 3, {"--profile"}));
  EXPECT_EQ(timed.exit_code, 0) << timed.err;
  EXPECT_THAT(timed.out, AllOf(HasSubstr("GFLOP/s"), HasSubstr("(optimizer)"),
                               HasSubstr("(batches)"), HasSubstr("a step")));
  EXPECT_THAT(plain.out, Not(HasSubstr("GFLOP/s")));
  EXPECT_EQ(Losses("plain"), Losses("timed"));
}

TEST_F(BenchTest, TheTableHasALineForEveryPass) {
  const Finished result =
      RunPlumb({"bench", "pre.pbtxt", "--rounds", "1", "--prompt", "4", "--tokens", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("training 1 x 16 f32"), HasSubstr("prompt 1 x 4 f32"),
                                HasSubstr("decode 1 x 2 f32"), HasSubstr("GB/s")));
}

}  // namespace
}  // namespace plumb::cli
