// SPDX-License-Identifier: Apache-2.0
// Tests of plumb train --probe: it adds statistics and does not change the losses.

#include <gmock/gmock.h>

#include <sstream>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ProbeTest : public PlumbTest {
 protected:
  Finished Train(const std::string& out, const std::vector<std::string>& more) {
    return RunPlumb(TrainArguments(out, 20, more));
  }
  std::vector<nlohmann::json> Probes(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    std::istringstream stream(Read(run + "/probes.jsonl"));
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(nlohmann::json::parse(line, nullptr, false));
    }
    return lines;
  }
};

TEST_F(ProbeTest, AllGroupsChangeNoLossAndThreadsChangeNoFigure) {
  std::vector<std::string> options = {"--probe-every", "5"};
  for (const char* group : {"default", "attention", "sublayers", "updates", "spectral", "gates"}) {
    options.insert(options.end(), {"--probe-point", group});
  }
  options.insert(options.end(), {"--threads", "1"});
  ASSERT_EQ(Train("off", {}).exit_code, 0);
  EXPECT_FALSE(Exists("off/probes.jsonl"));
  const Finished one = Train("one", options);
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.err, HasSubstr("probing step 1 and every 5 into one/probes.jsonl"));
  options.back() = "2";
  ASSERT_EQ(Train("two", options).exit_code, 0);
  EXPECT_EQ(Read("one/probes.jsonl"), Read("two/probes.jsonl"));
  EXPECT_EQ(Losses("one"), Losses("off"));
  EXPECT_EQ(Read("one/checkpoints/step-000020/model.safetensors"),
            Read("off/checkpoints/step-000020/model.safetensors"));
  const auto last = Probes("one").back();
  EXPECT_GT(last["activations"]["layers.0.attention.entropy"]["mean"], 0);
  EXPECT_GT(last["activations"]["layers.0.attention.max_logit"]["max"], 0);
  EXPECT_GT(last["activations"]["layers.0.mlp.down"]["rms"], 0);
  EXPECT_GT(last["parameters"]["head.weight"]["update_ratio"], 0);
  EXPECT_GT(last["parameters"]["head.weight"]["spectral_norm"], 0);
}

TEST_F(ProbeTest, PointsAreChosenByGlob) {
  const Finished result =
      Train("some", {"--probe-point", "layers.?.residual", "--probe-point", "grad.logits"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto probes = Probes("some");
  ASSERT_EQ(probes.size(), 1u) << "every 100 by default";
  EXPECT_EQ(probes[0]["gradients"].size(), 1u);
  EXPECT_TRUE(probes[0]["activations"].contains("layers.0.residual"));
  EXPECT_TRUE(probes[0]["parameters"].empty());
}

TEST_F(ProbeTest, ExplainListsThePoints) {
  const Finished result = RunPlumb({"explain", "pre.pbtxt", "--stage", "probes"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("* layers.0.attention.residual\n"), HasSubstr("  layers.0.attention.q\n"),
            HasSubstr("* grad.layers.0.residual\n"), HasSubstr("* param.head.weight")));
}

}  // namespace
}  // namespace plumb::cli
