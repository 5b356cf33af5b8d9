// SPDX-License-Identifier: Apache-2.0
// Tests of plumb train: losses repeat bit for bit, and resumed runs equal uninterrupted ones.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class TrainTest : public PlumbTest {
 protected:
  void Train(const std::string& out, const std::vector<std::string>& more = {}) {
    const Finished result = RunPlumb(TrainArguments(out, 60, more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
};

TEST_F(TrainTest, SameSeedSameLossesForAnyThreadCount) {
  Train("a");
  Train("b");
  Train("one", {"--threads", "1"});
  Train("two", {"--threads", "2"});
  Train("other", {"--seed", "2"});
  const std::vector<double> losses = Losses("a");
  ASSERT_EQ(losses.size(), 60u);
  EXPECT_EQ(Losses("b"), losses);
  EXPECT_EQ(Losses("one"), losses);
  EXPECT_EQ(Losses("two"), losses);
  EXPECT_NE(Losses("other"), losses);
}

TEST_F(TrainTest, TheDTypeIsAnOptionThatARunKeeps) {
  Train("f32");
  Train("bf16", {"--dtype", "bf16"});
  EXPECT_NE(Losses("bf16"), Losses("f32"));
  EXPECT_THAT(Read("bf16/train.pbtxt"), HasSubstr("dtype: BF16"));
  const Finished half =
      RunPlumb(TrainArguments("resumed", 60, {"--dtype", "bf16", "--stop-at", "30"}));
  EXPECT_EQ(half.exit_code, 0) << half.err;
  const Finished rest =
      RunPlumb({"train", "--resume", "--out", "resumed", "--data", "names.txt", "--json"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(Losses("resumed"), Losses("bf16"));
  EXPECT_EQ(nlohmann::json::parse(rest.out, nullptr, false)["dtype"], "bf16");
  Train("again", {"--recompute", "block"});
  EXPECT_EQ(Losses("again"), Losses("f32"));
}

// A run that begins with the weights of another has the statistics of its norms, too, and
// normalizes the weights before its first step: at a rate of 0 all losses of a batch are equal.
TEST_F(TrainTest, InitTakesStatisticsAndNormalizesWeights) {
  Write("bn.pbtxt",
        "n_layer: 1 n_head: 2 d_model: 16 context_length: 16 norm { name: 'bn' plugin: "
        "'batch_norm' allow_cross_token: true } block { placement: 'pre' norm: 'bn' }");
  Write("one.txt", "abcdefg\nabcdefg\n");
  const auto train = [this](const char* out, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"train", "bn.pbtxt", "--data", "one.txt", "--out", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out + result.err;
  };
  const auto evaluate = [this](const char* run) {
    const Finished result = RunPlumb({"eval", run, "--data", "one.txt", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false)["splits"]["training"]["loss"];
  };
  Write("recipe.pbtxt",
        "max_steps: 30 learning_rate: 0.05 data { format: DOCUMENTS val_fraction: 0 }");
  train("base", {"--train", "recipe.pbtxt"});
  const std::vector<std::string> still = {"--init",  "base",
                                          "--train", "recipe.pbtxt",
                                          "--set",   "train.learning_rate=0",
                                          "--set",   "train.max_steps=3"};
  EXPECT_THAT(train("same", still), Not(HasSubstr("running_mean")));
  const double base = evaluate("base"), same = evaluate("same");
  EXPECT_LT(base, 1);
  EXPECT_LT(std::abs(same - base), 0.05);
  for (const char* dtype : {"f32", "bf16"}) {
    Write("recipe.pbtxt",
          "max_steps: 30 normalize { match: '*.weight' } "
          "data { format: DOCUMENTS val_fraction: 0 }");
    std::vector<std::string> more = still;
    more.insert(more.end(), {"--dtype", dtype});
    train(dtype, more);
    const std::vector<double> losses = Losses(dtype);
    EXPECT_EQ(losses, std::vector<double>(3, losses.front())) << dtype;
  }
}

// The checkpoint holds all states that a recipe may have. The average of the weights is a model of
// its own.
TEST_F(TrainTest, AllRecipeFieldsResumeExactly) {
  Write("all.pbtxt",
        "batch_size: 2 learning_rate: 0.01 schedule: WSD cooldown_steps: 20 optimizer: MUON\n"
        "muon { learning_rate: '2 * lr' } ema_decay: 0.9 label_smoothing: 0.1 z_loss: 1e-3\n"
        "rule { match: '*.norm.*' learning_rate: '0.1 * lr' clip: '0.5' }\n"
        "normalize { match: 'head.weight' } import: 'mup' let: 'base_width = 16'\n"
        "data { format: DOCUMENTS }");
  const auto train = [this](const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"train",   "pre.pbtxt",          "--data", "names.txt",
                                          "--train", "all.pbtxt",          "--out",  out,
                                          "--set",   "train.max_steps=40", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  train("whole", {});
  train("parts", {"--stop-at", "17"});
  const Finished rest =
      RunPlumb({"train", "--resume", "--out", "parts", "--data", "names.txt", "--json"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(Losses("parts"), Losses("whole"));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(Read(std::string("parts/checkpoints/step-000040/") + file),
              Read(std::string("whole/checkpoints/step-000040/") + file))
        << file;
  }
  EXPECT_EQ(Read("whole/train.pbtxt").find("import"), std::string::npos);

  const auto eval = [this](const std::string& run, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"eval", run, "--data", "names.txt"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  };
  const Finished plain = eval("whole", {}), average = eval("whole", {"--ema"});
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(average.exit_code, 0) << average.err;
  EXPECT_NE(plain.out, average.out);
  EXPECT_EQ(RunPlumb({"sample", "whole", "--ema", "--num", "2"}).exit_code, 0);
  Train("without");
  EXPECT_THAT(eval("without", {"--ema"}).err,
              HasSubstr("holds no average of the weights: ema_decay was not set in the recipe"));
}

TEST_F(TrainTest, StoppingAndResumingChangesNothing) {
  Train("whole");
  const Finished half = RunPlumb(TrainArguments("resumed", 60, {"--stop-at", "30"}));
  EXPECT_EQ(half.exit_code, 0) << half.err;
  EXPECT_EQ(Losses("resumed").size(), 30u);
  EXPECT_TRUE(Exists("resumed/checkpoints/step-000030/model.safetensors"));
  EXPECT_THAT(half.err, HasSubstr("--resume --out resumed"));
  const Finished rest =
      RunPlumb({"train", "--resume", "--out", "resumed", "--data", "names.txt", "--json"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(Losses("resumed"), Losses("whole"));
  EXPECT_EQ(Read("resumed/checkpoints/step-000060/model.safetensors"),
            Read("whole/checkpoints/step-000060/model.safetensors"));

  // The summary covers the whole run, not only the steps since the resume.
  const auto summary = nlohmann::json::parse(rest.out, nullptr, false);
  double sum_50 = 0, max_20 = 0;
  const std::vector<double> losses = Losses("whole");
  for (size_t i = 0; i < 50; ++i) sum_50 += losses[i];
  for (size_t i = 0; i < 20; ++i) max_20 = std::max(max_20, losses[i]);
  EXPECT_NEAR(summary["loss_first_50"].get<double>(), sum_50 / 50, 1e-12);
  EXPECT_EQ(summary["loss_max_first_20"].get<double>(), max_20);
  EXPECT_EQ(summary["first_step"], 30);
}

TEST_F(TrainTest, ResumingTheSameCommandLineWorksToo) {
  Train("whole");
  RunPlumb(TrainArguments("resumed", 60, {"--stop-at", "7"}));
  const Finished rest = RunPlumb(TrainArguments("resumed", 60, {"--resume"}));
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(Losses("resumed"), Losses("whole"));
  const Finished again = RunPlumb(TrainArguments("resumed", 60, {"--resume"}));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(Losses("resumed"), Losses("whole"));
}

// Rounding depends on the engine. A run that is resumed with another one continues with a warning.
TEST_F(TrainTest, ResumingUnderAnotherEngineWarns) {
  const Finished half = RunPlumb(TrainArguments("run", 60, {"--stop-at", "7"}));
  EXPECT_EQ(half.exit_code, 0) << half.err;
  EXPECT_THAT(Read("run/run.json"), HasSubstr("\"matmul\":\"oneDNN "));
  const Finished same = RunPlumb(TrainArguments("run", 60, {"--resume", "--stop-at", "9"}));
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.err, Not(HasSubstr("products were computed by")));
  const Finished other = RunPlumb(TrainArguments("run", 60, {"--resume", "--gemm", "onednn"}));
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.err, AllOf(HasSubstr("products were computed by"), HasSubstr("gemm onednn")));
  EXPECT_EQ(Losses("run").size(), 60u);
}

TEST_F(TrainTest, SummaryIsTextOrJson) {
  const Finished text = RunPlumb(TrainArguments("text", 60));
  EXPECT_THAT(text.out, AllOf(HasSubstr("steps          60\n"), HasSubstr("loss           "),
                              HasSubstr("mean of the last 60 steps"),
                              HasSubstr("checkpoint     text/checkpoints/step-000060\n")));
  const Finished json = RunPlumb(TrainArguments(
      "json", 60,
      {"--json", "--set", "train.data.val_fraction=0.2", "--set", "train.eval_interval=20"}));
  const auto summary = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_TRUE(summary.is_object()) << json.out;
  EXPECT_EQ(summary["status"], "finished");
  EXPECT_EQ(summary["steps"], 60);
  EXPECT_EQ(summary["parameters"], 25968);
  EXPECT_EQ(summary["checkpoint"], "json/checkpoints/step-000060");
  EXPECT_TRUE(summary["val_loss"].is_number());
  EXPECT_LE(summary["loss_min"].get<double>(), summary["loss_last_100"].get<double>());
  EXPECT_THAT(json.err, AllOf(HasSubstr("step 20  val loss "), HasSubstr("step 60  val loss ")));
}

TEST_F(TrainTest, ProgressInAFileIsPlainLines) {
  const Finished result = RunPlumb(TrainArguments("run", 60));
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("step 1/60 "), HasSubstr("step 60/60 "),
                    HasSubstr("writing to run\n"), Not(HasSubstr("\r")), Not(HasSubstr("\x1b"))));
  const Finished quiet = RunPlumb(TrainArguments("quiet", 60, {"--quiet"}));
  EXPECT_THAT(quiet.err, IsEmpty());
  EXPECT_THAT(quiet.out, HasSubstr("loss"));
}

TEST_F(TrainTest, DefaultOutIsRunsAndTheModelName) {
  Write("named.pbtxt", "name: \"../my model\"\n" + Read("pre.pbtxt"));
  for (const char* model : {"pre.pbtxt", "named.pbtxt"}) {
    const Finished result = RunPlumb({"train", model, "--train", "train.pbtxt", "--data",
                                      "names.txt", "--set", "train.max_steps=3"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("writing to runs/"));
  }
  EXPECT_TRUE(Exists("runs/pre/latest"));
  EXPECT_TRUE(Exists("runs/_..-my-model/latest"));
}

TEST_F(TrainTest, ModelSettingsChangeTheModel) {
  const Finished result = RunPlumb(
      TrainArguments("run", 3, {"--set", "model.n_layer=2", "--set", "model.n_head=2", "--json"}));
  const auto summary = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(summary.is_object()) << result.err;
  EXPECT_LT(summary["parameters"].get<int>(), 25968);
}

TEST_F(TrainTest, DivergenceExitsWith4) {
  const Finished result =
      RunPlumb(TrainArguments("run", 60, {"--set", "train.learning_rate=1e30", "--json"}));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, AllOf(HasSubstr("error: diverged at step "),
                                testing::ContainsRegex("finite is [a-z]+\\.")));
  const auto summary = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(summary.is_object()) << result.out;
  EXPECT_EQ(summary["status"], "diverged");
}

TEST_F(TrainTest, ReportsAndCountsSkippedBatches) {
  const Finished result = RunPlumb(
      TrainArguments("run", 60,
                     {"--set", "train.learning_rate=1e30", "--set", "train.warmup_steps=0", "--set",
                      "train.on_divergence=SKIP", "--set", "train.max_divergences=2", "--json"}));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(Read("run/incidents.jsonl"), testing::ContainsRegex("diverged at step 2: .*layer "
                                                                  "[0-9].*; dropped batch 2"));
  const auto summary = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(summary.is_object()) << result.out;
  EXPECT_EQ(summary["skips"], 2);
}

TEST_F(TrainTest, WarnsOfLongDocuments) {
  Write("long.txt", "abcdefghijklmnopqrstuvwxyz\nab\n");
  const Finished result = RunPlumb({"train", "pre.pbtxt", "--train", "train.pbtxt", "--data",
                                    "long.txt", "--set", "train.max_steps=2", "--out", "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning: 1 training document is longer than the context"));
}

// Data with prompts: training, resuming, evaluating and comparing count completions only.
TEST_F(TrainTest, JsonlIsTrainedOnItsCompletions) {
  std::string lines;
  for (int i = 0; i < 20; ++i) {
    const int a = i % 5, b = i % 4;
    lines += "{\"prompt\": \"" + std::to_string(a) + "+" + std::to_string(b) +
             "=\", \"completion\": \"" + std::to_string(a + b) + "\"}\n";
  }
  lines += "{\"prompt\": \"1+1+1+1+1+1+1+1+1\", \"completion\": \"9\"}\n";
  Write("sums.jsonl", lines);
  Write("sums.pbtxt",
        "batch_size: 2 gradient_accumulation_steps: 2 max_steps: 24 learning_rate: 0.01\n"
        "eval_interval: 8 eval_batches: 1 data { format: JSONL vocabulary: BYTES }");
  const auto train = [this](const std::string& out, std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "pre.pbtxt", "--data", "sums.jsonl", "--train",
                               "sums.pbtxt", "--set", "model.vocab_size=257", "--out", out});
    return RunPlumb(more);
  };
  const Finished whole = train("whole", {});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("sums.jsonl: 18 documents to train on, 3 held out; "));
  EXPECT_THAT(whole.err, HasSubstr("warning: skipping 1 training document whose prompt fills the"));
  ASSERT_EQ(train("parts", {"--stop-at", "11"}).exit_code, 0);
  const Finished rest = RunPlumb({"train", "--resume", "--out", "parts", "--data", "sums.jsonl"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(Losses("parts"), Losses("whole"));
  EXPECT_EQ(Read("parts/checkpoints/step-000024/model.safetensors"),
            Read("whole/checkpoints/step-000024/model.safetensors"));

  // The loss of one document is that of its completion and the end token alone.
  Write("one.jsonl", "{\"prompt\": \"3+1=\", \"completion\": \"4\"}\n");
  Write("one.json",
        "{\"sequences\": [[256, 51, 43, 49, 61, 52]], \"targets\": [[-100, -100, -100, -100, 52, "
        "256]]}");
  const auto eval = [this](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"eval", "whole", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  };
  const auto one = eval({"--data", "one.jsonl"})["splits"]["training"];
  EXPECT_EQ(one["targets"], 2);
  EXPECT_NEAR(one["loss"].get<double>(), eval({"--tokens", "one.json"})["loss"].get<double>(),
              1e-6);
  const auto all = eval({"--data", "sums.jsonl"})["splits"];
  EXPECT_EQ(all["training"]["targets"], 17 * 2);  // one prompt leaves no target
  EXPECT_EQ(all["training"]["sequences"], 18);
  EXPECT_EQ(all["validation"]["targets"], 3 * 2);
  EXPECT_EQ(RunPlumb({"sample", "whole", "--prompt", "2+1=", "--num", "1"}).exit_code, 0);

  const Finished compared = RunPlumb({"compare", "pre.pbtxt", "post.pbtxt", "--data", "sums.jsonl",
                                      "--train", "sums.pbtxt", "--set", "model.vocab_size=257",
                                      "--seeds", "2", "--samples", "0", "--out", "study"});
  EXPECT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_EQ(Losses("study/runs/pre-seed1"), Losses("whole"));

  Write("wrong.jsonl", lines + "{\"prompt\": \"1\"}\n");
  const Finished wrong = RunPlumb({"eval", "whole", "--data", "wrong.jsonl"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("wrong.jsonl:22:1: keys are missing"));
}

TEST_F(TrainTest, AMaskOfTokensIsPartOfTheData) {
  std::string ids, mask;
  for (int i = 0; i < 200; ++i) {
    ids += {static_cast<char>(i * i % 7), 0};
    mask += static_cast<char>(i % 3 == 0);
  }
  Write("ids.bin", ids);
  Write("ids.bin.mask", mask);
  Write("bytes.json", R"({"format": "plumb-tokenizer", "version": 1, "kind": "bytes",
                          "begin_end_token": null, "vocab_size": 256})");
  Write("ids.pbtxt", "batch_size: 2 max_steps: 6 data { format: TOKENS tokenizer: 'bytes.json' }");
  const auto train = [this](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train",   "pre.pbtxt", "--data", "ids.bin",
                                          "--train", "ids.pbtxt", "--set",  "model.vocab_size=257"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  };
  const Finished half = train({"--out", "run", "--stop-at", "3"});
  ASSERT_EQ(half.exit_code, 0) << half.err;
  EXPECT_THAT(half.err, HasSubstr("180 tokens to train on, 20 held out; 59 targets to train on, 6 "
                                  "held out; "));
  EXPECT_THAT(Read("run/metrics.csv"), testing::ContainsRegex("\n1,[^,]*,[^,]*,[^,]*,1[012],"));
  mask[0] = 0;
  mask[1] = 1;
  Write("ids.bin.mask", mask);
  const Finished other = RunPlumb({"train", "--resume", "--out", "run", "--data", "ids.bin"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("resume with that data, or start another run"));
  Write("bert.pbtxt", Read("pre.pbtxt") + "\nbidirectional: true\n");
  const Finished bert =
      RunPlumb({"train", "bert.pbtxt", "--data", "ids.bin", "--train", "ids.pbtxt", "--set",
                "model.vocab_size=257", "--set", "train.masked_tokens.share=0.2", "--out", "bert"});
  EXPECT_EQ(bert.exit_code, 2);
  EXPECT_THAT(bert.err, HasSubstr("ids.bin: masked_tokens chooses the targets, but this data"));
}

TEST_F(TrainTest, TrainsWithoutNorms) {
  const Finished result = RunPlumb({"train", "no_norm.pbtxt", "--train", "train.pbtxt", "--data",
                                    "names.txt", "--set", "train.max_steps=3", "--out", "run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace plumb::cli
