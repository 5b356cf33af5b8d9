// SPDX-License-Identifier: Apache-2.0
// Tests of plumb sample.

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class SampleTest : public PlumbTest {
 protected:
  void SetUp() override {
    const Finished trained = RunPlumb(TrainArguments("run", 100));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  std::string Sample(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"sample", "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    return result.out;
  }
};

TEST_F(SampleTest, DrawsTwentyLinesByDefault) {
  const std::string twenty = Sample({});
  EXPECT_EQ(std::count(twenty.begin(), twenty.end(), '\n'), 20);
  const std::string three = Sample({"--num", "3"});
  EXPECT_EQ(std::count(three.begin(), three.end(), '\n'), 3);
  EXPECT_THAT(twenty, StartsWith(three));
}

TEST_F(SampleTest, IsReproducibleForASeed) {
  const std::string first = Sample({"--seed", "7", "--temperature", "1"});
  EXPECT_EQ(Sample({"--seed", "7", "--temperature", "1"}), first);
  EXPECT_EQ(Sample({"--seed", "7", "--temperature", "1", "--threads", "1"}), first);
  EXPECT_NE(Sample({"--seed", "8", "--temperature", "1"}), first);
}

TEST_F(SampleTest, ContinuesThePrompt) {
  EXPECT_THAT(Sample({"--prompt", "gra", "--num", "1"}), StartsWith("gra"));
  EXPECT_EQ(Sample({"--prompt", "", "--num", "2"}), Sample({"--num", "2"}));
  EXPECT_EQ(Sample({"--prompt=", "--num", "2"}), Sample({"--num", "2"}));
}

// Some samples consist of the end token alone, and are printed as lines without characters.
TEST_F(SampleTest, PrintsAnEmptySampleAsAnEmptyLine) {
  const std::string samples = Sample({"--num", "300", "--temperature", "1000"});
  EXPECT_THAT(samples, HasSubstr("\n\n"));
  EXPECT_EQ(samples.find_first_of("0123456789"), std::string::npos) << samples;
}

TEST_F(SampleTest, ContinuesTokens) {
  // The ids are those of the text "gra": the begin token, which is the last of the vocabulary, and
  // letters.
  const std::vector<std::string> letters = ReadJson("run/tokenizer.json")["characters"];
  const auto id = [&](const std::string& letter) {
    return std::find(letters.begin(), letters.end(), letter) - letters.begin();
  };
  const std::string begin = std::to_string(letters.size());
  const std::string gra = "[" + begin + ", " + std::to_string(id("g")) + ", " +
                          std::to_string(id("r")) + ", " + std::to_string(id("a")) + "]";
  const auto tokens = [&](const std::string& ids, const std::vector<std::string>& more = {}) {
    Write("p.json", ids);
    std::vector<std::string> arguments = {"--prompt-tokens", "p.json", "--temperature", "0",
                                          "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return nlohmann::json::parse(Sample(arguments), nullptr, false);
  };
  const auto by_text = nlohmann::json::parse(
      Sample({"--prompt", "gra", "--temperature", "0", "--num", "1", "--json"}), nullptr, false);
  const auto by_ids = tokens(gra);
  ASSERT_EQ(by_ids["samples"].size(), 1u);
  EXPECT_EQ(by_ids["samples"][0]["text"], by_text["samples"][0]["text"]);
  EXPECT_EQ(by_ids["samples"][0]["ids"], by_text["samples"][0]["ids"]);
  EXPECT_EQ(by_ids["samples"][0]["ids"].size(), by_ids["samples"][0]["tokens"].get<size_t>());
  const auto two = tokens("[" + gra + ", [" + begin + "]]", {"--max-tokens", "3"});
  ASSERT_EQ(two["samples"].size(), 2u);
  EXPECT_LE(two["samples"][0]["ids"].size(), 3u);
  EXPECT_THAT(two["samples"][0]["text"].get<std::string>(), StartsWith("gra"));
  EXPECT_EQ(tokens("[[0], [1]]", {"--num", "2"})["samples"].size(), 4u);

  const auto error = [&](const std::string& ids, const std::vector<std::string>& more = {}) {
    Write("p.json", ids);
    std::vector<std::string> arguments = {"sample", "run", "--prompt-tokens", "p.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 2) << ids;
    EXPECT_THAT(result.out, IsEmpty());
    return result.err;
  };
  EXPECT_THAT(error("[0, 27]"), HasSubstr("prompt: token 27 at position 1 is outside"));
  EXPECT_THAT(error("[0, -1]"), HasSubstr("p.json: tokens[1]: -1 is not a token id"));
  EXPECT_THAT(error("[0, [1]]"), HasSubstr("tokens[1]: expected a token id, found a list"));
  EXPECT_THAT(error("[[0], 1]"), HasSubstr("tokens[1]: expected a list of token ids, found 1"));
  EXPECT_THAT(error("[]"), HasSubstr("p.json: has no sequence of tokens"));
  EXPECT_THAT(error("[[1], []]"), HasSubstr("tokens[1] is empty"));
  EXPECT_THAT(error("{\"sequences\": [[1]]}"), HasSubstr("the file: expected"));
  EXPECT_THAT(error("[1]", {"--prompt", "a"}),
              HasSubstr("--prompt and --prompt-tokens exclude each other"));
}

TEST_F(SampleTest, GreedySamplesAreEqual) {
  const std::string greedy = Sample({"--temperature", "0", "--num", "2"});
  EXPECT_EQ(greedy.substr(0, greedy.size() / 2), greedy.substr(greedy.size() / 2));
  EXPECT_EQ(Sample({"--top-k", "1", "--num", "2", "--seed", "9"}), greedy);
}

TEST_F(SampleTest, EndsBeforeAStopText) {
  std::string seed;
  const auto sample = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "--temperature", "1", "--prompt", "gra", "--num", "1", "--json", "--seed", seed};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return nlohmann::json::parse(Sample(arguments), nullptr, false)["samples"][0];
  };
  nlohmann::json whole;
  std::string drawn;
  for (int i = 1; drawn.size() < 3 && i < 50; ++i) {
    seed = std::to_string(i);
    whole = sample({"--max-tokens", "20"});
    drawn = whole["text"].get<std::string>().substr(3);
  }
  ASSERT_GE(drawn.size(), 3u);
  // One stop text has two tokens, the other never occurs.
  const std::string stop = drawn.substr(drawn.size() - 2);
  const auto stopped = sample({"--max-tokens", "20", "--stop", "xyzzy", "--stop", stop});
  EXPECT_EQ(stopped["text"], "gra" + drawn.substr(0, drawn.find(stop)));
  EXPECT_EQ(stopped["ended"], true);
  EXPECT_EQ(stopped["tokens"], drawn.find(stop) + 2);
  // Text that began like a stop text but did not become one is printed.
  EXPECT_EQ(sample({"--max-tokens", "20", "--stop", drawn + "\n"})["text"], whole["text"]);
  // Stop texts are not searched in the prompt.
  EXPECT_EQ(sample({"--max-tokens", "1", "--stop", "gra"})["tokens"], 1);
  EXPECT_THAT(RunPlumb({"sample", "run", "--stop", ""}).err, HasSubstr("a stop text is empty"));
}

TEST_F(SampleTest, EndsAtTheRecipesEndToken) {
  Write("text.txt", "one. two. three. four. five. six. seven. eight. nine. ten.\n");
  const auto train = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train", "model.pbtxt", "--data", "text.txt",
                                          "--out", out,           "--set",  "train.max_steps=2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  };
  Write("model.pbtxt",
        "n_layer: 1 n_head: 2 d_model: 8 context_length: 8 "
        "block { placement: \"pre\" norm: \"rms_norm\" }");
  const Finished plain = train("plain", {});
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(ReadJson("plain/generation_config.json")["eos_token_id"], nullptr);
  const Finished dot = train("dot", {"--set", "train.data.end_token=."});
  ASSERT_EQ(dot.exit_code, 0) << dot.err;
  const auto sample = [&](const std::string& run) {
    const Finished result = RunPlumb({"sample", run, "--prompt", "t", "--temperature", "9", "--num",
                                      "1", "--max-tokens", "200", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false)["samples"][0];
  };
  // Weights and draws are the same; only the end differs.
  const std::string whole = sample("plain")["text"];
  const auto ended = sample("dot");
  ASSERT_NE(whole.find('.'), std::string::npos);
  EXPECT_EQ(ended["text"], whole.substr(0, whole.find('.')));
  EXPECT_EQ(ended["ended"], true);
  const Finished unknown = train("unknown", {"--set", "train.data.end_token=<eos>"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("data.end_token: the vocabulary"),
                                 HasSubstr("has no token \"<eos>\"")));
}

TEST_F(SampleTest, StopsAtMaxTokens) {
  const std::string text = Sample({"--temperature", "1", "--max-tokens", "2", "--json"});
  const auto result = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(result.is_object()) << text;
  ASSERT_EQ(result["samples"].size(), 20u);
  EXPECT_EQ(result["step"], 100);
  for (const auto& sample : result["samples"]) {
    EXPECT_LE(sample["tokens"].get<int>(), 2);
    EXPECT_LE(sample["text"].get<std::string>().size(), 2u);
  }
}

TEST_F(SampleTest, SamplesQuantizedWeights) {
  for (const std::string weights : {"f32", "bf16", "int8"}) {
    const std::string text = Sample({"--weights", weights, "--json", "--num", "3"});
    const auto result = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(result.is_object()) << text;
    EXPECT_EQ(result["weights"], weights);
    EXPECT_EQ(result["samples"].size(), 3u);
  }
  EXPECT_EQ(Sample({"--weights", "f32"}), Sample({}));
  const Finished wrong = RunPlumb({"sample", "run", "--weights", "int9"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("--weights"), HasSubstr("did you mean \"int8\"?")));
}

TEST_F(SampleTest, SamplesACheckpoint) {
  EXPECT_EQ(Sample({}), RunPlumb({"sample", "run/checkpoints/step-000100"}).out);
}

}  // namespace
}  // namespace plumb::cli
