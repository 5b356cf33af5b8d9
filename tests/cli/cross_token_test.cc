// SPDX-License-Identifier: Apache-2.0
// Norms with statistics over tokens on the command line are refused, allowed with a warning, and
// shown.

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr char kModel[] =
    "n_layer: 1 n_head: 2 d_model: 8 context_length: 16\n"
    "norm { name: \"bn\" plugin: \"batch_norm\" allow_cross_token: true }\n"
    "block { placement: \"pre\" norm: \"bn\" }\n";

size_t CountOccurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class CrossTokenTest : public PlumbTest {
 protected:
  CrossTokenTest() { Write("bn.pbtxt", kModel); }
  Finished Train(const std::string& model, const std::string& out) {
    return RunPlumb({"train", model, "--data", "names.txt", "--out", out, "--set",
                     "train.max_steps=4", "--set", "train.batch_size=4", "--set",
                     "train.data.format=DOCUMENTS", "--set", "train.eval_interval=2"});
  }
};

TEST_F(CrossTokenTest, RefusalHasPlaceAndExitCode) {
  Write("no.pbtxt",
        "n_layer: 1 n_head: 2 d_model: 8 context_length: 16\n"
        "norm { name: \"bn\" plugin: \"batch_norm\" }\n"
        "block { placement: \"pre\" norm: \"bn\" }\n");
  const Finished result = Train("no.pbtxt", "run");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("no.pbtxt:2:19: norm \"bn\""),
                                HasSubstr("add allow_cross_token: true")));
  EXPECT_FALSE(Exists("run"));
}

TEST_F(CrossTokenTest, TrainingWarnsOnceAndEvaluationAndSamplesFollow) {
  const Finished trained = Train("bn.pbtxt", "run");
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(CountOccurrences(trained.err, "warning: "), 1u) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("warning: bn.pbtxt:2:40: norm \"bn\""));
  // Without --out the model is read twice, once for its name.
  const Finished named =
      RunPlumb({"train", "bn.pbtxt", "--data", "names.txt", "--set", "train.max_steps=1"});
  EXPECT_EQ(named.exit_code, 0) << named.err;
  EXPECT_EQ(CountOccurrences(named.err, "norm \"bn\""), 1u) << named.err;
  const Finished eval = RunPlumb({"eval", "run", "--data", "names.txt"});
  EXPECT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_THAT(eval.err, Not(HasSubstr("warning")));
  const Finished sample = RunPlumb({"sample", "run", "--num", "2"});
  EXPECT_EQ(sample.exit_code, 0) << sample.err;
  EXPECT_EQ(std::count(sample.out.begin(), sample.out.end(), '\n'), 2);
}

TEST_F(CrossTokenTest, DescribeCountsBuffersSeparately) {
  const std::vector<std::string> describe = {"describe", "bn.pbtxt", "--set",
                                             "model.vocab_size=27"};
  const Finished text = RunPlumb(describe);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("numbers in 9 buffers, statistics that norms keep"),
                              HasSubstr("layers.0.attention.norm.running_mean")));
  std::vector<std::string> arguments = describe;
  arguments.push_back("--json");
  const auto json = nlohmann::json::parse(RunPlumb(arguments).out, nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["buffers"].size(), 9u);
  int64_t elements = 0;
  for (const auto& buffer : json["buffers"]) elements += buffer["elements"].get<int64_t>();
  EXPECT_EQ(json["totals"]["buffer_elements"], elements);
  for (const auto& tensor : json["tensors"]) EXPECT_NE(tensor["role"], "buffer");
}

TEST_F(CrossTokenTest, APluginsBuffersAndTraitsAreShown) {
  const Finished text = RunPlumb({"plugin", "describe", "batch_norm"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("traits: cross-row"), HasSubstr("element types: f32"),
                              HasSubstr("buffers (kept from training"),
                              HasSubstr("running_mean [dim], initially zeros")));
  const Finished offset = RunPlumb({"plugin", "describe", "batch_norm", "--json"});
  const auto json = nlohmann::json::parse(offset.out, nullptr, false);
  EXPECT_EQ(json["buffers"][0]["name"], "running_mean");
  EXPECT_EQ(json["parameters"][0]["offset"], 0);
}

TEST_F(CrossTokenTest, EvalReadsBuffersUnlessGradientsAreWritten) {
  ASSERT_EQ(Train("bn.pbtxt", "run").exit_code, 0);
  Write("t.json", "[[1, 2, 3, 4], [5, 6, 7, 8]]");
  const auto loss = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "eval",     "run/model.pbtxt", "--weights", "run/checkpoints/step-000004/model.safetensors",
        "--tokens", "t.json",          "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false)["loss"].get<double>();
  };
  EXPECT_NE(loss({}), loss({"--grads", "g.json"}));
}

}  // namespace
}  // namespace plumb::cli
