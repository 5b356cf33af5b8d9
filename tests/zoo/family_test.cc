// SPDX-License-Identifier: Apache-2.0
// Tests of the model that a family makes of a config.json, and of the errors in a family's file.
#include "runtime/zoo/family.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family_template.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr const char* kHeader =
    "family: 'f' model_type: 'f' "
    "scalar { name: 'n_layer' field: 'layers' kind: SIZE model_field: 'n_layer' }\n";

absl::StatusOr<Family> Parse(const std::string& rules) {
  return ParseFamily({"f", absl::StrCat(kHeader, rules)},
                     [](const std::string& name) -> absl::StatusOr<FamilyText> {
                       return absl::NotFoundError(absl::StrCat("no part ", name));
                     });
}

// Returns the model without its first line, "n_layer: 4", or the error.
std::string Model(const std::string& rules, Json config = Json::object()) {
  const absl::StatusOr<Family> family = Parse(rules);
  if (!family.ok()) return std::string(family.status().message());
  config["layers"] = 4;
  const absl::StatusOr<ConfigValues> values = ReadConfigValues(*family, config, "config.json");
  if (!values.ok()) return std::string(values.status().message());
  const absl::StatusOr<std::string> text = ModelText(*family, *values);
  if (!text.ok()) return std::string(text.status().message());
  const std::string first = "n_layer: 4\n";
  EXPECT_EQ(text->substr(0, first.size()), first);
  return text->substr(first.size());
}

TEST(FamilyModelTest, MergesPiecesWithTrueConditions) {
  EXPECT_EQ(Model("model { set { attention { scale: '1' bias: true } init { match: 'a' } } }\n"
                  "model { when: 'n_layer == 5' set { bidirectional: true } }\n"
                  "model { when: 'n_layer == 4' set { attention { scale: '${n_layer / 8}' }\n"
                  "  init { match: 'b' } } }"),
            "attention {\n  bias: true\n  scale: \"0.5\"\n}\n"
            "init {\n  match: \"a\"\n}\ninit {\n  match: \"b\"\n}\n");
}

TEST(FamilyModelTest, MergesElementsOfOneName) {
  EXPECT_EQ(Model("model { set { placement { name: 'p' each: 'x = f(x)' }\n"
                  "  placement { name: 'q' } } }\n"
                  "model { set { placement { name: 'p' end: 'x = norm(x)' } } }"),
            "placement {\n  name: \"p\"\n  each: \"x = f(x)\"\n  end: \"x = norm(x)\"\n}\n"
            "placement {\n  name: \"q\"\n}\n");
}

// Two elements of one piece stay two, which the model's own checks refuse.
TEST(FamilyModelTest, KeepsElementsOfOnePiece) {
  EXPECT_EQ(Model("model { set { norm { name: 'a' } norm { name: 'a' } } }"),
            "norm {\n  name: \"a\"\n}\nnorm {\n  name: \"a\"\n}\n");
}

TEST(FamilyModelTest, SetsFieldsOfEveryType) {
  const std::string rules =
      "scalar { name: 'width' field: 'width' model_field: 'd_model' }\n"
      "scalar { name: 'scale' field: 'scale' model_field: 'embedding_scale' }\n"
      "scalar { name: 'eps' field: 'eps' model_field: 'norm[ln].attr[eps].number' }\n"
      "scalar { name: 'bias' field: 'bias' kind: FLAG model_field: 'attention.bias' }\n"
      "word { name: 'act' field: 'act' choice { is: 'silu' text: 'SILU' }\n"
      "  model_field: 'mlp.activation' }\n"
      "model { set { norm { name: 'ln' attr { name: 'eps' } } } }";
  Json config = {{"width", 20}, {"scale", 0.5}, {"eps", 1e-7}, {"bias", true}, {"act", "silu"}};
  EXPECT_EQ(Model(rules, config),
            "d_model: 20\nembedding_scale: \"0.5\"\nattention {\n  bias: true\n}\n"
            "mlp {\n  activation: SILU\n}\n"
            "norm {\n  name: \"ln\"\n  attr {\n    name: \"eps\"\n    number: 1e-07\n  }\n}\n");
  config["bias"] = false;  // creates no attention
  EXPECT_EQ(Model(rules, config).find("attention"), std::string::npos);
  config["width"] = 20.5;
  EXPECT_EQ(Model(rules, config), "f:2:39: d_model: \"20.5\" is not a whole number");
}

TEST(FamilyModelTest, SetsAListOfEachLayerAsAnExpression) {
  const std::string slides =
      "scalar { name: 'slides' field: 'types' per_layer: true choice { is: 's' }\n"
      "  choice { is: 'f' value: '0' } ";
  const Json config = {{"types", {"s", "f", "s", "f"}}};
  EXPECT_EQ(Model(slides + "}\nmodel { set { attention { window: '5 * (${slides})' } } }", config),
            "attention {\n  window: \"5 * (1 * (layer % 2 == 1))\"\n}\n");
  EXPECT_EQ(Model(slides + "model_field: 'attention.window' }", config),
            "attention {\n  window: \"1 * (layer % 2 == 1)\"\n}\n");
}

// A field that a piece sets is left to it, also if the piece's condition does not hold.
TEST(FamilyModelTest, PiecesHavePrecedenceOverScalars) {
  const std::string scalars =
      "scalar { name: 'c' field: 'c' model_field: 'context_length' }\n"
      "scalar { name: 'theta' field: 'theta' model_field: 'positions.rope_theta' }\n"
      "model { computed { model_field: 'context_length' text: '${c - 1}' } }\n"
      "model { when: 'theta < 10' set { positions { kind: ROPE } }\n"
      "  computed { model_field: 'positions.rope_theta' text: '${theta}' } }";
  EXPECT_EQ(Model(scalars, {{"c", 9}, {"theta", 5}}),
            "context_length: 8\npositions {\n  kind: ROPE\n  rope_theta: 5\n}\n");
  EXPECT_EQ(Model(scalars, {{"c", 9}, {"theta", 50}}), "context_length: 8\n");
}

TEST(FamilyModelTest, MergesPiecesLayerByLayer) {
  EXPECT_EQ(Model("model { per_layer: true when: 'layer % 2 == 1'\n"
                  "  set { layers { block { norm: 'a${layer}' } } } }\n"
                  "model { per_layer: true when: 'layer % 2 == 0'\n"
                  "  set { layers { repeat: 1 block { norm: 'b' } } }\n"
                  "  computed { model_field: 'layers[0].repeat' text: '${layer}' } }"),
            "layers {\n  block {\n    norm: \"a1\"\n  }\n}\n"
            "layers {\n  repeat: 2\n  block {\n    norm: \"b\"\n  }\n}\n"
            "layers {\n  block {\n    norm: \"a3\"\n  }\n}\n"
            "layers {\n  repeat: 4\n  block {\n    norm: \"b\"\n  }\n}\n");
  EXPECT_EQ(Model("model { when: 'layer == 1' set { bidirectional: true } }").substr(0, 4), "f:2:");
}

TEST(FamilyModelTest, ComputedFieldsFollowThePiece) {
  EXPECT_EQ(Model("word { name: 'list' field: 'list' numbers: true }\n"
                  "model { set { positions { rope_scaling { linear: '2' } } } }\n"
                  "model { set { positions { rope_scaling { longrope {} } } }\n"
                  "  computed { model_field: 'positions.rope_scaling[0].longrope.factor'\n"
                  "    text: '${list}' } }",
                  {{"list", {1, 2.5}}}),
            "positions {\n  rope_scaling {\n    linear: \"2\"\n  }\n  rope_scaling {\n"
            "    longrope {\n      factor: 1\n      factor: 2.5\n    }\n  }\n}\n");
}

// Returns "TO < SOURCE" for each tensor rule of a family that imports the parts p and q.
std::vector<std::string> TensorRules(const std::string& p, const std::string& q,
                                     const std::string& own) {
  const absl::StatusOr<Family> family =
      ParseFamily({"f", absl::StrCat(kHeader, "import { part: 'p' } import { part: 'q' }\n", own)},
                  [&](const std::string& name) -> absl::StatusOr<FamilyText> {
                    return FamilyText{name, name == "p" ? p : q};
                  });
  EXPECT_TRUE(family.ok()) << family.status();
  std::vector<std::string> rules;
  if (!family.ok()) return rules;
  for (const TensorRule& rule : family->tensors) {
    rules.push_back(absl::StrCat(rule.to.value, " < ", rule.source.value));
  }
  return rules;
}

TEST(FamilyTensorTest, OwnRulesReplaceImportedOnes) {
  using Rules = std::vector<std::string>;
  const std::string p = "tensor { to: 'a' source: '1' } tensor { to: 'b' source: '2' }";
  EXPECT_EQ(TensorRules(p, "", "tensor { to: 'c' source: '3' }"),
            (Rules{"a < 1", "b < 2", "c < 3"}));
  // All rules of the file for a tensor stay: the conditions choose between them.
  EXPECT_EQ(TensorRules(p, "",
                        "tensor { to: 'a' source: '3' when: 'n_layer == 1' }\n"
                        "tensor { to: 'a' source: '4' when: 'n_layer > 1' }"),
            (Rules{"b < 2", "a < 3", "a < 4"}));
  // A part replaces the rules of an earlier part.
  EXPECT_EQ(TensorRules(p, "tensor { to: 'b' source: '5' }", ""), (Rules{"a < 1", "b < 5"}));
}

TEST(FamilyErrorTest, HasTheLocationInTheFile) {
  EXPECT_EQ(Model("model { set { attention {\n  biass: true } } }"),
            "f:3:3: unknown field \"biass\" in Attention; did you mean \"bias\"?");
  EXPECT_EQ(Model("model { set { attention {\n  scale: '${1 +}' } } }").substr(0, 7), "f:3:3: ");
  EXPECT_EQ(Model("model { set { attention {\n  scale: '${heads}' } } }"),
            "f:3:3: unknown scalar \"heads\"\n  heads\n  ^");
  EXPECT_EQ(Model("model { }"), "f:2:1: model: set is missing");
  EXPECT_EQ(Model("model {\n  computed { text: '1' } }"),
            "f:3:3: computed: model_field is missing");
  EXPECT_EQ(Model("model {\n  computed { model_field: 'mpl.bias' text: '1' } }"),
            "f:3:14: mpl.bias: Model has no field \"mpl\"; did you mean \"mlp\"?");
  EXPECT_EQ(Model("model {\n  computed { model_field: 'mlp.bias' text: '2' } }"),
            "f:3:14: mlp.bias: \"2\" is not true or false");
}

TEST(FamilyErrorTest, RefusesAnElementThatIsNotInTheModel) {
  EXPECT_EQ(Model("model { when: '0' set { norm { name: 'ln' attr { name: 'eps' } } } }\n"
                  "scalar { name: 'e' value: '1'\n  model_field: 'norm[ln].attr[eps].number' }"),
            "f:4:3: norm[ln].attr[eps].number: there is no norm to set");
}

TEST(FamilyErrorTest, RefusesTwoValuesOfAField) {
  EXPECT_EQ(Model("scalar { name: 'a' value: '1' model_field: 'd_model' }\n"
                  "scalar { name: 'b' value: '2' model_field: 'd_model' }"),
            "f:3:31: d_model has the value of another scalar or word");
}

TEST(FamilyErrorTest, FindsWrongPathsWithoutACheckpoint) {
  const std::string norm = "model { set { norm { name: 'ln' attr { name: 'eps' } } } }\n";
  EXPECT_EQ(
      Parse("scalar { name: 'e' field: 'e' model_field: 'norm[nl].attr[eps].number' }\n" + norm)
          .status()
          .message(),
      "f:2:31: norm[nl].attr[eps].number: there is no norm \"nl\"; did you mean \"ln\"?");
  EXPECT_EQ(
      Parse("word { name: 'w' field: 'w' model_field: 'mlp.activatoin' }").status().message(),
      "f:2:29: mlp.activatoin: Mlp has no field \"activatoin\"; did you mean \"activation\"?");
  EXPECT_EQ(Parse("scalar { name: 'e' field: 'e' model_field: 'norm[ln].attr' }\n" + norm)
                .status()
                .message(),
            "f:2:31: norm[ln].attr: attr needs an index below 1: attr[0]");
}

TEST(FamilyExportTest, ReadsTheFieldsThatImportSets) {
  const absl::StatusOr<Family> family = Parse(
      "scalar { name: 'eps' field: 'eps' absent: '1' model_field: 'norm[ln].attr[eps].number' }\n"
      "scalar { name: 'bias' field: 'bias' kind: FLAG absent: '1' model_field: 'attention.bias' }\n"
      "model { set { norm { name: 'ln' attr { name: 'eps' } } } }");
  ASSERT_TRUE(family.ok()) << family.status();
  const std::string model = "n_layer: 3 norm { name: 'ln' attr { name: 'eps' number: 0.5 } }";
  std::vector<std::string> unread;
  EXPECT_EQ(ConfigForModel(*family, model, {}, Json::object(), &unread).value(),
            Json({{"model_type", "f"}, {"layers", 3}, {"eps", 0.5}, {"bias", false}}));
  // Facts have precedence.
  EXPECT_EQ(ConfigForModel(*family, model, {{"n_layer", 7}, {"norm_attr.eps", 2}}, Json::object(),
                           &unread)
                .value(),
            Json({{"model_type", "f"}, {"layers", 7}, {"eps", 2}, {"bias", false}}));
}

TEST(FamilyExportTest, ReadsThePiecesInReverse) {
  const absl::StatusOr<Family> family = Parse(
      "scalar { name: 'window' field: 'window' kind: COUNT absent: '9' null: '0' }\n"
      "scalar { name: 'slides' field: 'types' choice { is: 'full' value: '0' }\n"
      "  choice { is: 'local' } per_layer: true }\n"
      "scalar { name: 'n_shared' field: 'shared' kind: SIZE absent: '2' }\n"
      "scalar { name: 'd_expert' field: 'width' kind: SIZE }\n"
      "scalar { name: 'scales' field: 'scales' kind: FLAG absent: '0' }\n"
      "scalar { name: 'old' field: 'old' kind: FLAG absent: '1' on_export: '0' }\n"
      "scalar { name: 'gain' field: 'gains.0' absent: '1' model_field: 'embedding_scale' }\n"
      "model { when: 'window' set { attention { window: '${window} * (${slides})' } } }\n"
      "model { when: 'scales' set { attention { scale: '1' } } }\n"
      "model { set { block { sublayer { name: 'moe' experts {\n"
      "  d_ff: '${d_expert}' shared_d_ff: '${n_shared * d_expert}' } } } } }");
  ASSERT_TRUE(family.ok()) << family.status();
  const std::string model =
      "n_layer: 2 embedding_scale: '3' attention { window: '5 * (layer % 2)' scale: '1' } block {\n"
      "  sublayer { attention {} }\n"
      "  sublayer { name: 'moe' experts { d_ff: '4' shared_d_ff: '12' } } }";
  std::vector<std::string> unread;
  EXPECT_EQ(ConfigForModel(*family, model, {}, Json::object(), &unread).value(),
            Json({{"model_type", "f"},
                  {"layers", 2},
                  {"window", 5},
                  {"types", {"local", "full"}},
                  {"shared", 3},
                  {"width", 4},
                  {"scales", true},
                  {"old", false},
                  {"gains", Json::array({3})}}));
  EXPECT_TRUE(unread.empty());
  // A piece that the model lacks decides the only open value of its condition.
  const std::string none =
      "n_layer: 1 block { sublayer { name: 'moe' experts { d_ff: '4' shared_d_ff: '2 * x' } } }";
  EXPECT_FALSE(ConfigForModel(*family, none, {}, Json::object(), &unread).ok());  // 'types'
  EXPECT_EQ(unread, std::vector<std::string>(
                        {"block.sublayer[moe].experts.shared_d_ff = ${n_shared * d_expert}"}));
}

}  // namespace
}  // namespace plumb
