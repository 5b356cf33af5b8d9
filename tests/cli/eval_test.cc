// SPDX-License-Identifier: Apache-2.0
// Tests of plumb eval on a run's data, and on tokens for a comparison with other implementations.

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class EvalTest : public PlumbTest {
 protected:
  static std::string Golden(const std::string& name) {
    return std::string(PLUMB_SOURCE_DIR "/tests/golden/pre/") + name;
  }
  // Copies the model, its weights and tokens into the test's directory.
  void CopyGolden() const {
    for (const char* name : {"model.pbtxt", "weights.safetensors", "tokens.json"}) {
      std::filesystem::copy_file(Golden(name), directory() + "/" + name);
    }
  }
  Finished EvalTokens(const std::string& tokens, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"eval",      Golden("model.pbtxt"),
                                          "--weights", Golden("weights.safetensors"),
                                          "--tokens",  tokens};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  }
};

TEST_F(EvalTest, EvaluatesARunOnItsData) {
  const Finished trained =
      RunPlumb(TrainArguments("run", 200, {"--set", "train.data.val_fraction=0.25"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Finished text = RunPlumb({"eval", "run", "--data", "names.txt"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("training "), HasSubstr("validation "), HasSubstr("loss ")));
  const Finished json = RunPlumb({"eval", "run", "--data", "names.txt", "--json"});
  const auto result = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_TRUE(result.is_object()) << json.out;
  EXPECT_EQ(result["step"], 200);
  EXPECT_EQ(result["splits"]["training"]["sequences"], 18);
  EXPECT_EQ(result["splits"]["validation"]["sequences"], 6);
  EXPECT_LT(result["splits"]["training"]["loss"].get<double>(), std::log(27.0));
}

TEST_F(EvalTest, ReportsTheLossOfQuantizedWeights) {
  const Finished trained = RunPlumb(TrainArguments("run", 50));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  for (const std::string weights : {"bf16", "int8"}) {
    const std::vector<std::string> arguments = {"eval",      "run",       "--data",
                                                "names.txt", "--weights", weights};
    const Finished text = RunPlumb(arguments);
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_THAT(text.out, AllOf(HasSubstr(weights + " "), HasSubstr("difference ")));
    std::vector<std::string> in_json = arguments;
    in_json.push_back("--json");
    const Finished json = RunPlumb(in_json);
    const auto result = nlohmann::json::parse(json.out, nullptr, false);
    ASSERT_TRUE(result.is_object()) << json.out;
    const auto& split = result["splits"]["training"];
    const double f32 = split["loss"], coarse = split["loss_" + weights];
    EXPECT_NE(f32, coarse);
    EXPECT_NEAR(f32, coarse, 0.02);
    EXPECT_DOUBLE_EQ(split["difference"].get<double>(), coarse - f32);
  }
  const Finished wrong =
      RunPlumb({"eval", "run", "--data", "names.txt", "--weights", "model.safetensors"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("there are f32, bf16 and int8"));
}

TEST_F(EvalTest, StrideOverlapsWindows) {
  std::string words;
  for (int i = 0; i < 300; ++i) words += "abc abd ";
  Write("text.txt", words);
  std::vector<std::string> arguments = TrainArguments(
      "run", 40, {"--set", "train.data.format=TEXT", "--set", "train.data.val_fraction=0.25"});
  *(std::find(arguments.begin(), arguments.end(), "--data") + 1) = "text.txt";
  const Finished trained = RunPlumb(arguments);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto validation = [&](const std::vector<std::string>& more) {
    std::vector<std::string> eval = {"eval", "run", "--data", "text.txt", "--json"};
    eval.insert(eval.end(), more.begin(), more.end());
    const Finished json = RunPlumb(eval);
    EXPECT_EQ(json.exit_code, 0) << json.err;
    return nlohmann::json::parse(json.out, nullptr, false)["splits"]["validation"];
  };
  const auto apart = validation({}), overlapping = validation({"--stride", "1"});
  EXPECT_EQ(apart["targets"], 599);
  EXPECT_EQ(overlapping["targets"], 599);
  EXPECT_GT(overlapping["sequences"], apart["sequences"]);
  EXPECT_LT(overlapping["loss"], apart["loss"]) << "more context, less surprise";

  const Finished documents = RunPlumb(TrainArguments("names", 5));
  ASSERT_EQ(documents.exit_code, 0) << documents.err;
  const Finished wrong = RunPlumb({"eval", "names", "--data", "names.txt", "--stride", "2"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("a stride is for running text"));
  EXPECT_EQ(RunPlumb({"eval", "run", "--data", "text.txt", "--stride", "4000"}).exit_code, 2);
  for (const char* word : {"0", "-1", "010", "0x10", "5k"}) {
    const Finished no_number = RunPlumb({"eval", "run", "--data", "text.txt", "--stride", word});
    EXPECT_EQ(no_number.exit_code, 2) << word;
    EXPECT_THAT(no_number.err, HasSubstr("is not a whole number from 1")) << word;
  }
}

// golden_test compares every golden model. This test checks the files.
TEST_F(EvalTest, AgreesWithTheReference) {
  const Finished result = EvalTokens(Golden("tokens.json"),
                                     {"--logits", "logits.safetensors", "--grads", "grads.json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(Read("logits.safetensors"), HasSubstr("\"logits\""));
  const auto expected = nlohmann::json::parse(std::ifstream(Golden("grads.json")));
  const auto got = ReadJson("grads.json");
  ASSERT_TRUE(got.is_object()) << Read("grads.json");
  EXPECT_NEAR(got["loss"].get<double>(), expected["loss"].get<double>(), 1e-5);
  ASSERT_EQ(got["grad_l2"].size(), expected["grad_l2"].size());
  double largest = 0;
  for (const auto& norm : expected["grad_l2"]) largest = std::max(largest, norm.get<double>());
  for (const auto& [name, norm] : expected["grad_l2"].items()) {
    EXPECT_NEAR(got["grad_l2"].value(name, -1.0), norm.get<double>(), 1e-5 * largest) << name;
  }
}

TEST_F(EvalTest, PrintsTheLossWithoutOutputs) {
  const Finished text = EvalTokens(Golden("tokens.json"));
  EXPECT_EQ(text.out, "loss 2.9954\n");
  const Finished json = EvalTokens(Golden("tokens.json"), {"--json"});
  const auto result = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_TRUE(result.is_object()) << json.out;
  EXPECT_NEAR(result["loss"].get<double>(), 2.995359, 1e-5);
}

// A run gives the same outputs as its model and its weights in a file.
TEST_F(EvalTest, RunEqualsItsModelAndWeights) {
  const Finished trained = RunPlumb(TrainArguments("run", 5));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  Write("t.json", R"({"targets": [[2, null, -100, 4]], "sequences": [[1, 2, 3, 4]]})");
  const Finished of_run = RunPlumb({"eval", "run", "--tokens", "t.json", "--json", "--logits",
                                    "l.safetensors", "--gradients", "g.safetensors"});
  ASSERT_EQ(of_run.exit_code, 0) << of_run.err;
  const Finished of_model =
      RunPlumb({"eval", "run/model.pbtxt", "--weights",
                "run/checkpoints/step-000005/model.safetensors", "--tokens", "t.json", "--json",
                "--logits", "l2.safetensors", "--gradients", "g2.safetensors"});
  ASSERT_EQ(of_model.exit_code, 0) << of_model.err;
  EXPECT_EQ(of_run.out, of_model.out);
  EXPECT_EQ(Read("l.safetensors"), Read("l2.safetensors"));
  EXPECT_EQ(Read("g.safetensors"), Read("g2.safetensors"));
  EXPECT_THAT(Read("g.safetensors"),
              AllOf(HasSubstr("\"layers.0.attention.q.weight\""), HasSubstr("\"head.weight\"")));
  Write("next.json", "[[1, 2, 3, 4]]");
  const Finished next = RunPlumb({"eval", "run", "--tokens", "next.json", "--json"});
  EXPECT_NE(next.out, of_run.out);
  Write("said.json", R"({"sequences": [[1, 2, 3, 4]], "targets": [[2, 3, 4, null]]})");
  EXPECT_EQ(RunPlumb({"eval", "run", "--tokens", "said.json", "--json"}).out, next.out);
}

TEST_F(EvalTest, SequencesOfABidirectionalModelMayDifferInLength) {
  const std::string golden = PLUMB_SOURCE_DIR "/tests/golden/bert/";
  const auto eval = [&](const std::string& tokens, const std::vector<std::string>& more = {}) {
    Write("t.json", tokens);
    std::vector<std::string> arguments = {"eval",      golden + "model.pbtxt",
                                          "--weights", golden + "weights.safetensors",
                                          "--tokens",  "t.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  };
  EXPECT_THAT(eval(R"({"sequences": [[1, 2], [3]], "targets": [[1, null], [0]]})").out,
              StartsWith("loss "));
  const Finished no_targets = eval("[[1, 2], [3]]");
  EXPECT_EQ(no_targets.exit_code, 2);
  EXPECT_THAT(no_targets.err, HasSubstr("no token has a target"));
  EXPECT_EQ(eval("[[1, 2], [3]]", {"--logits", "l.safetensors"}).exit_code, 0);
  EXPECT_THAT(eval("[[1, 2], [3]]", {"--logits", "l.safetensors", "--json"}).out,
              HasSubstr("\"loss\": null"));
  const auto error = [&](const std::string& tokens) {
    const Finished result = eval(tokens, {"--gradients", "g.safetensors"});
    EXPECT_EQ(result.exit_code, 2) << tokens;
    EXPECT_FALSE(Exists("g.safetensors"));
    return result.err;
  };
  EXPECT_THAT(error("[[1, 2]]"), HasSubstr("no loss and no gradient"));
  EXPECT_EQ(error(R"({"sequences": [[1, 2]], "targets": [[1]]})"),
            "error: targets[0] has 1 elements for 2 tokens\n");
  EXPECT_EQ(error(R"({"sequences": [[1, 2]], "targets": [[1, 1], [2]]})"),
            "error: targets has 2 lists for 1 sequences\n");
  EXPECT_EQ(error(R"({"sequences": [[1, 2]], "targets": [[1, 13]]})"),
            "error: sequence 0, target 1: 13 is not in 0..12\n");
  EXPECT_EQ(error(R"({"sequences": [[1, 2]], "targets": [[1, 1]], "token_types": [[0, 2]]})"),
            "error: sequence 0, type 1: 2 is not in 0..1\n");
  EXPECT_EQ(error(R"({"sequences": [[1, 13]], "targets": [[1, 1]]})"),
            "error: sequence 0, token 1: 13 is not in 0..12\n");
  EXPECT_EQ(error(R"({"sequences": [[1, 2], []], "targets": [[1, 1], []]})"),
            "error: sequence 1 is empty\n");
  EXPECT_EQ(error(R"({"sequences": [[1, -100]], "targets": [[1, 1]]})"),
            "error: t.json: sequences[0][1]: -100 is not a token id\n");
  EXPECT_EQ(error(R"({"sequences": [[1, 2]], "targets": [[1, -1]]})"),
            "error: t.json: targets[0][1]: -1 is not a token id, -100 or null\n");
  EXPECT_EQ(error(R"({"sequences": [[1, 2]], "token_types": [[0, null]]})"),
            "error: t.json: token_types[0][1]: expected a token type, found null\n");
  EXPECT_EQ(
      error(R"({"sequences": [[1, 2]], "target": [[1, 1]]})"),
      "error: t.json: unknown key \"target\"; did you mean \"targets\"?; there are sequences, "
      "targets and token_types\n");
  EXPECT_EQ(error(R"({"sequences": [[1]], "sequences": [[1]]})"),
            "error: t.json: \"sequences\" is there twice\n");
  EXPECT_EQ(error(R"({"sequences": 3})"),
            "error: t.json: sequences: expected a list of sequences, found 3\n");
  EXPECT_EQ(error("{}"), "error: there are no sequences; give one or more\n");
  Write("types.json", R"({"sequences": [[1, 2]], "token_types": [[0, 0]]})");
  EXPECT_THAT(EvalTokens("types.json").err, HasSubstr("the model has no token_types"));
}

TEST_F(EvalTest, HostileTokensAreRefused) {
  for (const std::string& tokens :
       {std::string(), std::string("[[1,2],[1"), std::string("{\"tokens\": [[1, 2]]}"),
        std::string("[1, 2]"), std::string("[[1, \"2\"]]"), std::string("[[1, null]]"),
        std::string("[[1, 1.5]]"), std::string("[[1, -1]]"), std::string("[[1, 11]]"),
        std::string("[[1, 4294967297]]"), std::string("[[1, 99999999999999999999999]]"),
        std::string("[[1, 2], [1]]"), std::string("[]"), std::string("[[]]"), std::string("[[1]]"),
        std::string("[[1,2,3,4,5,6,7,8,9]]"), std::string("[[1, 2]] 3"), std::string(100000, '['),
        std::string("[[1, 2\xff]]")}) {
    Write("t.json", tokens);
    const Finished result = EvalTokens("t.json", {"--grads", "g.json"});
    EXPECT_EQ(result.exit_code, 2) << tokens.substr(0, 80);
    EXPECT_THAT(result.err, StartsWith("error: ")) << tokens.substr(0, 80);
    EXPECT_FALSE(Exists("g.json"));
  }
}

TEST_F(EvalTest, PipeWithoutWriterFails) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const Finished result = EvalTokens("pipe");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("pipe: is a pipe that nobody writes to\n"));
}

TEST_F(EvalTest, HostileWeightsAreRefused) {
  for (const std::string& weights : {std::string(), std::string("text"), std::string(64, '\xff')}) {
    Write("w.safetensors", weights);
    const Finished result = RunPlumb({"eval", Golden("model.pbtxt"), "--weights", "w.safetensors",
                                      "--tokens", Golden("tokens.json")});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("w.safetensors"));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST_F(EvalTest, OutputsMustBeDistinctFiles) {
  CopyGolden();
  const std::string weights = Read("weights.safetensors");
  ASSERT_EQ(symlink("weights.safetensors", (directory() + "/link").c_str()), 0);
  const auto eval = [&](const std::vector<std::string>& outputs) {
    std::vector<std::string> arguments = {
        "eval", "model.pbtxt", "--weights", "weights.safetensors", "--tokens", "tokens.json"};
    arguments.insert(arguments.end(), outputs.begin(), outputs.end());
    return RunPlumb(arguments);
  };
  for (const char* path : {"weights.safetensors", "link", "tokens.json", "model.pbtxt"}) {
    const Finished result = eval({"--logits", path});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr(path), HasSubstr("would be lost")));
  }
  const Finished result = eval({"--logits", "out", "--grads", "./out"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("write to two files"));
  EXPECT_FALSE(Exists("out"));
  EXPECT_EQ(Read("weights.safetensors"), weights);
}

TEST_F(EvalTest, DevicesAndLinksAreWrittenInPlace) {
  CopyGolden();
  ASSERT_EQ(symlink("target", (directory() + "/link").c_str()), 0);
  const auto eval = [&](const std::string& path) {
    return RunPlumb({"eval", "model.pbtxt", "--weights", "weights.safetensors", "--tokens",
                     "tokens.json", "--logits", path});
  };
  EXPECT_EQ(eval("/dev/null").exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  const Finished full = eval("/dev/full");
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.err, HasSubstr("/dev/full: cannot write: No space left on device"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  EXPECT_EQ(eval("link").exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(directory() + "/link"));
  EXPECT_THAT(Read("target"), HasSubstr("\"logits\""));
}

TEST_F(EvalTest, OutputsThatCannotBeWrittenAreNamed) {
  const Finished result = EvalTokens(Golden("tokens.json"), {"--grads", "no/such/place.json"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("no/such/place.json"));
}

}  // namespace
}  // namespace plumb::cli
