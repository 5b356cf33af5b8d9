// SPDX-License-Identifier: Apache-2.0
// Every error of a user ends with an exit code, the place of the error and a suggestion.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class BadInputTest : public PlumbTest {
 protected:
  // Describes pre.pbtxt with `from` replaced by `to` and `more` appended, as my.pbtxt.
  Finished DescribeEdited(const std::string& from, const std::string& to,
                          const std::string& more = "") {
    std::string text = Read("pre.pbtxt");
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    Write("my.pbtxt", text + more);
    return RunPlumb({"describe", "my.pbtxt"});
  }

  void TrainRun() {
    const Finished trained = RunPlumb(TrainArguments("run", 5));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
};

TEST_F(BadInputTest, UnknownFieldHasItsPlaceAndASuggestion) {
  const Finished result = DescribeEdited("n_layer: 8", "n_layr: 8");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("error: my.pbtxt:4:"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("\"n_layr\""), HasSubstr("did you mean \"n_layer\"?")));
  EXPECT_THAT(result.out, IsEmpty());
}

TEST_F(BadInputTest, UnknownNormPluginHasItsPlaceAndASuggestion) {
  const Finished result = DescribeEdited("\"rms_norm\"", "\"rms_nrm\"");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("error: my.pbtxt:12:"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("\"rms_nrm\""), HasSubstr("did you mean \"rms_norm\"?")));
}

TEST_F(BadInputTest, UnknownNormHasItsPlaceAndASuggestion) {
  const Finished result = DescribeEdited("norm: \"rms\"", "norm: \"rmz\"");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("error: my.pbtxt:13:"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("\"rmz\""), HasSubstr("did you mean \"rms\"?")));
}

TEST_F(BadInputTest, UnknownPlacementHasItsPlaceAndASuggestion) {
  const Finished result = DescribeEdited("placement: \"pre\"", "placement: \"deepnrm\"");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("error: my.pbtxt:13:"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("\"deepnrm\""), HasSubstr("did you mean \"deepnorm\"?")));
}

TEST_F(BadInputTest, BadFormulaIsShownWithACaret) {
  const Finished result =
      DescribeEdited("placement: \"pre\"", "placement: \"mine\"",
                     "placement { name: \"mine\" each: \"x = x + f(norm(x)\" }\n");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("error: my.pbtxt:14:"));
  EXPECT_THAT(result.err, HasSubstr("  x = x + f(norm(x)\n                   ^"));
}

TEST_F(BadInputTest, AttributeOutOfRangeHasItsPlaceAndTheRange) {
  const Finished result = DescribeEdited("1e-5", "7");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("error: my.pbtxt:12:"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("\"eps\""), HasSubstr("[0, 1]")));
}

TEST_F(BadInputTest, MissingVocabularyIsExplained) {
  const Finished result = DescribeEdited("vocab_size: 27", "");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--set model.vocab_size=N"));
}

TEST_F(BadInputTest, PluginThatIsNotAPluginExitsWith3) {
  for (const char* command : {"list", "describe"}) {
    std::vector<std::string> arguments = {"--plugin", "names.txt", "plugin", command};
    if (std::string(command) == "describe") arguments.push_back("rms_norm");
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, AllOf(StartsWith("error: "), HasSubstr("names.txt")));
  }
  const Finished after = RunPlumb({"describe", "pre.pbtxt", "--plugin", "names.txt"});
  EXPECT_EQ(after.exit_code, 3);
}

TEST_F(BadInputTest, UnknownPluginIdHasASuggestion) {
  const Finished result = RunPlumb({"plugin", "describe", "layer_nrom"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean \"layer_norm\"?"));
}

TEST_F(BadInputTest, EmptyAndMissingDataFilesAreNamed) {
  Write("empty.txt", "");
  for (const char* data : {"empty.txt", "missing.txt"}) {
    const Finished result = RunPlumb({"train", "pre.pbtxt", "--data", data, "--out", "run"});
    EXPECT_EQ(result.exit_code, 2) << data;
    EXPECT_THAT(result.err, HasSubstr(std::string(data) + ":"));
    EXPECT_FALSE(Exists("run/model.pbtxt"));
  }
}

// The files are endless, or longer than any memory.
TEST_F(BadInputTest, EndlessFilesAreRefused) {
  Write("sparse", "");
  std::filesystem::resize_file(directory() + "/sparse", uintmax_t{1} << 40);
  TrainRun();
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& file) {
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments[0];
    EXPECT_THAT(result.err, AllOf(HasSubstr(file + ": is longer than the "), HasSubstr("bytes")));
  };
  for (const std::string file : {"/dev/zero", "sparse"}) {
    refused({"train", "pre.pbtxt", "--data", file}, file);
    refused({"train", "pre.pbtxt", "--data", "names.txt", "--train", file}, file);
    refused({"train", file, "--data", "names.txt"}, file);
    refused({"describe", file}, file);
    refused({"compare", "pre.pbtxt", file, "--data", "names.txt", "--out", "study"}, file);
    refused({"compare", "pre.pbtxt", "--data", file, "--out", "study"}, file);
    refused({"eval", "run", "--data", file}, file);
  }
  const auto replaced = [&](const std::string& name) {
    const std::string path = directory() + "/run/" + name;
    std::filesystem::remove(path);
    std::filesystem::create_symlink("/dev/zero", path);
    const Finished result = RunPlumb({"train", "--resume", "--out", "run", "--data", "names.txt"});
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_THAT(result.err, AllOf(HasSubstr("run/" + name), HasSubstr("is longer than")));
  };
  const std::string checkpoint =
      "checkpoints/" + Read("run/latest").substr(0, std::string("step-000005").size());
  for (const std::string& name :
       {checkpoint + "/state.json", std::string("latest"), std::string("run.json"),
        std::string("tokenizer.json"), std::string("train.pbtxt"), std::string("model.pbtxt")}) {
    replaced(name);
  }
}

TEST_F(BadInputTest, PipesWithoutOtherEndFail) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  for (const std::vector<std::string>& reads : std::vector<std::vector<std::string>>{
           {"describe", "pipe"},
           {"train", "pre.pbtxt", "--data", "pipe", "--out", "other"},
           {"train", "pre.pbtxt", "--data", "names.txt", "--train", "pipe", "--out", "other"}}) {
    const Finished result = RunPlumb(reads);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("pipe: is a pipe that nobody writes to\n"));
  }
}

TEST_F(BadInputTest, SettingsAreChecked) {
  struct Case {
    const char *setting, *message;
  };
  for (const Case& c :
       {Case{"n_layer=4", "did you mean \"model.n_layer\""},
        Case{"lr=4", "did you mean \"train.learning_rate\"?"},
        Case{"model.block_size=4", "did you mean \"model.context_length\"?"},
        Case{"model.schedule=COSINE", "did you mean \"train.schedule\"?"},
        Case{"modle.n_layer=4", "did you mean \"model\"?"},
        Case{"trian.max_steps=4", "did you mean \"train\"?"},
        Case{"model.n_layr=4", "did you mean \"n_layer\"?"},
        Case{"train.max_stps=4", "did you mean \"max_steps\"?"}, Case{"model.n_layer", "no \"=\""},
        Case{"model.n_layer=four", "\"four\""}, Case{"model.n_layer=", "model.n_layer"}}) {
    const Finished result =
        RunPlumb({"train", "pre.pbtxt", "--data", "names.txt", "--out", "run", "--set", c.setting});
    EXPECT_EQ(result.exit_code, 2) << c.setting;
    EXPECT_THAT(result.err, HasSubstr(c.message)) << c.setting;
    EXPECT_FALSE(Exists("run/model.pbtxt")) << c.setting;
  }
  const Finished explain =
      RunPlumb({"explain", "pre.pbtxt", "--stage", "graph", "--set", "train.max_steps=4"});
  EXPECT_EQ(explain.exit_code, 2);
  EXPECT_THAT(explain.err, HasSubstr("train.max_steps"));
}

TEST_F(BadInputTest, RecipeGivenAsModelIsRecognized) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"describe", "train.pbtxt"},
           {"train", "train.pbtxt", "--data", "names.txt", "--out", "run"},
           {"compare", "pre.pbtxt", "train.pbtxt", "--data", "names.txt", "--out", "study"},
           {"bench", "train.pbtxt"}}) {
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments[0];
    EXPECT_THAT(result.err, AllOf(StartsWith("error: train.pbtxt: is a recipe, not a "),
                                  HasSubstr("--train train.pbtxt")))
        << arguments[0];
  }
  // Even if it has an error of its own.
  Write("my.pbtxt", Read("train.pbtxt") + "\nmax_stps: 4\n");
  EXPECT_THAT(RunPlumb({"describe", "my.pbtxt"}).err, HasSubstr("is a recipe, not a model"));
}

TEST_F(BadInputTest, ModelGivenAsRecipeIsRecognized) {
  const Finished result = RunPlumb(
      {"train", "pre.pbtxt", "--train", "post.pbtxt", "--data", "names.txt", "--out", "run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("error: post.pbtxt: is a model, not a recipe; give it as "
                                     "MODEL"));
}

TEST_F(BadInputTest, StudyGivenAsModelIsRecognized) {
  Write("study.pbtxt", "model: \"pre.pbtxt\"\ndata: \"names.txt\"\nseeds: 2\n");
  const Finished result = RunPlumb({"describe", "study.pbtxt"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("study.pbtxt: is a study, not a model"),
                                HasSubstr("plumb compare study.pbtxt")));
}

TEST_F(BadInputTest, FieldsOfOtherProgramsHaveAHint) {
  struct Case {
    const char *field, *hint;
  };
  for (const Case& c : {Case{"n_embd", "did you mean \"d_model\"?"},
                        Case{"block_size", "did you mean \"context_length\"?"},
                        Case{"lr", "it is a field of the recipe: train.learning_rate"},
                        Case{"max_iters", "it is a field of the recipe: train.max_steps"},
                        Case{"dropout", "drop(..) in a formula"}}) {
    const Finished result =
        DescribeEdited("n_layer: 8", std::string("n_layer: 8 ") + c.field + ": 3");
    EXPECT_EQ(result.exit_code, 2) << c.field;
    EXPECT_THAT(result.err, AllOf(HasSubstr("unknown field"), HasSubstr(c.hint))) << c.field;
  }
  Write("my_recipe.pbtxt", "lr: 0.1 batch_size: 2 max_iters: 4");
  const Finished recipe = RunPlumb(
      {"train", "pre.pbtxt", "--train", "my_recipe.pbtxt", "--data", "names.txt", "--out", "run"});
  EXPECT_THAT(recipe.err, AllOf(HasSubstr("did you mean \"learning_rate\"?"),
                                HasSubstr("did you mean \"max_steps\"?")));
}

TEST_F(BadInputTest, DataBeyondTheVocabularyIsExplained) {
  Write("digits.txt", "0123456789\nabcdefghijklmnopqrstuvwxyz\n");
  const Finished result = RunPlumb(
      {"train", "pre.pbtxt", "--train", "train.pbtxt", "--data", "digits.txt", "--out", "run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("digits.txt"), HasSubstr("vocab_size")));
}

TEST_F(BadInputTest, InvalidPromptsAreExplained) {
  TrainRun();
  const Finished letter = RunPlumb({"sample", "run", "--prompt", "Zoe"});
  EXPECT_EQ(letter.exit_code, 2);
  EXPECT_THAT(letter.err, AllOf(HasSubstr("prompt"), HasSubstr("'Z'"), HasSubstr("vocabulary")));
  const Finished length = RunPlumb({"sample", "run", "--prompt", "adaadaadaadaadaadaada"});
  EXPECT_EQ(length.exit_code, 2);
  EXPECT_THAT(length.err, AllOf(HasSubstr("prompt"), HasSubstr("context_length"), HasSubstr("16")));
}

TEST_F(BadInputTest, AlteredCheckpointIsRefused) {
  TrainRun();
  const std::string weights = "run/checkpoints/step-000005/model.safetensors";
  const std::string good = Read(weights);
  ASSERT_GT(good.size(), 1000u);
  std::string flipped = good;
  flipped[flipped.size() - 100] = static_cast<char>(flipped[flipped.size() - 100] ^ 1);
  for (const std::string& bad : {flipped, good.substr(0, good.size() / 2), std::string()}) {
    Write(weights, bad);
    const Finished sample = RunPlumb({"sample", "run"});
    EXPECT_EQ(sample.exit_code, 2);
    EXPECT_THAT(sample.err, HasSubstr("model.safetensors"));
    EXPECT_THAT(sample.out, IsEmpty());
    const Finished resume = RunPlumb(TrainArguments("run", 5, {"--resume"}));
    EXPECT_EQ(resume.exit_code, 2);
    EXPECT_THAT(resume.err, HasSubstr("model.safetensors"));
  }
  Write(weights, good);
  EXPECT_EQ(RunPlumb({"sample", "run"}).exit_code, 0);
}

TEST_F(BadInputTest, AlteredStateIsRefused) {
  TrainRun();
  const std::string state = "run/checkpoints/step-000005/state.json";
  std::string text = Read(state);
  const size_t step = text.find("\"step\":");
  ASSERT_NE(step, std::string::npos);
  text[text.find('5', step)] = '4';
  Write(state, text);
  const Finished result = RunPlumb({"sample", "run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("state.json"));
}

TEST_F(BadInputTest, InvalidRunsAreNamed) {
  const Finished nothing = RunPlumb({"sample", "nowhere"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("nowhere"));
  const Finished resume =
      RunPlumb({"train", "--resume", "--out", "nowhere", "--data", "names.txt"});
  EXPECT_EQ(resume.exit_code, 2);
  EXPECT_THAT(resume.err, HasSubstr("nowhere"));
}

TEST_F(BadInputTest, ResumingWithOtherDataIsRefused) {
  TrainRun();
  Write("other.txt", "ada\nalan\n");
  const std::vector<double> before = Losses("run");
  const Finished result = RunPlumb({"train", "--resume", "--out", "run", "--data", "other.txt"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("other.txt"));
  EXPECT_EQ(Losses("run"), before);
}

TEST_F(BadInputTest, ARunIsNotOverwritten) {
  TrainRun();
  const Finished result = RunPlumb(TrainArguments("run", 7));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("run"), HasSubstr("--resume")));
  EXPECT_EQ(Losses("run").size(), 5u);
}

}  // namespace
}  // namespace plumb::cli
