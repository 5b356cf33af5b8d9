// SPDX-License-Identifier: Apache-2.0
// Tests of studies from the command to the page.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

class CompareStudyTest : public PlumbTest {
 protected:
  Finished Compare(const std::vector<std::string>& more, const std::string& out = "study") {
    std::vector<std::string> arguments = {
        "compare", "--data", "names.txt", "--train", "train.pbtxt", "--set", "train.max_steps=30",
        "--out",   out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  }
};

TEST_F(CompareStudyTest, WritesTablesAndAReport) {
  const Finished result =
      Compare({"pre.pbtxt", "post.pbtxt", "--set", "train.data.val_fraction=0.2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("post (collapsed in 3 of 3) − pre"), HasSubstr("study/report.html")));
  EXPECT_THAT(result.err, HasSubstr("post, seed 3: loss "));
  EXPECT_THAT(Read("study/table.md"), AllOf(HasSubstr("| pre | 25,968 | "), HasSubstr("± ")));
  EXPECT_THAT(Read("study/report.html"), HasSubstr("id=\"report\""));

  const Json report = ReadJson("study/report.json");
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["title"], "pre, post");
  EXPECT_EQ(report["steps"], 30);
  ASSERT_EQ(report["runs"].size(), 6u);
  const Json& run = report["runs"][4];
  EXPECT_EQ(run["group"], 1);
  EXPECT_EQ(run["seed"], 2);
  EXPECT_EQ(run["status"], "finished");
  EXPECT_EQ(run["loss"].size(), 30u);
  EXPECT_EQ(run["last"].get<double>(), Losses("study/runs/post-seed2").back());
  EXPECT_EQ(run["validation"].size(), 1u);
  EXPECT_EQ(run["samples"].size(), 8u);
  const Json& group = report["groups"][1];
  EXPECT_TRUE(group["probes"].is_null());
  EXPECT_TRUE(group["steps"].is_null());  // every loss
  EXPECT_EQ(group["runs"], Json({3, 4, 5}));
  EXPECT_EQ(group["max_steps"], 30);
  EXPECT_GT(group["tokens_per_step"], 1);
  EXPECT_GT(group["flops_per_token"], 100);
  // Times are in the page alone, because report.json is the same on every machine.
  EXPECT_THAT(Read("study/report.html"), HasSubstr(",\"seconds_per_step\":["));
  EXPECT_FALSE(report.contains("seconds_per_step"));
  // Paths are in report.json alone, because the page is sent to others.
  const std::string file = report["models"][0]["file"];
  const std::string directory = file.substr(0, file.rfind('/') + 1);
  EXPECT_GT(directory.size(), 5);
  EXPECT_THAT(Read("study/report.html"),
              AllOf(HasSubstr("\"file\":\"pre.pbtxt\""), HasSubstr("\"path\":\"names.txt\""),
                    HasSubstr("\"path\":\"rms_norm.so\""), Not(HasSubstr(directory))));
  const Json& figures = report["groups"][1]["result"];
  EXPECT_EQ(figures["runs"], 3);
  const double mean = figures["mean"];  // of the validation loss, which is the judged metric
  EXPECT_NEAR(mean, report["table"]["rows"][1][9]["value"], 1e-9);
  EXPECT_NEAR(figures["high"].get<double>() - mean, mean - figures["low"].get<double>(), 1e-9);
  EXPECT_LT(figures["low"], mean);
  EXPECT_EQ(report["windows"], Json({{"first", 7}, {"last", 7}}));  // a quarter of the run
  EXPECT_EQ(report["models"][1]["jacobians"][0]["layers"], Json({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(report["models"][1]["jacobians"][0]["jacobian"],
            "J_norm (I + J_mlp) J_norm (I + J_attention)");
  EXPECT_EQ(report["differences"][0]["field"], "block.placement");
  EXPECT_FALSE(report["models"][1].contains("picture"));
  EXPECT_THAT(Read("study/report.html"), HasSubstr("layers ~: post\\u003c/text"));
  EXPECT_EQ(report["provenance"]["plugins"][0]["sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(report["judged"], "validation");
  EXPECT_EQ(report["paired"][0]["metric"], "validation");
  EXPECT_EQ(report["paired"][0]["runs"], 3);
}

TEST_F(CompareStudyTest, FineTunesFromARun) {
  ASSERT_EQ(RunPlumb(TrainArguments("base", 200)).exit_code, 0);
  const Finished compared =
      Compare({"pre.pbtxt", "post.pbtxt", "--init", "base", "--seed", "7"}, "tuned");
  ASSERT_EQ(compared.exit_code, 0) << compared.err;
  const Json report = ReadJson("tuned/report.json");
  ASSERT_EQ(Compare({"pre.pbtxt", "--seed", "7"}, "drawn").exit_code, 0);
  const Json drawn = ReadJson("drawn/report.json");
  EXPECT_LT(report["runs"][0]["loss"][0].get<double>(),
            drawn["runs"][0]["loss"][0].get<double>() - 0.2);
  ASSERT_EQ(
      RunPlumb({"train", "pre.pbtxt", "--data", "names.txt", "--train", "train.pbtxt", "--set",
                "train.max_steps=30", "--seed", "7", "--init", "base", "--out", "alone"})
          .exit_code,
      0);
  EXPECT_EQ(Read("alone/checkpoints/step-000030/model.safetensors"),
            Read("tuned/runs/pre-seed7/checkpoints/step-000030/model.safetensors"));
  // If a study is extended, its existing runs keep their weights.
  const Finished again =
      Compare({"pre.pbtxt", "post.pbtxt", "--init", "base", "--seed", "7"}, "tuned");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  const Finished missing = Compare({"pre.pbtxt", "--init", "nowhere"}, "none");
  EXPECT_EQ(missing.exit_code, 2) << missing.out;
  EXPECT_THAT(missing.err, HasSubstr("nowhere"));
}

TEST_F(CompareStudyTest, FirstSeedKeepsItsWeights) {
  const std::vector<std::string> seeds = {"pre.pbtxt", "--seeds", "2", "--set",
                                          "train.checkpoint_interval=10"};
  ASSERT_EQ(Compare(seeds).exit_code, 0);
  const std::string first = "study/runs/pre-seed1", second = "study/runs/pre-seed2";
  EXPECT_TRUE(Exists(first + "/checkpoints/step-000030/model.safetensors"));
  EXPECT_FALSE(Exists(first + "/checkpoints/step-000030/optimizer.safetensors"));
  EXPECT_FALSE(Exists(first + "/checkpoints/step-000020"));
  EXPECT_EQ(RunPlumb({"sample", first, "--num", "1"}).exit_code, 0);
  for (const char* name : {"/checkpoints", "/latest", "/last_good"}) {
    EXPECT_FALSE(Exists(second + name)) << name;
  }
  EXPECT_THAT(RunPlumb({"sample", second}).err, HasSubstr("--keep-checkpoints"));
  const std::vector<std::string> resume = {"train", "--resume",           "--data", "names.txt",
                                           "--set", "train.max_steps=40", "--out"};
  const auto resumed = [&](const std::string& run) {
    std::vector<std::string> arguments = resume;
    arguments.push_back(run);
    return RunPlumb(arguments);
  };
  EXPECT_THAT(resumed(first).err, AllOf(HasSubstr("--keep-checkpoints"), HasSubstr("--init")));

  std::vector<std::string> keep = seeds;
  keep.push_back("--keep-checkpoints");
  ASSERT_EQ(Compare(keep, "kept").exit_code, 0);
  EXPECT_TRUE(Exists("kept/runs/pre-seed2/checkpoints/step-000020/optimizer.safetensors"));
  EXPECT_EQ(resumed("kept/runs/pre-seed2").exit_code, 0);
  EXPECT_EQ(Read("kept/report.json"), Read("study/report.json"));
}

TEST_F(CompareStudyTest, StudyRunEqualsATrainRun) {
  ASSERT_EQ(Compare({"pre.pbtxt", "--seed", "7"}).exit_code, 0);
  ASSERT_EQ(RunPlumb(TrainArguments("alone", 30, {"--seed", "7"})).exit_code, 0);
  EXPECT_EQ(Losses("study/runs/pre-seed7"), Losses("alone"));
  EXPECT_EQ(RunPlumb({"sample", "study/runs/pre-seed7", "--num", "1"}).exit_code, 0);
  const Finished exact = Compare(
      {"pre.pbtxt", "--seed", "7", "--set", "train.data.val_fraction=0.2", "--json"}, "exact");
  ASSERT_EQ(exact.exit_code, 0) << exact.err;
  const Finished eval = RunPlumb({"eval", "exact/runs/pre-seed7", "--data", "names.txt", "--json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  const double loss = Json::parse(exact.out)["groups"][0]["validation"]["mean"];
  const Json splits = Json::parse(eval.out)["splits"];
  EXPECT_NEAR(splits["validation"]["loss"].get<double>(), loss, 1e-6);
}

TEST_F(CompareStudyTest, ThreadsChangeNoResult) {
  const std::vector<std::string> files = {"table.csv", "table.md", "report.json"};
  for (const char* threads : {"1", "2", "4"}) {
    const std::string out = std::string("t") + threads;
    ASSERT_EQ(Compare({"pre.pbtxt", "post.pbtxt", "--threads", threads}, out).exit_code, 0);
    for (const std::string& file : files) {
      EXPECT_FALSE(Read(out + "/" + file).empty()) << file;
      EXPECT_EQ(Read(out + "/" + file), Read("t1/" + file)) << file;
    }
  }
}

TEST_F(CompareStudyTest, AGridIsEveryCombinationOfItsValues) {
  const Finished result =
      Compare({"pre.pbtxt", "post.pbtxt", "--grid", "model.n_layer=1,2", "--grid",
               "train.learning_rate=1e-3,1e-2", "--seeds", "1", "--samples", "0", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json groups = Json::parse(result.out)["groups"];
  ASSERT_EQ(groups.size(), 8u);
  EXPECT_EQ(groups[1]["name"], "pre, n_layer=1, learning_rate=1e-2");
  EXPECT_EQ(groups[6]["settings"], Json({{"model.n_layer", "2"}, {"train.learning_rate", "1e-3"}}));
  EXPECT_LT(groups[0]["parameters"], groups[2]["parameters"]);
  EXPECT_NE(groups[0]["last_100"]["mean"], groups[1]["last_100"]["mean"]);
  EXPECT_TRUE(Exists("study/runs/post-n_layer=2-learning_rate=1e-3-seed1/model.pbtxt"));
}

TEST_F(CompareStudyTest, ValuesOfAFieldThatMakesAModelAreModels) {
  const Finished result =
      Compare({"pre.pbtxt", "--grid", "model.block.placement=pre,post", "--grid",
               "train.learning_rate=1e-3,1e-2", "--seeds", "2", "--samples", "0"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = ReadJson("study/report.json");
  ASSERT_EQ(report["models"].size(), 2u);
  EXPECT_EQ(report["title"], "pre, post");
  EXPECT_NE(report["models"][0]["equations"], report["models"][1]["equations"]);
  EXPECT_EQ(report["cells"], Json({"learning_rate=1e-3", "learning_rate=1e-2"}));
  EXPECT_EQ(report["groups"][2]["name"], "post, learning_rate=1e-3");
  EXPECT_EQ(report["paired"][0]["against"], 0);
  EXPECT_EQ(report["paired"][0]["group"], 2);
}

TEST_F(CompareStudyTest, ATitleNamesTheBestOfManyModels) {
  const Finished result =
      Compare({"pre.pbtxt", "--grid", "model.block.placement=none,pre,post,peri,rezero", "--seeds",
               "2", "--samples", "0"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = ReadJson("study/report.json");
  std::vector<std::pair<double, std::string>> ranked;
  for (const Json& group : report["groups"]) {
    ranked.emplace_back(group["result"]["mean"], group["name"]);
  }
  std::sort(ranked.begin(), ranked.end());
  std::string title;
  for (size_t i = 0; i < 4; ++i) title += ranked[i].second + ", ";
  EXPECT_EQ(report["title"], title + "…");
}

TEST_F(CompareStudyTest, MatchesFlopsOrParameters) {
  const auto compare = [this](const std::string& cost) {
    const Finished result =
        Compare({"pre.pbtxt", "--grid", "model.mlp.gated=false,true", "--set", "train.max_steps=40",
                 "--match", cost, "--seeds", "1", "--samples", "0", "--json"},
                cost);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out)["groups"];
  };
  const Json steps = compare("steps"), flops = compare("flops"), parameters = compare("parameters");
  EXPECT_GT(steps[1]["parameters"], steps[0]["parameters"]);
  EXPECT_EQ(flops[1]["parameters"], steps[1]["parameters"]);
  const double same = parameters[0]["parameters"], near = parameters[1]["parameters"];
  EXPECT_NEAR(near, same, 0.01 * same);
  const Json runs = ReadJson("flops/report.json")["runs"];
  EXPECT_EQ(runs[0]["step"], 40);
  EXPECT_LT(runs[1]["step"], 40);
  EXPECT_GT(runs[1]["step"], 25);
  // A context twice as long has twice the tokens in a step.
  std::string text = Read("pre.pbtxt");
  const std::string context = "context_length: 16";
  ASSERT_NE(text.find(context), std::string::npos);
  Write("longer.pbtxt", text.replace(text.find(context), context.size(), "context_length: 32"));
  const std::vector<std::string> two = {
      "pre.pbtxt", "longer.pbtxt", "--match", "flops", "--seeds",
      "1",         "--samples",    "0",       "--set", "train.max_steps=40"};
  std::vector<std::string> texts = two;
  texts.insert(texts.end(), {"--set", "train.data.format=TEXT"});
  ASSERT_EQ(Compare(texts, "texts").exit_code, 0);
  EXPECT_LT(ReadJson("texts/report.json")["runs"][1]["step"], 20);
  EXPECT_GT(ReadJson("texts/report.json")["runs"][1]["step"], 10);
  const Finished documents = Compare(two, "documents");
  EXPECT_EQ(documents.exit_code, 2);
  EXPECT_THAT(documents.err, HasSubstr("--match flops: the models have different contexts"));
  const Finished unknown = Compare({"pre.pbtxt", "--match", "hours"}, "unknown");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("parameters"));
}

TEST_F(CompareStudyTest, JobsShareAStore) {
  for (const char* seed : {"1", "2"}) {
    const Finished job = Compare({"pre.pbtxt", "post.pbtxt", "--seed", seed, "--store", "store"},
                                 std::string("part") + seed);
    ASSERT_EQ(job.exit_code, 0) << job.err;
  }
  const Finished whole = Compare({"pre.pbtxt", "post.pbtxt", "--seeds", "2", "--store", "store"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.err, AllOf(HasSubstr("copied 4 runs from the store"), Not(HasSubstr("loss "))));
  ASSERT_EQ(Compare({"pre.pbtxt", "post.pbtxt", "--seeds", "2"}, "alone").exit_code, 0);
  for (const char* file : {"/study.pbtxt", "/table.csv", "/report.json"}) {
    EXPECT_EQ(ReadWithoutTimes(std::string("study") + file),
              ReadWithoutTimes(std::string("alone") + file))
        << file;
  }
}

TEST_F(CompareStudyTest, TheBaselineMayBeAValueOfTheGrid) {
  const Finished result = Compare({"pre.pbtxt", "--grid", "model.block.placement=pre,post",
                                   "--baseline", "post", "--seeds", "1", "--samples", "0"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ReadJson("study/report.json")["title"], "post, pre");
}

TEST_F(CompareStudyTest, RepeatedModelIsAWarning) {
  const Finished result = Compare(
      {"pre.pbtxt", "post.pbtxt", "pre.pbtxt", "--seeds", "1", "--samples", "0", "--dry-run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning: pre (2) is the same model as pre;"));
}

TEST_F(CompareStudyTest, DivergedRunIsARow) {
  // The loss of the second step overflows in every model.
  const Finished result = Compare({"no_norm.pbtxt", "--grid", "train.learning_rate=1e-2,1e30"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("no_norm, learning_rate=1e30, seed 1: diverged at step "));
  EXPECT_THAT(Read("study/table.md"), HasSubstr("| 3 of 3 (seed 1 at step "));
  const Json report = ReadJson("study/report.json");
  EXPECT_EQ(report["runs"][0]["status"], "finished");
  const Json& diverged = report["runs"][3];
  EXPECT_EQ(diverged["status"], "diverged");
  EXPECT_EQ(diverged["loss"].size(), diverged["step"].get<size_t>());
  EXPECT_TRUE(diverged["loss"].back().is_null());
  EXPECT_NE(diverged["message"], "");
  EXPECT_TRUE(diverged["samples"].empty());
  EXPECT_TRUE(report["paired"].empty());  // one model
  EXPECT_EQ(report["best"]["models"][0]["cell"], 0);
  // The diverged run is not trained again.
  const std::string table = Read("study/table.csv");
  const Finished again = Compare({"no_norm.pbtxt", "--grid", "train.learning_rate=1e-2,1e30"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("diverged")));
  EXPECT_EQ(Read("study/table.csv"), table);
}

TEST_F(CompareStudyTest, SkippedBatchesAreCounted) {
  const Finished result =
      Compare({"no_norm.pbtxt", "--grid", "train.learning_rate=1e-2,1e30", "--set",
               "train.on_divergence=SKIP", "--set", "train.max_divergences=1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(Read("study/table.md"), HasSubstr(" survived | diverged | collapsed |"));
  const Json report = ReadJson("study/report.json");
  EXPECT_EQ(report["runs"][0]["skips"], 0);
  EXPECT_EQ(report["runs"][3]["skips"], 1);
}

TEST_F(CompareStudyTest, ReportHasProbesOfEveryRun) {
  const Finished result = Compare({"pre.pbtxt", "--seeds", "1", "--probe-every", "10",
                                   "--probe-point", "default", "--probe-point", "attention"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json probes = ReadJson("study/report.json")["groups"][0]["probes"];
  EXPECT_EQ(probes["steps"], Json({1, 10, 20, 30}));
  ASSERT_EQ(probes["layers"].size(), 8u);
  EXPECT_EQ(probes["layers"][7], "layers.7");
  std::vector<std::string> names;
  for (const Json& series : probes["series"]) {
    names.push_back(series["name"]);
    ASSERT_EQ(series["values"].size(), 4u);
    ASSERT_EQ(series["values"][3].size(), 8u);
    for (const Json& value : series["values"][3]) EXPECT_GT(value, 0);
  }
  EXPECT_THAT(names, ElementsAre("gradient norm", "residual stream RMS", "attention entropy",
                                 "largest attention logit"));
  EXPECT_THAT(Read("study/runs/pre-seed1/probes.jsonl"), HasSubstr("layers.7.attention.entropy"));
}

TEST_F(CompareStudyTest, StudyFileEqualsTheCommandLine) {
  Write("s.pbtxt",
        "model: \"pre.pbtxt\" model: \"no_norm.pbtxt\" data: \"names.txt\" train: \"train.pbtxt\"\n"
        "set: \"train.max_steps=30\" seeds: 2 samples: 1\n");
  const Finished result = RunPlumb({"compare", "s.pbtxt", "--out", "from_file", "--quiet"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  ASSERT_EQ(Compare({"pre.pbtxt", "no_norm.pbtxt", "--seeds", "2", "--samples", "1"}).exit_code, 0);
  EXPECT_EQ(Read("from_file/table.csv"), Read("study/table.csv"));
  EXPECT_EQ(Read("from_file/study.pbtxt"), Read("study/study.pbtxt"));
  // The resolved study gives the same results.
  const Finished again = RunPlumb({"compare", "study/study.pbtxt", "--out", "study"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
}

}  // namespace
}  // namespace plumb::cli
