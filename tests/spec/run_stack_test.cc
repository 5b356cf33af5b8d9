// SPDX-License-Identifier: Apache-2.0
// Tests of the calls to the backend: names, terms, coefficients, conditions, scalars of each layer.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/spec/interpret.h"
#include "tests/spec/recorder.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

TEST(RunStackTest, PreNormIsWalkedLayerByLayer) {
  EXPECT_EQ(Trace(absl::StrCat(kDims, "block { placement: \"pre\" norm: \"rms_norm\" }")),
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = rms_norm layers.0.attention.norm[8 of 8](t0)\n"
            "t2 = layers.0.attention(t1) layer 1 sublayer 1\n"
            "t3 = t0 + t2\n"
            "t4 = rms_norm layers.0.mlp.norm[8 of 8](t3)\n"
            "t5 = layers.0.mlp(t4) layer 1 sublayer 2\n"
            "t6 = t3 + t5\n"
            "end layer 0 t6\n"
            "begin layer 1 t6\n"
            "t7 = rms_norm layers.1.attention.norm[8 of 8](t6)\n"
            "t8 = layers.1.attention(t7) layer 2 sublayer 3\n"
            "t9 = t6 + t8\n"
            "t10 = rms_norm layers.1.mlp.norm[8 of 8](t9)\n"
            "t11 = layers.1.mlp(t10) layer 2 sublayer 4\n"
            "t12 = t9 + t11\n"
            "end layer 1 t12\n"
            "t13 = rms_norm end.norm[8 of 8](t12)\n"
            "t14 = head(t13)\n"
            "logits t14\n");
}

TEST(RunStackTest, CoefficientsAreFoldedIntoOneCombine) {
  // DeepNorm's alpha is (2 * 2) ^ 0.25.
  const std::string trace =
      Trace(absl::StrCat(kDims, "block { placement: \"deepnorm\" norm: \"rms_norm\" }"));
  EXPECT_EQ(LinesWith(" + ", trace),
            "t2 = 1.41421 t0 + t1\n"
            "t5 = 1.41421 t3 + t4\n"
            "t8 = 1.41421 t6 + t7\n"
            "t11 = 1.41421 t9 + t10\n");
}

TEST(RunStackTest, SumsAreGatheredByTensor) {
  const std::string trace = Trace(ModelWith("each: \"x = 2 * (x + f(x)) - x / 4 + 3 - -1\""));
  EXPECT_EQ(LinesWith(" + ", trace),
            "t2 = 1.75 t0 + 2 t1 + 4\n"
            "t4 = 1.75 t2 + 2 t3 + 4\n"
            "t6 = 1.75 t4 + 2 t5 + 4\n"
            "t8 = 1.75 t6 + 2 t7 + 4\n");
}

TEST(RunStackTest, SingleTensorsNeedNoCombine) {
  const std::string trace = Trace(ModelWith("each: \"y = f(x)\" each: \"x = 1 * y + 0\""));
  EXPECT_EQ(trace,
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = layers.0.attention(t0) layer 1 sublayer 1\n"
            "t2 = layers.0.mlp(t1) layer 1 sublayer 2\n"
            "end layer 0 t2\n"
            "begin layer 1 t2\n"
            "t3 = layers.1.attention(t2) layer 2 sublayer 3\n"
            "t4 = layers.1.mlp(t3) layer 2 sublayer 4\n"
            "end layer 1 t4\n"
            "t5 = head(t4)\n"
            "logits t5\n");
}

TEST(RunStackTest, ScalarsFollowTheLayer) {
  const std::string trace = Trace(ModelWith("each: \"x = x + f(x) / layer + sublayer\""));
  EXPECT_EQ(LinesWith(" + ", trace),
            "t2 = t0 + t1 + 1\n"
            "t4 = t2 + t3 + 2\n"
            "t6 = t4 + 0.5 t5 + 3\n"
            "t8 = t6 + 0.5 t7 + 4\n");
}

TEST(RunStackTest, NormsAreNamedAfterTheirPlace) {
  const std::string trace =
      Trace(ModelWith("begin: \"x = norm(x)\" each: \"x = norm(x + norm(f(norm_in(norm_in(x)))))\""
                      "end: \"x = norm(norm(x))\""
                      "inside { point: \"attention.q\" rule: \"q = norm(q)\" }"
                      "inside { point: \"mlp.hidden\" rule: \"hidden = h_norm(hidden)\" }"
                      "inside { point: \"head.logits\" rule: \"logits = norm(logits)\" }"));
  EXPECT_EQ(LinesWith("rms_norm", trace),
            "t1 = rms_norm begin.norm[8 of 8](t0)\n"
            "t2 = rms_norm layers.0.attention.norm_in[8 of 8](t1)\n"
            "t3 = rms_norm layers.0.attention.norm_in_2[8 of 8](t2)\n"
            "t4 = rms_norm layers.0.attention.norm[8 of 8](t3)\n"
            "t6 = rms_norm layers.0.attention.norm_2[8 of 8](t5)\n"
            "t8 = rms_norm layers.0.attention.norm_3[8 of 8](t7)\n"
            "t9 = rms_norm layers.0.mlp.norm_in[8 of 8](t8)\n"
            "t10 = rms_norm layers.0.mlp.norm_in_2[8 of 8](t9)\n"
            "t11 = rms_norm layers.0.mlp.h_norm[16 of 16](t10)\n"
            "t13 = rms_norm layers.0.mlp.norm[8 of 8](t12)\n"
            "t15 = rms_norm layers.0.mlp.norm_2[8 of 8](t14)\n"
            "t16 = rms_norm layers.1.attention.norm_in[8 of 8](t15)\n"
            "t17 = rms_norm layers.1.attention.norm_in_2[8 of 8](t16)\n"
            "t18 = rms_norm layers.1.attention.norm[8 of 8](t17)\n"
            "t20 = rms_norm layers.1.attention.norm_2[8 of 8](t19)\n"
            "t22 = rms_norm layers.1.attention.norm_3[8 of 8](t21)\n"
            "t23 = rms_norm layers.1.mlp.norm_in[8 of 8](t22)\n"
            "t24 = rms_norm layers.1.mlp.norm_in_2[8 of 8](t23)\n"
            "t25 = rms_norm layers.1.mlp.h_norm[16 of 16](t24)\n"
            "t27 = rms_norm layers.1.mlp.norm[8 of 8](t26)\n"
            "t29 = rms_norm layers.1.mlp.norm_2[8 of 8](t28)\n"
            "t30 = rms_norm end.norm[8 of 8](t29)\n"
            "t31 = rms_norm end.norm_2[8 of 8](t30)\n"
            "t33 = rms_norm head.norm[11 of 11](t32)\n");
}

TEST(RunStackTest, NumberedSlotNamesAreUnique) {
  const std::string trace = Trace(
      ModelWith("block: \"x = x + norm(norm(attention(x)))\" block: \"x = x + norm_2(mlp(x))\""));
  EXPECT_EQ(LinesWith("layers.0.norm", trace),
            "t2 = rms_norm layers.0.norm[8 of 8](t1)\n"
            "t3 = rms_norm layers.0.norm_2[8 of 8](t2)\n"
            "t6 = rms_norm layers.0.norm_2_2[8 of 8](t5)\n");
}

TEST(RunStackTest, LearnedValuesHaveNamesAndSizes) {
  const std::string trace = Trace(
      absl::StrCat(kDims, "n_kv_head: 1\n", "placement { name: \"p\"",
                   "  learned { name: \"gate\" init_expression: \"1 / layer\" weight_decay: true }",
                   "  learned { name: \"gamma\" init: 0.5 per_channel: true }",
                   "  learned { name: \"c\" per_channel: true init: 0 } learned { name: \"h\" "
                   "per_head: true init: 0 }",
                   "  each: \"x = gate * x + gamma * f(gate * x)\" end: \"x = gamma * x\"",
                   "  inside { point: \"attention.k\" rule: \"k = h * k\" }",
                   "  inside { point: \"attention.context\" rule: \"context = h2 * context\" }",
                   "  learned { name: \"h2\" per_head: true init: 0 }",
                   "  inside { point: \"mlp.hidden\" rule: \"hidden = c * hidden\" }",
                   "}\nblock { placement: \"p\" }"));
  EXPECT_EQ(LinesWith("learned layers.1", trace),
            "t23 = learned layers.1.attention.gate[1] init 0.5 decays\n"
            "t25 = learned layers.1.attention.gamma[8] init 0.5\n"
            "t26 = learned layers.1.attention.gate[1] init 0.5 decays\n"
            "t28 = learned layers.1.attention.h[1] init 0\n"
            "t30 = learned layers.1.attention.h2[2] init 0\n"
            "t35 = learned layers.1.mlp.gate[1] init 0.5 decays\n"
            "t37 = learned layers.1.mlp.gamma[8] init 0.5\n"
            "t38 = learned layers.1.mlp.gate[1] init 0.5 decays\n"
            "t40 = learned layers.1.mlp.c[16] init 0\n");
  EXPECT_EQ(LinesWith("learned end", trace), "t45 = learned end.gamma[8] init 0.5\n");
}

TEST(RunStackTest, LearnedVectorsAreRightOperands) {
  const std::string trace =
      Trace(ModelWith("learned { name: \"g\" per_channel: true init: 0 }"
                      "block: \"x = g * attention(x) + mlp(x) * g\""));
  EXPECT_EQ(LinesWith(" * ", trace),
            "t3 = t2 * t1\n"
            "t6 = t4 * t5\n"
            "t10 = t9 * t8\n"
            "t13 = t11 * t12\n");
}

TEST(RunStackTest, PerHeadSlotsNormalizeHeads) {
  const std::string trace = Trace(
      absl::StrCat(kDims, "n_kv_head: 1\n", "block { placement: \"qk_norm\" norm: \"rms_norm\" }"));
  EXPECT_EQ(LinesWith("layers.0.attention.", trace),
            "t1 = rms_norm layers.0.attention.norm[8 of 8](t0)\n"
            "t2 = rms_norm layers.0.attention.q_norm[4 of 8](t1)\n"
            "t3 = rms_norm layers.0.attention.k_norm[4 of 4](t2)\n");
  const std::string full = Trace(absl::StrCat(
      kDims, "n_kv_head: 1\n", "block { placement: \"qk_norm_full\" norm: \"rms_norm\" }"));
  EXPECT_EQ(LinesWith("layers.0.attention.", full),
            "t1 = rms_norm layers.0.attention.norm[8 of 8](t0)\n"
            "t2 = rms_norm layers.0.attention.q_norm[8 of 8](t1)\n"
            "t3 = rms_norm layers.0.attention.k_norm[4 of 4](t2)\n");
}

TEST(RunStackTest, SkipsStatementsWithFalseConditions) {
  const std::string trace = Trace(ModelWith(
      "each: \"x = x + f(x)\" each: \"x = norm(x) if sublayer % 2 == 0 and layer > 1\""
      "inside { point: \"mlp.hidden\" rule: \"hidden = h_norm(hidden) if layer == 1\" }"));
  EXPECT_EQ(LinesWith("rms_norm", trace),
            "t3 = rms_norm layers.0.mlp.h_norm[16 of 16](t2)\n"
            "t10 = rms_norm layers.1.mlp.norm[8 of 8](t9)\n");
}

TEST(RunStackTest, BlockRulesFollowPlacementRules) {
  const std::string trace =
      Trace(absl::StrCat(kDims,
                         "placement { name: \"p\" each: \"x = x + f(x)\""
                         " inside { point: \"attention.v\" rule: \"v = first_norm(v)\" } }"
                         "block { placement: \"p\" norm: \"rms_norm\""
                         " inside { point: \"attention.v\" rule: \"v = second_norm(v)\" } }"));
  EXPECT_EQ(LinesWith("layers.0.attention", trace),
            "t1 = rms_norm layers.0.attention.first_norm[8 of 8](t0)\n"
            "t2 = rms_norm layers.0.attention.second_norm[8 of 8](t1)\n"
            "t3 = layers.0.attention(t2) layer 1 sublayer 1\n");
}

TEST(RunStackTest, SlotsHaveTheNormsOfTheBlock) {
  const std::string trace = Trace(absl::StrCat(
      kDims,
      "norm { name: \"eps6\" plugin: \"rms_norm\" attr { name: \"eps\" number: 1e-6 } }"
      "block { placement: \"double\" norm: \"eps6\" slot { name: \"norm_out\" norm: \"none\" } }"));
  EXPECT_EQ(LinesWith("norm", LinesWith("layers.1.mlp.", trace)),
            "t13 = eps6 layers.1.mlp.norm_in[8 of 8](t12)\n"
            "t15 = none layers.1.mlp.norm_out[8 of 8](t14)\n");
}

TEST(RunStackTest, BlocksCallSublayersByName) {
  const std::string trace = Trace(absl::StrCat(
      kDims,
      "placement { name: \"macaron\" block: \"x = x + 0.5 * mlp_1(norm_1(x))\""
      " block: \"x = x + attention(norm_2(x))\" block: \"x = x + 0.5 * mlp_2(norm_3(x))\" }"
      "block { placement: \"macaron\" norm: \"rms_norm\" sublayer { name: \"mlp_1\" mlp {} }"
      " sublayer { attention {} } sublayer { name: \"mlp_2\" mlp {} } }"));
  EXPECT_EQ(LinesWith("layers.1.", trace),
            "t10 = rms_norm layers.1.norm_1[8 of 8](t9)\n"
            "t11 = layers.1.mlp_1(t10) layer 2 sublayer 4\n"
            "t13 = rms_norm layers.1.norm_2[8 of 8](t12)\n"
            "t14 = layers.1.attention(t13) layer 2 sublayer 5\n"
            "t16 = rms_norm layers.1.norm_3[8 of 8](t15)\n"
            "t17 = layers.1.mlp_2(t16) layer 2 sublayer 6\n");
}

TEST(RunStackTest, TensorFunctionsAreApplied) {
  const std::string trace = Trace(
      ModelWith("each: \"x = x + f(x)\""
                "inside { point: \"head.logits\" rule: \"logits = 30 * tanh(logits / 30)\" }"));
  EXPECT_EQ(trace.substr(trace.find("head")),
            "head(t8)\n"
            "t10 = 0.0333333 t9\n"
            "t11 = tanh(t10)\n"
            "t12 = 30 t11\n"
            "logits t12\n");
}

TEST(RunStackTest, GroupsOfLayersHaveTheirOwnPlacements) {
  const std::string trace = Trace(
      "n_head: 2 d_model: 8 vocab_size: 11 context_length: 4\n"
      "layers { repeat: 1 block { placement: \"post\" norm: \"rms_norm\" } }"
      "layers { repeat: 1 block { placement: \"pre\" norm: \"layer_norm\" } }");
  EXPECT_EQ(LinesWith("_norm", trace),
            "t3 = rms_norm layers.0.attention.norm[8 of 8](t2)\n"
            "t6 = rms_norm layers.0.mlp.norm[8 of 8](t5)\n"
            "t7 = layer_norm layers.1.attention.norm[8 of 8](t6)\n"
            "t10 = layer_norm layers.1.mlp.norm[8 of 8](t9)\n"
            "t13 = layer_norm end.norm[8 of 8](t12)\n");
}

// Backend that fails. Its error must be returned together with the formula.
class RefusesNorms : public NullBackend {
 public:
  absl::StatusOr<TensorHandle> Norm(const NormSite& site, absl::Span<const TensorHandle>) override {
    return absl::InvalidArgumentError(absl::StrCat(site.name, " cannot be"));
  }
};

TEST(RunStackTest, ErrorsOfTheBackendPointIntoTheFormula) {
  const absl::StatusOr<ResolvedModel> model =
      ResolveText(ModelWith("each: \"x = x + f(norm(x))\""));
  ASSERT_TRUE(model.ok()) << model.status();
  RefusesNorms backend;
  EXPECT_EQ(std::string(RunStack(*model, &backend).message()),
            "m.pbtxt:4:1: placement \"p\", each, attention: layers.0.attention.norm cannot be\n"
            "  x = x + f(norm(x))\n"
            "            ^");
}

TEST(RunStackTest, ReadsTablesOverTokens) {
  EXPECT_EQ(Trace("n_layer: 1 n_head: 4 n_kv_head: 2 d_model: 8 vocab_size: 11 context_length: 4\n"
                  "embedding { name: \"ve\" width: \"n_kv_head * head_dim\" }\n"
                  "embedding { name: \"extra\" }\n"
                  "placement { name: \"p\" begin: \"x = x + 2 * extra\" each: \"x = x + f(x)\" "
                  "inside { point: \"attention.v\" rule: \"v = v + ve\" } }\n"
                  "block { placement: \"p\" sublayer { attention {} } }"),
            "t0 = embed\n"
            "t1 = rows of embedding.extra[8]\n"
            "t2 = t0 + 2 t1\n"
            "begin layer 0 t2\n"
            "t3 = rows of embedding.ve[4]\n"
            "t4 = t2 + t3\n"
            "t5 = layers.0.attention(t4) layer 1 sublayer 1\n"
            "t6 = t2 + t5\n"
            "end layer 0 t6\n"
            "t7 = head(t6)\n"
            "logits t7\n");
}

}  // namespace
}  // namespace plumb
