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

class BadInputTest : public PlumbTest {
 protected:
  void TrainRun() {
    const Finished trained = RunPlumb(TrainArguments("run", 5));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
};

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
