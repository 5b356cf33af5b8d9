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

TEST_F(CompareBadInputTest, NamesMissingFiles) {
  ExpectError({"gone.pbtxt", "--data", "names.txt"}, "gone.pbtxt: cannot open");
  ExpectError({"pre.pbtxt", "--data", "gone.txt"}, "gone.txt: cannot open");
  ExpectError({"pre.pbtxt", "--data", "names.txt", "--train", "gone.pbtxt"},
              "gone.pbtxt: cannot open");
  ExpectError({"pre.pbtxt"}, "--data is missing; write --data FILE");
  ExpectError({"--data", "names.txt"}, "MODEL");
}

TEST_F(CompareBadInputTest, SuggestsFieldNames) {
  const std::vector<std::pair<std::string, std::string>> grids = {
      {"model.n_layers=4,8", "--grid model.n_layers=4,8: model.n_layers: "},
      {"model.n_layers=4,8", "did you mean \"n_layer\"?"},
      {"n_layer=4,8", "did you mean \"model.n_layer\""},
      {"modle.n_layer=4", "did you mean \"model\"?"},
      {"train.max_stepss=4", "did you mean \"max_steps\"?"},
      {"train.seed=1,2", "--seeds"},
      {"model.n_layer=4,x", "model.n_layer: "},
      {"model.n_layer=", "--grid model.n_layer=: a value is missing"},
      {"model.n_layer=4,,8", "a value is missing"},
      {"model.n_layer=4, ", "a value is missing"},
      {"model.n_layer", "no \"=\""}};
  for (const auto& [grid, message] : grids) {
    ExpectError({"pre.pbtxt", "--data", "names.txt", "--grid", grid}, message);
  }
  ExpectError({"pre.pbtxt", "--data", "names.txt", "--set", "model.n_layers=4"},
              "did you mean \"n_layer\"?");
}

TEST_F(CompareBadInputTest, RefusesInvalidSeeds) {
  for (const char* seeds : {"0", "-1", "x", "1e3", "10001"}) {
    ExpectError({"pre.pbtxt", "--data", "names.txt", "--seeds", seeds},
                "is not a whole number from 1 to 10000");
  }
  ExpectError({"pre.pbtxt", "--data", "names.txt", "--seed", "1", "--seed", "1"}, "is given twice");
  ExpectError({"pre.pbtxt", "--data", "names.txt", "--seed", "1", "--seeds", "2"},
              "--seeds and --seed exclude each other");
}

TEST_F(CompareBadInputTest, RefusesImpossibleValues) {
  ExpectError({"pre.pbtxt", "--data", "names.txt", "--grid", "model.n_head=4,3"}, "n_head");
  ExpectError({"pre.pbtxt", "--data", "names.txt", "--set", "train.max_steps=0"},
              "max_steps must be at least 1");
  ExpectError({"pre.pbtxt", "--data", "names.txt", "--grid", "model.vocab_size=27,3"},
              "names.txt: has ");
  Write("short.txt", "abc");
  ExpectError({"pre.pbtxt", "--data", "short.txt", "--set", "model.vocab_size=3"}, "short.txt");
}

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

TEST_F(CompareBadInputTest, StudyFileErrorsHavePlaces) {
  Write("s.pbtxt", "model: \"pre.pbtxt\"\ndata: \"names.txt\"\nseeds: 0\n");
  ExpectError({"s.pbtxt"}, "s.pbtxt:3:1: seeds must be in 1..10000");
  Write("s.pbtxt",
        "model: \"pre.pbtxt\"\ndata: \"names.txt\"\n"
        "grid { field: \"model.n_layers\" value: \"2\" }\n");
  ExpectError({"s.pbtxt"}, "s.pbtxt:3:8: model.n_layers: ");
  const std::string grid =
      "model: \"pre.pbtxt\"\ndata: \"names.txt\"\ngrid { field: \"model.n_layer\" value: \"2\"";
  Write("s.pbtxt", grid + " value: \" \" }\n");
  ExpectError({"s.pbtxt"}, "s.pbtxt:3:8: a value is missing");
  Write("s.pbtxt", grid + " }\ngrid { field: \"model.n_layer\" value: \"3\" }\n");
  ExpectError({"s.pbtxt"}, "s.pbtxt:4:8: model.n_layer is in the grid already");
  Write("s.pbtxt", "model: \"pre.pbtxt\"\ndata: \"names.txt\"\nset: \"train.max_steps\"\n");
  ExpectError({"s.pbtxt"}, "s.pbtxt:3:");
  ExpectError({"s.pbtxt", "pre.pbtxt"}, "give it alone");
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
