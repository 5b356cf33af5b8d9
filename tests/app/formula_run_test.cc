// SPDX-License-Identifier: Apache-2.0
// Tests of a model whose formulas read the step, random numbers and a table per layer: training,
// checkpoints and sampling.
#include <cstring>

#include "runtime/formats/safetensors.h"
#include "runtime/train/trained_model.h"
#include "tests/app/train_run_fixture.h"

namespace plumb {
namespace {

constexpr char kModel[] = R"pbtxt(
  n_layer: 2 n_head: 2 d_model: 8 context_length: 10
  embedding { name: "ve" width: "n_kv_head * head_dim" per_layer: true }
  placement {
    name: "mine"
    extends: "pre"
    learned { name: "lamb" init: 0.5 }
    each: "x = x + drop_path(drop(min(1, step / (8 * layer)) * f(norm(x)), 0.2), 0.2)"
    inside { point: "attention.v" rule: "v = (1 - lamb) * v + lamb * ve[layer]" }
  }
  block { placement: "mine" norm: "rms_norm" }
)pbtxt";

class FormulaRunTest : public TrainRunTest, public ::testing::WithParamInterface<const char*> {
 protected:
  FormulaRunTest() { test_.dir().Write("model.pbtxt", kModel); }
};

TEST_P(FormulaRunTest, AResumedRunHasTheSameBits) {
  const Overrides overrides = {{"dtype", GetParam()}, {"gradient_accumulation_steps", "2"}};
  TrainRequest request = test_.Request("");
  request.train_overrides = overrides;
  const auto whole = test_.Open(request);
  const std::vector<double> losses = TestRun::Steps(whole.get(), 99);
  ASSERT_EQ(losses.size(), 8u);

  Overrides with_checkpoints = overrides;
  with_checkpoints.push_back({"checkpoint_interval", "3"});
  Begin(5, with_checkpoints);
  const auto run = test_.Open(test_.Resume());
  ASSERT_EQ(run->step(), 3);
  EXPECT_EQ(TestRun::Steps(run.get(), 99), std::vector<double>(losses.begin() + 3, losses.end()));
  const double loss = *run->ValidationLoss();
  EXPECT_EQ(loss, *whole->ValidationLoss());
  EXPECT_EQ(loss, *run->ValidationLoss()) << "nothing is drawn";

  const auto file = SafetensorsFile::Open(RunFile("checkpoints/step-000008/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  for (const char* const table : {"embedding.ve.0.weight", "embedding.ve.1.weight"}) {
    EXPECT_NE(file->Find(table), nullptr) << table;
  }
  ASSERT_NE(file->Find("step"), nullptr);
  float step = 0;
  std::memcpy(&step, file->Find("step")->data.data(), sizeof(step));
  EXPECT_EQ(step, 8);

  const auto model = TrainedModel::Open(test_.runtime(), test_.out());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto split = (*model)->Evaluate(test_.dir().File("data.txt"));
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_NEAR(split->back().loss, loss, 0.02);
  GenerateOptions options;
  const auto sample = (*model)->Generate(options), again = (*model)->Generate(options);
  ASSERT_TRUE(sample.ok() && again.ok()) << sample.status();
  EXPECT_EQ(sample->text, again->text);
}

INSTANTIATE_TEST_SUITE_P(DTypes, FormulaRunTest, ::testing::Values("F32", "BF16"),
                         [](const auto& dtype) { return std::string(dtype.param); });

}  // namespace
}  // namespace plumb
