// SPDX-License-Identifier: Apache-2.0
// Errors in the arguments of plumb compare: exit code 2, a message, and nothing written.

#include <gmock/gmock.h>

#include <array>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::HasSubstr;

class CompareBadInputTest : public PlumbTest {
 protected:
  void ExpectError(const std::vector<std::string>& more, const std::string& message) {
    std::vector<std::string> arguments = {"compare", "--out", "study"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_FALSE(Exists("study")) << message;
  }
};

// Each would train the same twice.
TEST_F(CompareBadInputTest, RefusesTwoSpellingsOfOneValue) {
  for (const auto& [field, one, other] :
       std::vector<std::array<std::string, 3>>{{"train.learning_rate", "0.001", "1e-3"},
                                               {"train.learning_rate", "0.1", "0.1"},
                                               {"train.weight_decay", "0", "-0"},
                                               {"model.d_ff", "64", "064"},
                                               {"train.schedule", "COSINE", "cosine"},
                                               {"train.data.keep_order", "true", "1"},
                                               {"model.mlp.activation", "RELU", "relu"},
                                               {"model.d_ff", "4*d_model", "d_model * 4"}}) {
    std::string equal = ": ";
    equal += field + "=" + one + " and " + field + "=" + other + " train the same";
    const std::string word = field + "=" + one + ", " + other;
    ExpectError({"pre.pbtxt", "post.pbtxt", "--data", "names.txt", "--grid", "model.n_layer=1,2",
                 "--grid", word},
                "--grid " + word + equal);
    Write("s.pbtxt", "model: \"pre.pbtxt\"\ndata: \"names.txt\"\ngrid { field: \"" + field +
                         "\" value: \"" + one + "\" value: \" " + other + "\" }\n");
    ExpectError({"s.pbtxt"}, "s.pbtxt:3:8" + equal);
  }
}

// A field may change nothing in some models and cells.
TEST_F(CompareBadInputTest, ValuesThatDifferInOneCellAreDifferent) {
  for (const char* grid : {"model.block.norm=rms_norm,layer_norm", "model.n_layer=1,2"}) {
    const Finished result =
        RunPlumb({"compare", "pre.pbtxt", "--data", "names.txt", "--grid",
                  "model.block.placement=none,pre", "--grid", grid, "--dry-run", "--out", "study"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
}

TEST_F(CompareBadInputTest, RefusesADirectoryWithARun) {
  ASSERT_EQ(RunPlumb(TrainArguments("run", 3)).exit_code, 0);
  const Finished result = RunPlumb({"compare", "pre.pbtxt", "--data", "names.txt", "--out", "run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("holds a single run"));
  EXPECT_FALSE(Exists("run/study.pbtxt"));
  EXPECT_EQ(
      RunPlumb({"compare", "pre.pbtxt", "--data", "names.txt", "--out", "pre.pbtxt/x"}).exit_code,
      2);
}

}  // namespace
}  // namespace plumb::cli
