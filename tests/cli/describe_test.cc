// SPDX-License-Identifier: Apache-2.0
// Tests of plumb describe and plumb explain.

#include <gmock/gmock.h>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class DescribeTest : public PlumbTest {};

TEST_F(DescribeTest, CountsTheParametersOfTheStudy) {
  struct Case {
    const char *model, *text;
    int parameters;
  };
  for (const Case& c : {Case{"pre.pbtxt", "25,968 parameters", 25968},
                        Case{"post.pbtxt", "25,952 parameters", 25952},
                        Case{"no_norm.pbtxt", "25,696 parameters", 25696}}) {
    const Finished text = RunPlumb({"describe", c.model});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_THAT(text.out, HasSubstr(c.text));
    EXPECT_THAT(text.err, IsEmpty());
    const Finished json = RunPlumb({"describe", c.model, "--json"});
    const auto model = nlohmann::json::parse(json.out, nullptr, false);
    ASSERT_TRUE(model.is_object()) << json.out;
    EXPECT_EQ(model["totals"]["parameters"], c.parameters);
    int64_t sum = 0;
    for (const auto& tensor : model["tensors"]) {
      int64_t elements = 1;
      for (const auto& size : tensor["shape"]) elements *= size.get<int64_t>();
      EXPECT_EQ(tensor["elements"], elements) << tensor["name"];
      sum += elements;
    }
    EXPECT_EQ(sum, c.parameters);
  }
}

TEST_F(DescribeTest, WarnsOfASlotNamedLikeAPlugin) {
  Write("slots.pbtxt",
        "n_layer: 1 n_head: 2 d_model: 8 vocab_size: 27 context_length: 4\n"
        "placement { name: \"p\" each: \"x = x + f(layer_norm(x))\" }\n"
        "block { placement: \"p\" norm: \"rms_norm\" }\n");
  const std::string warning =
      "slots.pbtxt:2:23: the slot \"layer_norm\" has the name of a norm plugin";
  const Finished described = RunPlumb({"describe", "slots.pbtxt"});
  EXPECT_EQ(described.exit_code, 0) << described.err;
  EXPECT_THAT(described.err, HasSubstr(warning));
  const Finished trained = RunPlumb({"train", "slots.pbtxt", "--data", "names.txt", "--out", "run",
                                     "--set", "train.max_steps=1"});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr(warning));
}

TEST_F(DescribeTest, ShowsEquationsAndRoutes) {
  const Finished pre = RunPlumb({"describe", "pre.pbtxt"});
  EXPECT_THAT(pre.out,
              AllOf(HasSubstr("layers 0..7: pre"), HasSubstr("each: x = x + f(norm(x))"),
                    HasSubstr("end: x = norm(x)"), HasSubstr("(I + J_mlp J_norm)"),
                    HasSubstr("identity route from embedding to head: clean (I) to the last layer, "
                              "then 1 norm"),
                    HasSubstr("17 norms")));
  const Finished post = RunPlumb({"describe", "post.pbtxt"});
  EXPECT_THAT(post.out, AllOf(HasSubstr("each: x = norm(x + f(x))"),
                              HasSubstr("through 16 norms to the last layer, then no norm")));
}

TEST_F(DescribeTest, WritesAPicture) {
  const Finished to_stdout = RunPlumb({"describe", "pre.pbtxt", "--svg", "-"});
  EXPECT_EQ(to_stdout.exit_code, 0) << to_stdout.err;
  EXPECT_THAT(to_stdout.out, testing::StartsWith("<svg "));
  EXPECT_THAT(to_stdout.out, HasSubstr(">layers 0..7: pre</text>"));
  EXPECT_THAT(to_stdout.err, IsEmpty());

  const Finished to_file = RunPlumb({"describe", "pre.pbtxt", "--svg", "pre.svg", "--layer", "7"});
  EXPECT_EQ(to_file.exit_code, 0) << to_file.err;
  EXPECT_THAT(to_file.out, IsEmpty());
  EXPECT_THAT(to_file.err, HasSubstr("wrote pre.svg"));
  EXPECT_THAT(Read("pre.svg"), HasSubstr(">layer 7: pre</text>"));
}

TEST_F(DescribeTest, RepeatedLayersShareALine) {
  const Finished result = RunPlumb({"describe", "pre.pbtxt"});
  EXPECT_THAT(result.out, testing::ContainsRegex(
                              "layers\\.0\\.\\.7\\.attention\\.q\\.weight +\\[16, 16\\] x 8 "));
  const Finished one = RunPlumb({"describe", "pre.pbtxt", "--set", "model.n_layer=1"});
  EXPECT_THAT(one.out,
              testing::ContainsRegex("layers\\.0\\.attention\\.q\\.weight +\\[16, 16\\] "));
}

TEST_F(DescribeTest, SettingsApplyInOrder) {
  const Finished result = RunPlumb({"describe", "pre.pbtxt", "--set", "model.n_layer=3", "--set",
                                    "model.n_layer=2", "--set", "model.d_ff=10", "--json"});
  const auto model = nlohmann::json::parse(result.out, nullptr, false);
  ASSERT_TRUE(model.is_object()) << result.out << result.err;
  EXPECT_EQ(model["dims"]["n_layer"], 2);
  EXPECT_EQ(model["dims"]["d_ff"], 10);
}

TEST_F(DescribeTest, ShowsRulesOfARecipe) {
  Write("recipe.pbtxt",
        "learning_rate: 0.01\n"
        "rule { match: '*.norm.weight' learning_rate: '0.1 * lr' weight_decay: '0.5' }\n"
        "rule { match: 'layers.*.mlp.*' learning_rate: 'lr / fan_in' clip: '2' }\n");
  const Finished text = RunPlumb({"describe", "pre.pbtxt", "--train", "recipe.pbtxt"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(
      text.out,
      AllOf(HasSubstr("  rule \"*.norm.weight\"\n"
                      "    AdamW, learning rate 0.001 (0.1 lr), weight decay 0.5, betas 0.9 0.95, "
                      "eps 1e-08, clip 1\n"
                      "      layers.0..7.attention.norm.weight\n"
                      "      layers.0..7.mlp.norm.weight\n"),
            HasSubstr("learning rate 0.00015625 (0.015625 lr), weight decay 0.1, betas 0.9 0.95, "
                      "eps 1e-08, clip 2 of the rule's own norm\n"
                      "      layers.0..7.mlp.down.weight\n"),
            HasSubstr("  no rule\n")));
  Write("wrong.pbtxt", "rule { match: 'x' clip: '1' }");
  const Finished wrong = RunPlumb({"describe", "pre.pbtxt", "--train", "wrong.pbtxt"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("wrong.pbtxt:1:8: rule: matches no tensor"));
  // A location refers to the file, whatever is added to it: rules of an import after its own, and
  // settings of the command line. A message may name two locations.
  Write("twice.pbtxt",
        "import: 'mup'\nlet: 'a = 1'\n# text\n\nrule { match: '*.norm.weight' clip: '1' }\n"
        "rule {\n  match: '*.norm.weight'\n  clip: 'a'\n}");
  const Finished twice =
      RunPlumb({"describe", "pre.pbtxt", "--train", "twice.pbtxt", "--set", "train.max_steps=7"});
  EXPECT_THAT(twice.err, AllOf(HasSubstr("error: twice.pbtxt:7:3: rule: matches only tensors"),
                               HasSubstr("(twice.pbtxt:5:8)")));
}

TEST_F(DescribeTest, TakesTheVocabularyThatTrainTakes) {
  std::string open = Read("pre.pbtxt");
  open.replace(open.find("vocab_size: 27"), 14, "");
  Write("open.pbtxt", open);
  Write("bytes.pbtxt", "data { vocabulary: BYTES format: TEXT }");
  Write("text.pbtxt", "data { format: TEXT } max_steps: 1");
  EXPECT_THAT(RunPlumb({"describe", "open.pbtxt", "--train", "bytes.pbtxt"}).out,
              HasSubstr("vocab_size 256"));
  ASSERT_EQ(RunPlumb({"train", "open.pbtxt", "--train", "text.pbtxt", "--data", "names.txt",
                      "--out", "run"})
                .exit_code,
            0);
  const Finished described =
      RunPlumb({"describe", "open.pbtxt", "--train", "text.pbtxt", "--data", "names.txt"});
  EXPECT_EQ(described.exit_code, 0) << described.err;
  const std::string trained = RunPlumb({"describe", "run/model.pbtxt"}).out;
  const std::string size = trained.substr(trained.find("vocab_size"), 14);
  EXPECT_THAT(described.out, HasSubstr(size));
  // The size that a model sets stays, and must be large enough, as in training.
  EXPECT_THAT(RunPlumb({"describe", "pre.pbtxt", "--train", "bytes.pbtxt"}).out,
              HasSubstr("vocab_size 27"));
  EXPECT_EQ(RunPlumb({"describe", "pre.pbtxt", "--train", "bytes.pbtxt", "--data", "names.txt"})
                .exit_code,
            2);
  // With the tokenizer of the run as well.
  Write("tokenizer.pbtxt", "data { tokenizer: \"run\" format: TEXT }");
  EXPECT_THAT(RunPlumb({"describe", "open.pbtxt", "--train", "tokenizer.pbtxt"}).out,
              HasSubstr(size));
}

TEST_F(DescribeTest, FrozenTensorsTakeNoMemory) {
  Write("frozen.pbtxt",
        "rule { match: 'layers.7.*' } rule { match: 'head.*' clip: '1' }\n"
        "rule { match: '*' freeze: true }\n");
  const Finished text = RunPlumb({"describe", "pre.pbtxt", "--train", "frozen.pbtxt"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("updates, at the peak of the schedule\n"
                                        "  rule \"*\"\n"
                                        "    frozen\n"
                                        "      embedding.token.weight\n"
                                        "      embedding.position.weight\n"
                                        "      layers.0..6.attention.norm.weight\n"
                                        "      layers.0..6.attention.q.weight\n"
                                        "      layers.0..6.attention.k.weight\n"
                                        "      layers.0..6.attention.v.weight\n"
                                        "      layers.0..6.attention.o.weight\n"
                                        "      layers.0..6.mlp.norm.weight\n"
                                        "      layers.0..6.mlp.up.weight\n"
                                        "      layers.0..6.mlp.down.weight\n"
                                        "      end.norm.weight\n"
                                        "  rule \"layers.7.*\"\n"
                                        "    AdamW, "),
                              HasSubstr("  trained: 3,536 of 25,968 parameters\n"
                                        "  FLOPs of a token: 6.97e+04, 42 % of those without "
                                        "freeze\n"),
                              HasSubstr("  gradients                      14.0 KiB\n"
                                        "  optimizer's moments            28.0 KiB\n")));
}

TEST_F(DescribeTest, StepMemoryFollowsTheRecipe) {
  Write("recipe.pbtxt", "batch_size: 4 gradient_accumulation_steps: 2");
  const auto memory = [this](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"describe", "pre.pbtxt", "--train", "recipe.pbtxt",
                                          "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto model = nlohmann::json::parse(result.out, nullptr, false);
    const nlohmann::json table = model["memory"];
    int64_t sum = 0;
    for (const char* part :
         {"weights", "gradients", "exchange", "moments", "norm_states", "inputs", "workspace"}) {
      sum += table[part].get<int64_t>();
    }
    EXPECT_EQ(table["total"], sum);
    return table;
  };
  const auto plain = memory({});
  EXPECT_EQ(plain["batch"], 4);
  EXPECT_EQ(plain["seq"], 16);
  EXPECT_EQ(plain["dtype"], "f32");
  EXPECT_EQ(plain["gradients"], 2 * plain["weights"].get<int64_t>());
  const auto one = memory({"--batch", "1", "--set", "train.gradient_accumulation_steps=1"});
  EXPECT_EQ(one["batch"], 1);
  EXPECT_EQ(one["gradients"], plain["weights"]);
  EXPECT_LT(one["workspace"], plain["workspace"]);
  const auto bf16 = memory({"--dtype", "bf16"});
  EXPECT_EQ(bf16["weights"], plain["weights"]);
  EXPECT_LT(bf16["workspace"], plain["workspace"]);
  const auto again = memory({"--recompute", "block"});
  EXPECT_EQ(again["recompute"], "block");
  EXPECT_LT(again["workspace"], plain["workspace"]);
  const auto ranks = memory({"--ranks", "2"});
  EXPECT_EQ(ranks["gradients"], plain["weights"]) << "each rank has one of two units";
  EXPECT_GT(ranks["exchange"], 0);
  EXPECT_EQ(ranks["moments"], plain["moments"]);
  const auto units = memory({"--ranks", "4", "--set", "train.units=4"});
  EXPECT_EQ(units["batch"], 2);
  EXPECT_LT(units["workspace"], plain["workspace"]);
  EXPECT_EQ(memory({"--ranks", "4"}), units) << "chosen for the ranks";
  const auto refused = [&](const char* number, const char* setting) {
    const Finished finished = RunPlumb(
        {"describe", "pre.pbtxt", "--train", "recipe.pbtxt", "--ranks", number, "--set", setting});
    EXPECT_EQ(finished.exit_code, 2);
    return finished.err;
  };
  EXPECT_THAT(refused("3", "train.units=2"), HasSubstr("3 ranks, and a step of 2 units"));
  EXPECT_THAT(refused("9", "train.units=0"), HasSubstr("9 ranks, and a step of 8 sequences"));
  const Finished text = RunPlumb({"describe", "pre.pbtxt", "--batch", "8", "--dtype", "bf16"});
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("memory of a training step: 8 sequences of 16 tokens, bf16"),
                    HasSubstr("  peak ")));
}

TEST_F(DescribeTest, WarnsOfAWrongFirstLoss) {
  const auto warning = [this](const std::string& more) {
    Write("own.pbtxt",
          "n_layer: 2 n_head: 2 d_model: 64 vocab_size: 65 context_length: 32\n"
          "block { placement: 'pre' norm: 'rms_norm' }\n" +
              more);
    const Finished result = RunPlumb({"describe", "own.pbtxt", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(nlohmann::json::accept(result.out));
    return result.err;
  };
  const std::string tied = "tie_embeddings: true ";
  EXPECT_THAT(warning(tied), IsEmpty());
  EXPECT_THAT(warning(tied + "init { match: '*' normal { std: '0.02' } }"), IsEmpty());
  const std::string wrong = "init { match: '*' normal { std: '1' } } ";
  EXPECT_THAT(warning(tied + wrong),
              AllOf(HasSubstr("warning: with the init rules of the model the first loss is "),
                    HasSubstr("log(65) = 4.17"), HasSubstr("tied to the embedding")));
  // These are the settings that the warnings suggest.
  EXPECT_THAT(warning(tied + wrong +
                      "init { match: 'embedding.*' normal { std: 'log(vocab_size) / (2 * d_model)' "
                      "} }"),
              IsEmpty());
  EXPECT_THAT(warning(wrong), HasSubstr("match: \"head.weight\""));
  EXPECT_THAT(
      warning(wrong + "init { match: 'head.weight' normal { std: '1 / sqrt(3 * d_model)' } }"),
      IsEmpty());
}

TEST_F(DescribeTest, ExplainPrintsEveryStage) {
  for (const char* stage : {"graph", "grad", "optimized", "plan", "exec", "prompt"}) {
    const std::vector<std::string> arguments = {"explain", "pre.pbtxt",       "--stage", stage,
                                                "--set",   "model.n_layer=1", "--seq",   "4"};
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 0) << stage << result.err;
    EXPECT_THAT(result.out, HasSubstr("layers.0.attention.q.weight")) << stage;
    EXPECT_EQ(RunPlumb(arguments).out, result.out) << stage;
  }
}

// The plan shows the engine and the blocking of each product, and follows the user's choice of the
// engine.
TEST_F(DescribeTest, ExplainShowsThePlanOfProducts) {
  const auto explain = [this](const std::string& gemm) {
    const Finished result =
        RunPlumb({"explain", "pre.pbtxt", "--stage", "exec", "--set", "model.d_model=256", "--set",
                  "model.context_length=64", "--batch", "4", "--gemm", gemm});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(explain("onednn"),
              AllOf(HasSubstr("\n    oneDNN f32 256x256x256: "), HasSubstr("packed by each task"),
                    Not(HasSubstr("\n    small "))));
  EXPECT_THAT(explain("small"),
              AllOf(HasSubstr("\n    small f32 256x"), Not(HasSubstr("\n    oneDNN "))));
  const Finished unknown =
      RunPlumb({"explain", "pre.pbtxt", "--stage", "exec", "--gemm", "onednnn"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean \"onednn\"?"));
}

TEST_F(DescribeTest, ExplainShowsTheStepInOtherFormats) {
  const auto explain = [this](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"explain", "pre.pbtxt", "--stage", "optimized"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string plain = explain({});
  EXPECT_EQ(explain({"--dtype", "f32"}), plain);
  EXPECT_THAT(plain, Not(HasSubstr("bf16[")));
  EXPECT_THAT(explain({"--dtype", "bf16"}), HasSubstr("bf16["));
  EXPECT_GT(explain({"--recompute", "block"}).size(), plain.size());
  EXPECT_EQ(RunPlumb({"explain", "pre.pbtxt", "--stage", "exec", "--dtype", "f16"}).exit_code, 2);
}

}  // namespace
}  // namespace plumb::cli
