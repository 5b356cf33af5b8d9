// SPDX-License-Identifier: Apache-2.0
// Tests of adapters through plumb.h: trained on a base, saved alone, loaded again, and merged.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/capi/capi_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class AdapterTest : public CapiTest {
 protected:
  std::string Adapted() const {
    TinyModel model = Base();
    model.more =
        "adapter { extends: \"lora\" let: \"rank = 2\" let: \"on_o = 1\" let: \"on_up = 1\" }";
    return model.Text();
  }
  TinyModel Base() const {
    TinyModel base;
    base.d_model = 16;
    base.d_ff = 40;
    base.block = block_;
    return base;
  }
  // Returns the adapted model with the weights of the file of a base, trained for some steps.
  ModelHandle Train(const std::string& base, const std::string& dtype) {
    ModelHandle model = Create(Adapted());
    EXPECT_PLUMB_OK(plumb_model_init(model.get, 5, err));
    const std::string left = GetText(plumb_model_load, model.get, base.c_str());
    const std::vector<std::string> lines = absl::StrSplit(left, '\n');
    // Two tensors for each of q, v, o and up, in two layers.
    EXPECT_EQ(lines.size(), block_.empty() ? 2u * 2 * 4 : 2u * 4);
    EXPECT_THAT(lines, Each(HasSubstr(".lora_")));
    const std::string recipe = absl::StrCat(
        "import: \"lora\" max_steps: 9 batch_size: 2 learning_rate: 0.05 dtype: ", dtype);
    plumb_trainer_options options = Recipe(recipe.c_str());
    TrainerHandle trainer;
    EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
    std::vector<int32_t> inputs(16), targets(16);
    for (size_t i = 0; i < 16; ++i) {
      inputs[i] = static_cast<int32_t>(i * i % 5);
      targets[i] = static_cast<int32_t>(i * 3 % 5);
    }
    for (int step = 0; step < 9; ++step) {
      EXPECT_PLUMB_OK(
          plumb_trainer_step(trainer.get, inputs.data(), targets.data(), 16, nullptr, err));
    }
    return model;
  }
  static std::vector<float> LogitsOf(plumb_model* model) {
    SessionHandle session;
    EXPECT_PLUMB_OK(plumb_session_create(model, nullptr, &session.get, err));
    const int32_t prompt[] = {1, 4, 2, 0, 3};
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, prompt, 5, err));
    return Logits(session.get, 0, 5);
  }
  std::string SaveBase() {
    const ModelHandle base = Create(Base().Text());
    EXPECT_PLUMB_OK(plumb_model_init(base.get, 3, err));
    EXPECT_PLUMB_OK(plumb_model_save(base.get, scratch_.File("base").c_str(), nullptr, err));
    return scratch_.File("base");
  }

  ScratchDir scratch_;
  std::string block_;  // further fields of the block
};

TEST_F(AdapterTest, AnAdapterIsSavedAloneAndLoadedAgain) {
  const std::string base = SaveBase(), file = scratch_.File("adapter");
  const ModelHandle trained = Train(base, "F32");
  EXPECT_PLUMB_OK(plumb_model_save(trained.get, file.c_str(), "*.lora_*", err));
  EXPECT_LT(std::filesystem::file_size(file), std::filesystem::file_size(base) / 2);

  // Another process has new handles, and nothing but the two files.
  const ModelHandle again = Create(Adapted());
  EXPECT_PLUMB_OK(plumb_model_init(again.get, 99, err));
  for (const std::string& path : {base, file}) {
    EXPECT_THAT(GetText(plumb_model_load, again.get, path.c_str()), Not(HasSubstr("surplus")));
  }
  EXPECT_EQ(Weights(again.get), Weights(trained.get));
  EXPECT_EQ(LogitsOf(again.get), LogitsOf(trained.get));
  EXPECT_THAT(
      Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_model_save, trained.get, file.c_str(), "*.lara_*"),
      HasSubstr("no tensor of the model matches \"*.lara_*\""));
}

TEST_F(AdapterTest, AMergedModelComputesTheSame) {
  for (const std::string dtype : {"F32", "BF16", "shared F32"}) {
    block_ = dtype == "shared F32" ? "share: 'all'" : "";
    const std::string base = SaveBase();
    const ModelHandle trained = Train(base, dtype == "BF16" ? "BF16" : "F32");
    const ModelHandle plain = Create(Base().Text());
    EXPECT_PLUMB_OK(plumb_model_load(plain.get, base.c_str(), nullptr, err));
    ModelHandle merged;
    EXPECT_PLUMB_OK(plumb_model_merge(trained.get, &merged.get, err));
    EXPECT_EQ(plumb_model_tensor_count(merged.get), plumb_model_tensor_count(plain.get));
    EXPECT_EQ(plumb_model_find_tensor(merged.get, "layers.0.attention.lora_q_a.weight"), -1);
    const std::vector<float> expected = LogitsOf(trained.get);
    EXPECT_LE(RelativeError(LogitsOf(merged.get), expected), 2e-6) << dtype;
    EXPECT_GE(RelativeError(LogitsOf(plain.get), expected), 1e-2) << "it has learned something";
    // The file of a merged model is one of its base.
    EXPECT_PLUMB_OK(plumb_model_save(merged.get, scratch_.File("merged").c_str(), nullptr, err));
    EXPECT_PLUMB_OK(plumb_model_load(plain.get, scratch_.File("merged").c_str(), nullptr, err));
    EXPECT_EQ(LogitsOf(plain.get), LogitsOf(merged.get));
  }
}

TEST_F(AdapterTest, RefusesOtherAdapters) {
  TinyModel doubled = Base();
  doubled.more = "adapter { inside { point: \"attention.q\" rule: \"q = 2 * q\" } }";
  TinyModel shared = Base();  // Each call of `a` has its own tensor.
  shared.more =
      "adapter { linear { name: 'a' out: '2' } linear { name: 'b' out: 'point_width' } "
      "linear { name: 'd' out: 'point_width' } "
      "inside { point: 'attention.q' rule: 'q = q + b(a(input))' } "
      "inside { point: 'attention.v' rule: 'v = v + d(a(input))' } }";
  TinyModel narrow = Base();  // The channel of `b` is repeated.
  narrow.more =
      "adapter { linear { name: 'a' out: '2' } linear { name: 'b' out: '1' } "
      "inside { point: 'attention.q' rule: 'q = q + b(a(input))' } }";
  TinyModel by_layer = Base();
  by_layer.block = "share: 'all'";
  by_layer.more =
      "adapter { linear { name: 'a' out: '2' } linear { name: 'b' out: 'point_width' } "
      "inside { point: 'attention.q' rule: 'q = q + layer * b(a(input))' } }";
  ModelHandle merged;
  for (const auto& [text, message] :
       {std::pair<std::string, std::string>{Base().Text(), "the model has no adapter"},
        {doubled.Text(), "q = 2 * q"},
        {shared.Text(), "cannot be merged: layers.0.attention.q"},
        {narrow.Text(), "as wide as that, so that it cannot be merged: layers.0.attention.q"},
        {by_layer.Text(), "cannot be merged: layers.0.attention.q"}}) {
    const ModelHandle model = Create(text);
    EXPECT_PLUMB_OK(plumb_model_init(model.get, 3, err));
    EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_model_merge, model.get, &merged.get),
                HasSubstr(message));
  }
  const ModelHandle without = Create(Adapted());
  EXPECT_THAT(Fails(PLUMB_STATUS_FAILED_PRECONDITION, plumb_model_merge, without.get, &merged.get),
              HasSubstr("no weights"));
}

}  // namespace
}  // namespace plumb
