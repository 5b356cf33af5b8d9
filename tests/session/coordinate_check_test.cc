// SPDX-License-Identifier: Apache-2.0
// The coordinate check of muP (Yang et al. 2022, appendix D.1): after a few steps the size of
// activations does not depend on the width with muP, and grows with it without.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/session/recipe_fixture.h"

namespace plumb {
namespace {

constexpr int kBase = 32;
constexpr int kWidths[] = {32, 64, 128, 256};

class CoordinateCheckTest : public RecipeTest {
 protected:
  static TinyModel Model(int width, int layers, const std::string& more) {
    TinyModel model;
    model.placement = "mine";
    model.norm = "layer_norm";
    model.n_layer = layers;
    model.n_head = model.n_kv_head = 4;
    model.d_model = width;
    model.d_ff = 4 * width;
    model.vocab_size = 26;
    model.context_length = 16;
    model.more = more;
    return model;
  }
  // Returns the settings of Table 8 besides the learning rates. `branch` is a factor of a block.
  static std::string MupText(const std::string& branch) {
    return absl::StrCat(
        "attention { scale: 'sqrt(8) / head_dim' } init { match: 'head.weight' normal { std: '0.2' "
        "} }"
        "placement { name: 'mine' each: 'x = x + ",
        branch,
        " * f(norm(x))' end: 'x = norm(x)'"
        "  inside { point: 'head.logits' rule: 'logits = logits * 32 / d_model' } }");
  }

  // Returns the root mean square of logits and of the last layer's stream in the sixth step.
  std::map<std::string, double> Sizes(const TinyModel& model, const std::string& recipe) {
    const auto context = MakeContext(runtime_.get(), model.Text());
    const Dataset data = TextDataset(3000, 26);
    const auto session =
        Make(*context, data,
             Spec(absl::StrCat("batch_size: 8 learning_rate: 0.02 grad_clip: 0 ", recipe)));
    const std::string stream = absl::StrCat("layers.", model.n_layer - 1, ".residual");
    EXPECT_TRUE(session->SetProbe(1, {"logits", stream}).ok());
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(session->Step().ok());
    std::map<std::string, double> sizes;
    for (const ProbeResult::Tensor& tensor : session->probe()->activations) {
      sizes[tensor.name == stream ? "stream" : tensor.name] = tensor.stats.Rms();
    }
    EXPECT_EQ(sizes.size(), 2u);
    return sizes;
  }
};

// Returns the largest size divided by the smallest.
double Spread(const std::vector<std::map<std::string, double>>& sizes, const std::string& name) {
  std::vector<double> values;
  for (const auto& size : sizes) values.push_back(size.at(name));
  return *std::max_element(values.begin(), values.end()) /
         *std::min_element(values.begin(), values.end());
}

TEST_F(CoordinateCheckTest, SizesDependOnWidthOnlyWithoutMup) {
  std::vector<std::map<std::string, double>> mup, standard;
  for (const int width : kWidths) {
    mup.push_back(Sizes(Model(width, 2, MupText("1")), "import: 'mup' let: 'base_width = 32'"));
    mup.back()["logits"] *= 32.0 / width;  // the probe is before the model's multiplier
    standard.push_back(Sizes(Model(width, 2,
                                   "placement { name: 'mine' each: 'x = x + f(norm(x))' end: 'x = "
                                   "norm(x)' }"),
                             ""));
  }
  for (const char* name : {"logits", "stream"}) {
    EXPECT_LT(Spread(mup, name), 1.5) << name;
    EXPECT_GT(Spread(standard, name), 2.5) << name;
  }
}

TEST_F(CoordinateCheckTest, CompletePSizesDoNotDependOnDepth) {
  std::vector<std::map<std::string, double>> complete, mup;
  for (const int layers : {2, 8, 32}) {
    complete.push_back(Sizes(Model(2 * kBase, layers, MupText("2 / n_layer")),
                             "import: 'completep' let: 'base_width = 32' let: 'base_depth = 2'"));
    mup.push_back(
        Sizes(Model(2 * kBase, layers, MupText("1")), "import: 'mup' let: 'base_width = 32'"));
  }
  EXPECT_LT(Spread(complete, "stream"), 1.5);
  EXPECT_GT(Spread(mup, "stream"), 2.5);
}

}  // namespace
}  // namespace plumb
