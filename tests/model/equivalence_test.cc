// SPDX-License-Identifier: Apache-2.0
// Tests of rules that must agree: a placement with its scales at their neutral values and the
// placement that it then equals, and two ways to write one rule. They use the public interface and
// assign weights by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "runtime/base/rng.h"
#include "runtime/client/model.h"
#include "runtime/client/model_pass.h"
#include "runtime/formats/safetensors.h"
#include "tests/app/test_models.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

// Rule for a model's weights. A tensor's values depend only on its (renamed) name, so that tensors
// of one name have the same values in all models. Tensors whose name ends in a key of `constants`
// are constant.
struct Weights {
  std::map<std::string, float> constants;
  std::vector<std::pair<std::string, std::string>> renamed;  // part of a name -> its replacement
};

struct TensorInfo {
  std::string name, role;
  std::vector<int64_t> shape;
  int64_t elements = 0;
};

class EquivalenceTest : public ::testing::Test {
 protected:
  // Returns the logits [2, 6, vocab] of the model on fixed tokens.
  std::vector<float> Logits(const std::string& text, const Weights& weights = {}) {
    auto model = TryModel(runtime_.get(), text);
    if (!model.ok()) return Failed(model.status());
    const auto description = DescribeModel(*model);
    if (!description.ok()) return Failed(description.status());
    values_.clear();
    std::vector<TensorToWrite> tensors;
    for (const char* list : {"tensors", "buffers"}) {
      for (const auto& json : (*description)[list]) {
        const TensorInfo info = {json["name"], json["role"], json["shape"], json["elements"]};
        values_[info.name] = Values(info, weights);
        tensors.push_back({info.name, F32(Shape(info.shape)), values_[info.name].data()});
      }
    }
    const std::string path = dir_.File("weights.safetensors");
    if (const auto status = WriteSafetensors(path, tensors); !status.ok()) return Failed(status);
    if (const auto status = ToStatus(model->Load(path)); !status.ok()) return Failed(status);
    const auto outputs = RunTokens(&*model, {RandomTokens(2, 6, 5)});
    if (!outputs.ok()) return Failed(outputs.status());
    return outputs->logits;
  }
  std::vector<float> Logits(const TinyModel& model, const Weights& weights = {}) {
    return Logits(model.Text(), weights);
  }

  // Returns the logits with weights drawn from a seed, which depend only on the names of tensors.
  std::vector<float> LogitsAtInit(const TinyModel& tiny) {
    auto model = TryModel(runtime_.get(), tiny.Text());
    if (!model.ok()) return Failed(model.status());
    if (const auto status = ToStatus(model->Init(1)); !status.ok()) return Failed(status);
    const auto outputs = RunTokens(&*model, {RandomTokens(2, 6, 5)});
    if (!outputs.ok()) return Failed(outputs.status());
    return outputs->logits;
  }

  const std::vector<float>& value(const std::string& name) const { return values_.at(name); }

 private:
  static std::vector<float> Failed(const absl::Status& status) {
    ADD_FAILURE() << status;
    return {};
  }

  static std::vector<float> Values(const TensorInfo& info, const Weights& weights) {
    for (const auto& [ending, constant] : weights.constants) {
      if (!absl::EndsWith(info.name, ending)) continue;
      return std::vector<float>(static_cast<size_t>(info.elements), constant);
    }
    if (info.role == "buffer") return std::vector<float>(static_cast<size_t>(info.elements), 0.0f);
    ParameterSpec parameter;
    parameter.name = absl::StrReplaceAll(info.name, weights.renamed);
    parameter.shape = Shape(info.shape);
    if (info.role == "norm") {
      parameter.role = ParameterSpec::Role::kNorm;
      parameter.init.a = absl::EndsWith(info.name, "weight") ? 1 : 0;
    }
    return GenericValues(parameter, 1);
  }

  const std::unique_ptr<HostRuntime> runtime_ = MakeHostRuntime();
  ScratchDir dir_;
  std::map<std::string, std::vector<float>> values_;
};

TinyModel Tiny(const std::string& placement, int n_layer = 2) {
  TinyModel model;
  model.placement = placement;
  model.n_layer = n_layer;
  model.norm = "layer_norm";
  return model;
}

// Returns a model with a placement that the test writes.
TinyModel Mine(const std::string& body, int n_layer = 2) {
  TinyModel model = Tiny("mine", n_layer);
  model.more = absl::StrCat("placement { name: \"mine\" ", body, " }");
  return model;
}

TEST_F(EquivalenceTest, DeepNormWithAlphaOneIsPost) {
  const std::vector<float> post = Logits(Tiny("post"));
  EXPECT_EQ(Logits(Mine("extends: \"deepnorm\" let: \"alpha = 1\"")), post);
  EXPECT_NE(Logits(Tiny("deepnorm")), post);
}

TEST_F(EquivalenceTest, LayerScaleWithGammaOneIsPre) {
  Weights weights;
  weights.constants = {{".gamma", 1.0f}};
  EXPECT_LE(RelativeError(Logits(Tiny("layer_scale"), weights), Logits(Tiny("pre"))), 1e-6);
  weights.constants = {{".gamma", 0.5f}};
  EXPECT_GT(RelativeError(Logits(Tiny("layer_scale"), weights), Logits(Tiny("pre"))), 1e-3);
}

TEST_F(EquivalenceTest, LayerNormScalingOfOneLayerIsPre) {
  EXPECT_EQ(Logits(Tiny("ln_scaling", 1)), Logits(Tiny("pre", 1)));
  EXPECT_NE(Logits(Tiny("ln_scaling", 2)), Logits(Tiny("pre", 2)));
}

TEST_F(EquivalenceTest, ScaledResidualWithCoefficientOneIsPre) {
  EXPECT_EQ(Logits(Mine("extends: \"scaled_residual\" let: \"scale = 1\"")), Logits(Tiny("pre")));
}

TEST_F(EquivalenceTest, BloomWithoutItsEmbeddingNormIsPre) {
  const std::string text = absl::StrReplaceAll(
      Mine("extends: \"bloom\" begin: \"x = e_norm(x)\"").Text(),
      {{"norm: \"layer_norm\"", "norm: \"layer_norm\" slot { name: \"e_norm\" norm: \"none\" }"}});
  EXPECT_EQ(Logits(text), Logits(Tiny("pre")));
  EXPECT_NE(Logits(Tiny("bloom")), Logits(Tiny("pre")));
}

std::string Mixed(int post, int pre, const std::string& post_placement = "post") {
  std::string text = absl::StrCat(
      "n_head: 2 d_model: 8 d_ff: \"12\" vocab_size: 5 context_length: 8 "
      "placement { name: \"post_end\" extends: \"post\" end: \"x = norm(x)\" } ");
  const auto add = [&text](int n, const std::string& placement) {
    if (n == 0) return;
    absl::StrAppend(&text, "layers { repeat: ", n, " block { placement: \"", placement,
                    "\" norm: \"layer_norm\" } } ");
  };
  add(post, post_placement);
  add(pre, "pre");
  return text;
}

TEST_F(EquivalenceTest, MixOfOneKindIsThatKind) {
  EXPECT_EQ(Logits(Mixed(0, 3)), Logits(Tiny("pre", 3)));
  EXPECT_EQ(Logits(Mixed(3, 0)), Logits(Tiny("post", 3)));
  // All layers are post-norm, with the norm before the head that the last layers of a mix would
  // add.
  EXPECT_EQ(Logits(Mixed(3, 0, "post_end")),
            Logits(Mine("extends: \"post\" end: \"x = norm(x)\"", 3)));
}

TEST_F(EquivalenceTest, LayerGroupsEqualConditions) {
  const TinyModel conditions = Mine(
      "each: \"x = norm(x + f(x)) if layer <= 1\" each: \"x = x + f(norm(x)) if layer > 1\" "
      "end: \"x = norm(x)\"",
      3);
  EXPECT_EQ(Logits(conditions), Logits(Mixed(1, 2)));
  EXPECT_NE(Logits(conditions), Logits(Mixed(2, 1)));
}

TEST_F(EquivalenceTest, AlternatingBlocksEqualSingleLayers) {
  const std::string head = "n_head: 2 d_model: 8 d_ff: \"12\" vocab_size: 5 context_length: 8 ";
  const std::string post = "block { placement: \"post\" norm: \"rms_norm\" } ";
  const std::string pre = "block { placement: \"pre\" norm: \"layer_norm\" } ";
  const auto one = [](const std::string& block) { return absl::StrCat("layers { ", block, "} "); };
  EXPECT_EQ(Logits(absl::StrCat(head, "layers { repeat: 4 ", post, pre, "}")),
            Logits(absl::StrCat(head, one(post), one(pre), one(post), one(pre))));
}

TEST_F(EquivalenceTest, EachEqualsBlock) {
  Weights by_name;
  by_name.renamed = {{".norm_1.", ".attention.norm."}, {".norm_2.", ".mlp.norm."}};
  EXPECT_EQ(Logits(Mine("block: \"x = x + attention(norm_1(x))\" "
                        "block: \"x = x + mlp(norm_2(x))\" end: \"x = norm(x)\""),
                   by_name),
            Logits(Tiny("pre")));
  EXPECT_EQ(Logits(Mine("block: \"x = norm_1(x + attention(x))\" "
                        "block: \"x = norm_2(x + mlp(x))\""),
                   by_name),
            Logits(Tiny("post")));
}

TEST_F(EquivalenceTest, LocalsAndScalarsDoNotChangeARule) {
  const std::vector<float> double_norm = Logits(Tiny("double"));
  EXPECT_EQ(Logits(Mine("each: \"h = norm_in(x)\" each: \"y = f(h)\" each: \"y = norm_out(y)\" "
                        "each: \"x = x + y\" end: \"x = norm(x)\"")),
            double_norm);
  EXPECT_EQ(
      Logits(Mine("let: \"one = 2 - 1\" each: \"x = one * x + norm_out(f(norm_in(x)) / one)\" "
                  "end: \"x = norm(x)\"")),
      double_norm);
}

TEST_F(EquivalenceTest, ResiDualWithoutItsSecondStreamIsPost) {
  EXPECT_LE(RelativeError(Logits(Mine("begin: \"d = x\" each: \"y = f(x)\" each: \"d = d + y\" "
                                      "each: \"x = norm(x + y)\" end: \"x = x + 0 * d\"")),
                          Logits(Tiny("post"))),
            1e-6);
}

// The logits are those of a stack that does nothing: head(token + position).
TEST_F(EquivalenceTest, ReZeroAndSkipInitStartAsTheIdentity) {
  Weights weights;
  weights.constants = {{".gate", 0.0f}};
  for (const char* placement : {"rezero", "skip_init"}) {
    const std::vector<float> logits = Logits(Tiny(placement), weights);
    const std::vector<float>&token = value("embedding.token.weight"),
          &position = value("embedding.position.weight"), &head = value("head.weight");
    std::vector<double> expected;
    for (const std::vector<int32_t>& row : RandomTokens(2, 6, 5)) {
      for (size_t t = 0; t < row.size(); ++t) {
        for (size_t v = 0; v < 5; ++v) {
          double sum = 0;
          for (size_t c = 0; c < 8; ++c) {
            sum += (static_cast<double>(token[static_cast<size_t>(row[t]) * 8 + c]) +
                    static_cast<double>(position[t * 8 + c])) *
                   static_cast<double>(head[v * 8 + c]);
          }
          expected.push_back(sum);
        }
      }
    }
    EXPECT_LE(RelativeError(logits, expected), 1e-6) << placement;
  }
}

// Without norms, and with learned scales of one, many rules reduce to x = x + f(x), at least in one
// layer. The others add the stream twice, scale it, gate it, or wire it in another way.
TEST_F(EquivalenceTest, PlacementsWithoutNormsEqualNoneWithExceptions) {
  const std::vector<std::string> sums = absl::StrSplit(
      "admin bloom double double_qk dropout ds_init head_norm hybrid_norm hybrid_norm_star "
      "keel laurel_rw layer_scale ln_scaling none normformer normformer_res_scale olmo2 "
      "olmo2_qk peri post pre prores qk_norm qk_norm_full qk_norm_rotated qkv_norm rezero "
      "skip_init stochastic_depth sub_ln svformer swin_v2 unet_skip value_residual",
      ' ');
  Weights weights;
  weights.constants = {{".gate", 1.0f},      {".gamma", 1.0f}, {".head_scale", 1.0f},
                       {".omega", 1.0f},     {".alpha", 1.0f}, {".beta", 1.0f},
                       {".res_scale", 1.0f}, {"step", 1000.0f}};
  const std::vector<float> none = Logits(Tiny("none", 1), weights);
  for (const std::string& placement : ShippedPlacements()) {
    TinyModel model = Tiny(placement, 1);  // one layer: KEEL has no alpha, LayerNorm scaling is 1
    model.norm = "none";
    const double error = RelativeError(Logits(model, weights), none);
    if (std::find(sums.begin(), sums.end(), placement) != sums.end()) {
      EXPECT_LE(error, 1e-6) << placement;
    } else {
      EXPECT_GT(error, 1e-3) << placement;
    }
  }
}

// These wirings equal `pre` with the initial values of their papers. The sum of n streams is n
// times the stream, which the last norm divides out except for its eps.
TEST_F(EquivalenceTest, WiringsStartAsPre) {
  const std::vector<float> pre = LogitsAtInit(Tiny("pre"));
  for (const char* placement : {"denseformer", "dropout", "frac_connections", "gpas", "hc_static",
                                "hc_static_2", "hyper_connections", "laurel_lr", "laurel_pa",
                                "laurel_rw", "muddformer", "muddformer_norm", "stochastic_depth"}) {
    EXPECT_LE(RelativeError(LogitsAtInit(Tiny(placement)), pre), 2e-5) << placement;
  }
  EXPECT_GT(RelativeError(LogitsAtInit(Tiny("x0_lambdas")), pre), 1e-3);
}

// The second matrix of each update begins at 0, and other weights are drawn as without an adapter.
// Updates of the last projections change how sums with the stream are rounded.
TEST_F(EquivalenceTest, AdaptersStartAsTheModel) {
  for (const char* placement : {"pre", "deepnorm", "qk_norm", "deep_cross_attention"}) {
    TinyModel adapted = Tiny(placement);
    adapted.more =
        "adapter { extends: \"lora\" let: \"rank = 2\" let: \"on_k = 1\" let: \"on_up = 1\" }";
    EXPECT_EQ(LogitsAtInit(adapted), LogitsAtInit(Tiny(placement))) << placement;
    EXPECT_GT(RelativeError(Logits(adapted), Logits(Tiny(placement))), 1e-3) << placement;
    adapted.more = "adapter { extends: \"lora\" let: \"on_o = 1\" let: \"on_down = 1\" }";
    EXPECT_LE(RelativeError(LogitsAtInit(adapted), LogitsAtInit(Tiny(placement))), 1e-6);
  }
}

// The adapter acts before the placement's statements at a point, on the input of the projection.
TEST_F(EquivalenceTest, UpdatesCanBeWrittenAsStatementsOfThePlacement) {
  const std::string projections =
      "linear { name: \"lora_v_a\" out: \"2\" } linear { name: \"lora_v_b\" out: \"d_model\" } "
      "linear { name: \"lora_o_a\" out: \"2\" } linear { name: \"lora_o_b\" out: \"d_model\" } ";
  const std::string v = "v = v + 4 * lora_v_b(lora_v_a(e))",
                    o = "o = o + 4 * lora_o_b(lora_o_a(u[layer]))";
  const auto text = [](const std::string& more, const std::string& of_v, const std::string& of_o) {
    return Mine(
        absl::StrCat("begin: \"e = x\" end: \"x = norm(x)\" "
                     "block: \"x = x + attention(x, x, e)\" block: \"x = x + mlp(norm_2(x))\" ",
                     more, "inside { point: \"attention.v\" ", of_v,
                     " rule: \"v = v_norm(v)\" } inside { point: \"attention.context\" "
                     "rule: \"context = 2 * context\" rule: \"u[layer] = context\" } "
                     "inside { point: \"attention.o\" ",
                     of_o, " rule: \"o = o * o + u[layer]\" } "));
  };
  const auto rule = [](const std::string& statement) {
    return absl::StrCat("rule: \"", statement, "\" ");
  };
  TinyModel adapted = text("", "", "");
  absl::StrAppend(&adapted.more,
                  "adapter { extends: \"lora\" let: \"rank = 2\" let: \"alpha = 8\" ",
                  "let: \"on_q = 0\" let: \"on_o = 1\" }");
  EXPECT_EQ(Logits(adapted), Logits(text(projections, rule(v), rule(o))));
  EXPECT_NE(Logits(adapted), Logits(text("", "", "")));
}

TEST_F(EquivalenceTest, AModelWithoutKvHeadsHasOnePerQueryHead) {
  const std::string text = Tiny("pre").Text();
  EXPECT_EQ(Logits(absl::StrReplaceAll(text, {{" n_kv_head: 2", ""}})), Logits(text));
  EXPECT_NE(Logits(absl::StrReplaceAll(text, {{" n_kv_head: 2", " n_kv_head: 1"}})), Logits(text));
}

// A point has the name of the sublayer's kind or its own. Statements there replace the default.
TEST_F(EquivalenceTest, SublayerStatementsReplaceTheDefault) {
  for (const std::string kind : {"attention", "linear_attention"}) {
    const auto text = [&](const std::string& inside) {
      TinyModel model = Mine(absl::StrCat("extends: \"pre\" ", inside));
      model.block = absl::StrCat("sublayer { name: \"delta\" ", kind,
                                 " { decay: ", kind == "attention" ? "true" : "PER_HEAD",
                                 " } } sublayer { mlp {} }");
      return model;
    };
    const auto at = [&](const std::string& owner) {
      return text(absl::StrCat("inside { point: \"", owner,
                               ".decay\" rule: \"decay = -softplus(3 * decay)\" }"));
    };
    EXPECT_EQ(Logits(at("delta")), Logits(at(kind)));
    EXPECT_NE(Logits(at("delta")), Logits(text("")));
  }
}

}  // namespace
}  // namespace plumb
