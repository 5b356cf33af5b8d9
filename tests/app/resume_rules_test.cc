// SPDX-License-Identifier: Apache-2.0
// Tests of the fields that may change when a run is resumed: each field of the schema, changed in a
// copy of a run of two steps, and the table in docs/recipes.md.
#include "runtime/train/resume_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/app/train_run_fixture.h"

namespace plumb {
namespace {

namespace fs = std::filesystem;

enum class Effect { kRecorded, kSameSteps, kOtherSteps };

struct Change {
  Overrides overrides;
  Effect effect = Effect::kRecorded;  // unless the rule forbids the change
};

constexpr char kRecipe[] = R"pbtxt(
  max_steps: 6 batch_size: 2 learning_rate: 0.01 warmup_steps: 1
  schedule: WSD cooldown_steps: 4 ema_decay: 0.5
  data { format: DOCUMENTS val_fraction: 0.25 }
  let: "factor = 1"
  rule { match: "*.norm.weight" learning_rate: "factor * lr" }
  normalize { match: "*.mlp.up.weight" }
)pbtxt";

// A bidirectional model with routers, and its recipe.
constexpr char kExperts[] = R"pbtxt(
  n_layer: 2 n_head: 2 d_model: 8 context_length: 10 bidirectional: true
  block {
    placement: "pre" norm: "rms_norm"
    sublayer { attention {} }
    sublayer { experts { n_expert: "4" top_k: "1" router: SIGMOID correction: true } }
  }
)pbtxt";
constexpr char kMasked[] = R"pbtxt(
  max_steps: 6 batch_size: 2 learning_rate: 0.01
  data { format: DOCUMENTS val_fraction: 0.25 }
  masked_tokens { special_token: 1 }
)pbtxt";

// Returns a change of each field. `rules` is a file to import.
std::map<std::string, Change> Changes(const std::string& rules) {
  using Kind = Effect;
  return {
      {"max_steps", {{{"max_steps", "9"}}, Kind::kSameSteps}},
      {"batch_size", {{{"batch_size", "3"}}}},
      {"gradient_accumulation_steps", {{{"gradient_accumulation_steps", "2"}}}},
      {"units", {{{"units", "2"}}}},
      {"optimizer", {{{"optimizer", "MUON"}}}},
      {"muon.momentum", {{{"muon.momentum", "0.5"}}, Kind::kOtherSteps}},
      {"muon.nesterov", {{{"muon.nesterov", "false"}}, Kind::kOtherSteps}},
      {"muon.newton_schulz_steps", {{{"muon.newton_schulz_steps", "2"}}, Kind::kOtherSteps}},
      {"muon.scale", {{{"muon.scale", "MATCH_ADAMW"}}, Kind::kOtherSteps}},
      {"muon.learning_rate", {{{"muon.learning_rate", "2 * lr"}}, Kind::kOtherSteps}},
      {"muon.weight_decay", {{{"muon.weight_decay", "9 * wd"}}, Kind::kOtherSteps}},
      {"learning_rate", {{{"learning_rate", "0.1"}}, Kind::kOtherSteps}},
      {"beta1", {{{"beta1", "0.5"}}, Kind::kOtherSteps}},
      {"beta2", {{{"beta2", "0.5"}}, Kind::kOtherSteps}},
      {"eps", {{{"eps", "0.1"}}, Kind::kOtherSteps}},
      {"weight_decay", {{{"weight_decay", "5"}}, Kind::kOtherSteps}},
      {"weight_decay_on", {{{"weight_decay_on", "EVERYTHING"}}, Kind::kOtherSteps}},
      {"grad_clip", {{{"grad_clip", "0.001"}}, Kind::kOtherSteps}},
      {"schedule", {{{"schedule", "LINEAR"}, {"cooldown_steps", "0"}}, Kind::kOtherSteps}},
      {"warmup_steps", {{{"warmup_steps", "4"}}, Kind::kOtherSteps}},
      {"warmup", {{{"warmup", "MULTIPLIES"}}}},
      {"min_learning_rate", {{{"min_learning_rate", "0.005"}}, Kind::kOtherSteps}},
      {"decay_steps", {{{"decay_steps", "4"}}, Kind::kOtherSteps}},
      {"cooldown_steps", {{{"cooldown_steps", "5"}}, Kind::kOtherSteps}},
      {"cooldown", {{{"cooldown", "COSINE"}}, Kind::kOtherSteps}},
      {"seed", {{{"seed", "2"}}}},
      {"data.format", {{{"data.format", "TEXT"}}}},
      {"data.vocabulary", {{{"data.vocabulary", "BYTES"}}}},
      {"data.val_fraction", {{{"data.val_fraction", "0.5"}}}},
      {"data.keep_order", {{{"data.keep_order", "true"}}}},
      {"data.tokenizer", {{{"data.tokenizer", "a.json"}, {"data.vocabulary", "TOKENIZER"}}}},
      {"data.bpe_vocab_size", {{{"data.bpe_vocab_size", "300"}, {"data.vocabulary", "BPE"}}}},
      {"data.token_bits", {{{"data.token_bits", "16"}}}},
      {"data.begin_token", {{{"data.begin_token", "a"}}}},
      {"data.end_token", {{{"data.end_token", "a"}}}},
      {"eval_interval", {{{"eval_interval", "1"}}, Kind::kSameSteps}},
      {"eval_batches", {{{"eval_batches", "1"}}, Kind::kSameSteps}},
      {"checkpoint_interval", {{{"checkpoint_interval", "3"}}, Kind::kSameSteps}},
      {"checkpoint_seconds", {{{"checkpoint_seconds", "9"}}, Kind::kSameSteps}},
      {"keep_checkpoints", {{{"keep_checkpoints", "1"}}, Kind::kSameSteps}},
      {"dtype", {{{"dtype", "BF16"}}}},
      {"recompute", {{{"recompute", "BLOCK"}}, Kind::kSameSteps}},
      {"on_divergence", {{{"on_divergence", "SKIP"}}, Kind::kSameSteps}},
      {"max_divergences", {{{"max_divergences", "1"}}, Kind::kSameSteps}},
      {"label_smoothing", {{{"label_smoothing", "0.5"}}, Kind::kOtherSteps}},
      {"z_loss", {{{"z_loss", "0.5"}}, Kind::kOtherSteps}},
      {"masked_tokens.share", {{{"masked_tokens.share", "0.5"}}}},
      {"masked_tokens.mask_token", {{{"masked_tokens.mask_token", "1"}}}},
      {"masked_tokens.masked", {{{"masked_tokens.masked", "0.5"}}}},
      {"masked_tokens.random", {{{"masked_tokens.random", "0.2"}}}},
      {"masked_tokens.special_token", {{{"masked_tokens.special_token[0]", "2"}}}},
      {"ema_decay", {{{"ema_decay", "0.9"}}, Kind::kSameSteps}},
      {"router_correction_rate", {{{"router_correction_rate", "0.5"}}, Kind::kOtherSteps}},
      {"import", {{{"import[0]", rules}}, Kind::kOtherSteps}},
      {"let", {{{"let[0]", "factor = 9"}}, Kind::kOtherSteps}},
      {"rule", {{{"rule[0].learning_rate", "9 * lr"}}, Kind::kOtherSteps}},
      {"normalize", {{{"normalize[0].axis", "OUT"}}}},
  };
}

// Adds the paths of fields that are no message, and of repeated messages.
void AddPaths(const textproto::MessageType& type, const std::string& path,
              std::set<std::string>* paths) {
  for (const textproto::Field& field : type.fields) {
    const std::string name = absl::StrCat(path, field.name);
    if (field.type == textproto::FieldType::kMessage && !field.repeated()) {
      AddPaths(*field.message_type, name + ".", paths);
    } else {
      paths->insert(name);
    }
  }
}

std::set<std::string> Paths() {
  std::set<std::string> paths;
  AddPaths(v1::Train().Type(), "", &paths);
  return paths;
}

std::vector<std::string> GetFields(const ResumeRule& rule) {
  return absl::StrSplit(rule.fields, ' ');
}

TEST(ResumeRulesTest, EachFieldHasOneRule) {
  std::set<std::string> fields;
  for (const ResumeRule& rule : ResumeRules()) {
    for (const std::string& field : GetFields(rule)) EXPECT_TRUE(fields.insert(field).second);
  }
  EXPECT_EQ(fields, Paths());
}

// Fixture with three runs of two steps, "adamw", "muon" and "experts", that tests copy.
class ResumedRunTest : public TrainRunTest {
 protected:
  ResumedRunTest() {
    rules_ = test_.dir().Write("rules.pbtxt",
                               R"pbtxt(rule { match: "head.*" learning_rate: "9 * lr" })pbtxt");
    test_.dir().Write("train.pbtxt", kRecipe);
    TrainRequest request = test_.Request(test_.dir().File("adamw"));
    Train(request);
    request.out = test_.dir().File("muon");
    request.train_overrides = {{"optimizer", "MUON"}};
    Train(request);
    request = test_.Request(test_.dir().File("experts"));
    test_.dir().Write("model.pbtxt", kExperts);
    test_.dir().Write("train.pbtxt", kMasked);
    Train(request);
  }

  void Train(const TrainRequest& request) const {
    const auto run = test_.Open(request);
    TestRun::Steps(run.get(), 2);
    EXPECT_TRUE(run->SaveCheckpoint().ok());
  }
  // Returns a request to resume a copy of a run.
  TrainRequest ResumeCopy(const std::string& run, const Overrides& overrides) {
    TrainRequest request = test_.Resume();
    request.out = test_.dir().File(absl::StrCat(run, ++copies_));
    fs::copy(test_.dir().File(run), request.out, fs::copy_options::recursive);
    request.train_overrides = overrides;
    return request;
  }
  std::vector<double> LastSteps(const TrainRequest& request) {
    return TestRun::Steps(test_.Open(request).get(), 3);
  }

  std::string rules_;
  int copies_ = 0;
};

TEST_F(ResumedRunTest, FieldsFollowTheirRules) {
  std::map<std::string, std::vector<double>> unchanged;
  for (const char* run : {"adamw", "muon", "experts"})
    unchanged[run] = LastSteps(ResumeCopy(run, {}));
  const std::map<std::string, Change> changes = Changes(rules_);
  for (const ResumeRule& rule : ResumeRules()) {
    for (const std::string& field : GetFields(rule)) {
      const auto change = changes.find(field);
      ASSERT_NE(change, changes.end()) << field << " is not tested";
      SCOPED_TRACE(field);
      const bool needs_experts =
          absl::StartsWith(field, "masked_tokens.") || field == "router_correction_rate";
      const std::string run = needs_experts                      ? "experts"
                              : absl::StartsWith(field, "muon.") ? "muon"
                                                                 : "adamw";
      const TrainRequest request = ResumeCopy(run, change->second.overrides);
      const std::string before = Content(JoinPath(request.out, "train.pbtxt"));
      if (!rule.may_change) {
        ExpectError(request, absl::StatusCode::kInvalidArgument,
                    {request.out, absl::StrCat("train.", field, ": was started with "),
                     std::string(rule.note), "--init"});
        EXPECT_EQ(Content(JoinPath(request.out, "train.pbtxt")), before);
        continue;
      }
      const std::vector<double> losses = LastSteps(request);
      EXPECT_EQ(losses.size(), 3u);
      EXPECT_NE(Content(JoinPath(request.out, "train.pbtxt")), before);
      if (change->second.effect == Effect::kSameSteps) {
        EXPECT_EQ(losses, unchanged[run]);
      } else if (change->second.effect == Effect::kOtherSteps) {
        EXPECT_NE(losses, unchanged[run]);
      }
    }
  }
}

TEST_F(ResumedRunTest, MicroBatchSizeMayChange) {
  const std::vector<double> losses = LastSteps(ResumeCopy("adamw", {}));
  const std::vector<double> divided =
      LastSteps(ResumeCopy("adamw", {{"batch_size", "1"}, {"gradient_accumulation_steps", "2"}}));
  EXPECT_THAT(divided, ::testing::Pointwise(::testing::DoubleNear(1e-4), losses));
}

TEST_F(ResumedRunTest, RefusesStatesOfAnotherShape) {
  for (const Overrides& overrides :
       std::vector<Overrides>{{{"ema_decay", "0"}},
                              {{"rule[0].match", "*.q.weight"}, {"rule[0].optimizer", "MUON"}}}) {
    ExpectError(ResumeCopy("adamw", overrides), absl::StatusCode::kInvalidArgument,
                {"optimizer.safetensors: does not fit the recipe"});
  }
}

TEST_F(ResumedRunTest, EditsFollowTheRulesOfOverrides) {
  TrainRequest request = ResumeCopy("adamw", {});
  const std::string path = JoinPath(request.out, "train.pbtxt"), text = Content(path);
  const std::string edited =
      absl::StrReplaceAll(text, {{"val_fraction: 0.25", "val_fraction: 0.5"}});
  ASSERT_NE(edited, text);
  ScratchDir::Overwrite(path, edited);
  for (const bool accept : {false, true}) {
    request.accept_edits = accept;
    ExpectError(request, absl::StatusCode::kInvalidArgument, {"train.data.val_fraction: was"});
  }
}

// PLUMB_UPDATE=1 in the environment writes the table.
TEST(ResumeRulesTest, DocumentationListsTheRules) {
  std::string table = "\n| field | when a run is resumed |\n|---|---|\n";
  for (const ResumeRule& rule : ResumeRules()) {
    absl::StrAppend(&table, "| `", absl::StrReplaceAll(rule.fields, {{" ", "`, `"}}), "` | ",
                    rule.may_change ? "" : "refused: ", rule.note, " |\n");
  }
  const std::string path = JoinPath(PLUMB_SOURCE_DIR, "docs/recipes.md");
  const std::string page = ReadFile(path).value(), begin = "<!-- resume -->";
  const size_t from = page.find(begin) + begin.size(), to = page.find("<!-- end -->", from);
  ASSERT_NE(to, std::string::npos);
  if (std::getenv("PLUMB_UPDATE") != nullptr) {
    ScratchDir::Overwrite(path, page.substr(0, from) + table + page.substr(to));
  } else {
    EXPECT_EQ(page.substr(from, to - from), table) << "run this test with PLUMB_UPDATE=1";
  }
}

}  // namespace
}  // namespace plumb
