// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/spec/model_spec.h"
#include "tests/app/test_models.h"
#include "tests/plugin/test_norm.h"
#include "tests/spec/centering_norm.h"

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ParametersTest : public ::testing::Test {
 protected:
  std::vector<ParameterSpec> List(const std::string& text) {
    contexts_.push_back(MakeContext(runtime_.get(), text));
    return contexts_.back()->parameters;
  }

  // Returns lines such as "layers.0.mlp.up.weight [12, 8]", in the order of the data.
  std::vector<std::string> Lines(const std::string& text) {
    std::vector<std::string> lines;
    for (const ParameterSpec& parameter : List(text)) {
      lines.push_back(absl::StrCat(parameter.name, " ", parameter.shape.ToString()));
    }
    return lines;
  }

  absl::Status GetError(const std::string& text) {
    return TryContext(runtime_.get(), text).status();
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  std::vector<std::unique_ptr<ModelContext>> contexts_;
};

TEST_F(ParametersTest, StudyModelsHaveTheirPublishedCounts) {
  const std::map<std::string, int64_t> counts = {
      {"pre", 25968}, {"post", 25952}, {"no_norm", 25696}};
  for (const auto& [name, count] : counts) {
    const auto spec = ModelSpec::FromFile(
        absl::StrCat(PLUMB_SOURCE_DIR, "/examples/why_normalise/", name, ".pbtxt"));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(ParameterLayout(List(spec->ToText())).num_parameters(), count) << name;
  }
}

TEST_F(ParametersTest, ListsNamesAndShapesInOrder) {
  TinyModel model;
  model.n_layer = 1;
  EXPECT_THAT(
      Lines(model.Text()),
      ElementsAre("embedding.token.weight [5, 8]", "embedding.position.weight [8, 8]",
                  "layers.0.attention.norm.weight [8]", "layers.0.attention.q.weight [8, 8]",
                  "layers.0.attention.k.weight [8, 8]", "layers.0.attention.v.weight [8, 8]",
                  "layers.0.attention.o.weight [8, 8]", "layers.0.mlp.norm.weight [8]",
                  "layers.0.mlp.up.weight [12, 8]", "layers.0.mlp.down.weight [8, 12]",
                  "end.norm.weight [8]", "head.weight [5, 8]"));
}

TEST_F(ParametersTest, BiasesGatesGroupedHeadsAndTiedEmbeddingsHaveTheirShapes) {
  TinyModel model;
  model.n_layer = 1;
  model.placement = "none";
  model.n_head = 4;
  model.n_kv_head = 2;
  model.positions = "ROPE";
  model.more =
      "head_dim: 6 tie_embeddings: true head_bias: true attention { bias: true } "
      "mlp { gated: true bias: true }";
  EXPECT_THAT(
      Lines(model.Text()),
      ElementsAre("embedding.token.weight [5, 8]",                                          //
                  "layers.0.attention.q.weight [24, 8]", "layers.0.attention.q.bias [24]",  //
                  "layers.0.attention.k.weight [12, 8]", "layers.0.attention.k.bias [12]",  //
                  "layers.0.attention.v.weight [12, 8]", "layers.0.attention.v.bias [12]",  //
                  "layers.0.attention.o.weight [8, 24]", "layers.0.attention.o.bias [8]",   //
                  "layers.0.mlp.gate.weight [12, 8]", "layers.0.mlp.gate.bias [12]",        //
                  "layers.0.mlp.up.weight [12, 8]", "layers.0.mlp.up.bias [12]",            //
                  "layers.0.mlp.down.weight [8, 12]", "layers.0.mlp.down.bias [8]",         //
                  "head.bias [5]"));
}

TEST_F(ParametersTest, NormsAndLearnedValuesAreNamedAfterTheirPlace) {
  TinyModel model;
  model.n_layer = 1;
  model.placement = "mine";
  model.more = R"pbtxt(
    placement {
      name: "mine"
      learned { name: "gate" init: 0.5 }
      learned { name: "gain" init: 2 per_channel: true weight_decay: true }
      learned { name: "heads" init: 1 per_head: true }
      slot { name: "q_norm" per_head: true }
      begin: "x = norm(norm(x))"
      block: "x = x + gate * attention(norm(x)) + gate * mlp(other_norm(x))"
      end: "x = gain * norm(x)"
      inside { point: "attention.q" rule: "q = q_norm(q)" }
      inside { point: "attention.context" rule: "context = heads * context" }
      inside { point: "mlp.hidden" rule: "hidden = gain * hidden" }
      inside { point: "head.logits" rule: "logits = gate * cap_norm(logits)" }
    })pbtxt";
  std::vector<std::string> extra;
  for (const ParameterSpec& parameter : List(model.Text())) {
    if (parameter.role == ParameterSpec::Role::kWeight) continue;
    extra.push_back(absl::StrCat(parameter.name, " ", parameter.shape.ToString(), " ",
                                 parameter.init.ToString(),
                                 parameter.weight_decay.value_or(false) ? " decays" : ""));
  }
  EXPECT_THAT(
      extra, ElementsAre("begin.norm.weight [8] constant(1)", "begin.norm_2.weight [8] constant(1)",
                         "layers.0.gate [1] constant(0.5)", "layers.0.norm.weight [8] constant(1)",
                         "layers.0.attention.q_norm.weight [4] constant(1)",
                         "layers.0.attention.heads [2] constant(1)",
                         "layers.0.other_norm.weight [8] constant(1)",
                         "layers.0.mlp.gain [12] constant(2) decays",
                         "end.gain [8] constant(2) decays", "end.norm.weight [8] constant(1)",
                         "head.gate [1] constant(0.5)", "head.cap_norm.weight [5] constant(1)"));
}

TEST_F(ParametersTest, IdentityNormsHaveNoParameters) {
  TinyModel model;
  model.norm = "none";
  const std::vector<std::string> with_slots = Lines(model.Text());
  model.placement = "none";
  EXPECT_EQ(with_slots, Lines(model.Text()));
}

// The declarations of a plugin's parameters determine their initial values and updates.
TEST_F(ParametersTest, NormParametersFollowThePlugin) {
  plumb_tensor_def params[] = {
      {"number", "", 0, 0, {}, PLUMB_INIT_CONST, 0, 0.25, 0, 1, 0, nullptr},
      {"vector",
       "",
       PLUMB_PARAM_WEIGHT_DECAY,
       1,
       {3},
       PLUMB_INIT_NORMAL,
       0,
       1,
       0.5,
       0.125,
       0,
       nullptr},
      {"matrix", "", 0, 2, {2, 3}, PLUMB_INIT_UNIFORM, 0, -1, 2, 1, 0, nullptr},
      {"zeros", "", 0, 1, {4}, PLUMB_INIT_ZEROS, 0, 0, 0, 1, 0, nullptr},
  };
  test_norm::layout_answer = {};
  test_norm::layout_answer.tensor_stride = sizeof(plumb_tensor_def);
  test_norm::layout_answer.n_params = 4;
  test_norm::layout_answer.params = params;
  static const plumb_norm_plugin table = test_norm::Table();
  ASSERT_TRUE(runtime_->RegisterPlugin(&table).ok());
  TinyModel model;
  model.n_layer = 1;
  model.norm = "org.example.test";
  std::vector<std::string> lines;
  for (const ParameterSpec& parameter : List(model.Text())) {
    if (parameter.name.find("end.") == std::string::npos) continue;
    lines.push_back(absl::StrCat(parameter.name, " ", parameter.shape.ToString(), " ",
                                 parameter.init.ToString(), " ", parameter.lr_scale,
                                 parameter.weight_decay.value_or(false) ? " decays" : ""));
  }
  EXPECT_THAT(lines, ElementsAre("end.norm.number [] constant(0.25) 1",
                                 "end.norm.vector [3] normal(1, 0.5) 0.125 decays",
                                 "end.norm.matrix [2, 3] uniform(-1, 2) 1",
                                 "end.norm.zeros [4] constant(0) 1"));
}

// The buffers of a cross-row norm are tensors of the model, but not parameters.
TEST_F(ParametersTest, NormBuffersAreOneStatePerPlace) {
  ASSERT_TRUE(runtime_->RegisterPlugin(CenteringNorm()).ok());
  TinyModel model;
  model.n_layer = 1;
  model.placement = "qk_norm";
  model.norm = "c";
  model.more = R"pbtxt(norm { name: "c" plugin: "test.centering" allow_cross_token: true })pbtxt";
  for (const ParameterSpec& parameter : List(model.Text())) {
    EXPECT_EQ(parameter.name.find("norm"), std::string::npos) << parameter.name;
  }
  std::vector<std::string> lines;
  for (const NormStateSpec& state : contexts_.back()->states) {
    lines.push_back(absl::StrCat(state.name, " ", state.elements));
    for (const BufferSpec& buffer : state.buffers) {
      lines.push_back(absl::StrCat(buffer.name, " ", buffer.shape.ToString(), " ",
                                   buffer.init.ToString(), " at ", buffer.offset));
    }
  }
  EXPECT_THAT(lines, ElementsAre("layers.0.attention.norm.state 32",
                                 "layers.0.attention.norm.running_mean [8] constant(0) at 0",
                                 "layers.0.attention.norm.calls [] constant(0) at 16",
                                 "layers.0.attention.q_norm.state 32",
                                 "layers.0.attention.q_norm.running_mean [4] constant(0) at 0",
                                 "layers.0.attention.q_norm.calls [] constant(0) at 16",
                                 "layers.0.attention.k_norm.state 32",
                                 "layers.0.attention.k_norm.running_mean [4] constant(0) at 0",
                                 "layers.0.attention.k_norm.calls [] constant(0) at 16",
                                 "layers.0.mlp.norm.state 32",
                                 "layers.0.mlp.norm.running_mean [8] constant(0) at 0",
                                 "layers.0.mlp.norm.calls [] constant(0) at 16",
                                 "end.norm.state 32", "end.norm.running_mean [8] constant(0) at 0",
                                 "end.norm.calls [] constant(0) at 16"));
}

TEST_F(ParametersTest, NumberedSlotNamesStayUnique) {
  TinyModel model;
  model.placement = "mine";
  for (const char* rule :
       {"x = x + norm_2(norm(norm(f(x))))", "x = norm(norm(x + f(norm_2(x))))"}) {
    model.more = absl::StrCat("placement { name: \"mine\" each: \"", rule, "\" }");
    std::set<std::string> names;
    for (const ParameterSpec& parameter : List(model.Text())) {
      EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
    }
  }
}

// Returns a model of n layers with one block, and with fields in the group and in the block.
std::string Layers(int n, const std::string& group, const std::string& block) {
  return absl::StrCat("n_head: 2 d_model: 8 vocab_size: 5 context_length: 8 layers { repeat: ", n,
                      " ", group, " block { placement: \"layer_scale\" norm: \"rms_norm\" ", block,
                      " } }");
}

TEST_F(ParametersTest, SharingLayersHaveTheParametersOfTheFirst) {
  const std::vector<std::string> one = Lines(Layers(1, "", ""));
  EXPECT_EQ(Lines(Layers(5, "share: true", "")), one);
  EXPECT_EQ(Lines(Layers(5, "", "share: \"all\"")), one);
  EXPECT_NE(Lines(Layers(5, "", "")), one);
}

TEST_F(ParametersTest, SharingLayersMayKeepOwnNorms) {
  std::vector<std::string> of_layer_2;
  for (const ParameterSpec& parameter : List(Layers(3, "share: true", "own_norms: true"))) {
    if (absl::StartsWith(parameter.name, "layers.2.")) of_layer_2.push_back(parameter.name);
  }
  EXPECT_THAT(of_layer_2, ElementsAre("layers.2.attention.gamma", "layers.2.attention.norm.weight",
                                      "layers.2.mlp.gamma", "layers.2.mlp.norm.weight"));
}

TEST_F(ParametersTest, ExtraParametersOfSharingLayers) {
  const std::string block = "block { placement: \"pre\" norm: \"rms_norm\" share: \"a\" ";
  const std::vector<ParameterSpec> parameters = List(absl::StrCat(
      "n_head: 2 d_model: 16 vocab_size: 5 context_length: 8 init { match: \"*gate*\" scale: "
      "\"layer\" } layers { ",
      block, "} } layers { ", block,
      "sublayer { attention {} } sublayer { mlp { gated: true } } } }"));
  std::vector<std::string> gates;
  for (const ParameterSpec& parameter : parameters) {
    EXPECT_FALSE(absl::StartsWith(parameter.name, "layers.1.")) << parameter.name;
    if (absl::StrContains(parameter.name, "gate")) {
      gates.push_back(absl::StrCat(parameter.name, " ", parameter.init.ToString()));
    }
  }
  EXPECT_THAT(gates, ElementsAre("layers.0.mlp.gate.weight uniform(-0.5, 0.5)"));
}

TEST_F(ParametersTest, SharingLayersHaveOwnNormBuffers) {
  TinyModel model;
  model.norm = "bn";
  model.more = R"pbtxt(norm { name: "bn" plugin: "batch_norm" allow_cross_token: true })pbtxt";
  const std::string shared =
      absl::StrReplaceAll(model.Text(), {{"norm: \"bn\"", "norm: \"bn\" share: \"s\""}});
  const auto context = TryContext(runtime_.get(), shared);
  ASSERT_TRUE(context.ok()) << context.status();
  std::vector<std::string> states;
  for (const NormStateSpec& state : (*context)->states) states.push_back(state.name);
  EXPECT_THAT(states, ElementsAre("layers.0.attention.norm.state", "layers.0.mlp.norm.state",
                                  "layers.1.attention.norm.state", "layers.1.mlp.norm.state",
                                  "end.norm.state"));
  for (const ParameterSpec& parameter : (*context)->parameters) {
    EXPECT_FALSE(absl::StartsWith(parameter.name, "layers.1.")) << parameter.name;
  }
}

TEST_F(ParametersTest, RefusesToShareOtherShapes) {
  const auto error = [&](const std::string& first, const std::string& second) {
    const std::string block = "layers { block { placement: \"pre\" share: \"a\" ";
    return std::string(
        GetError(absl::StrCat("n_head: 2 d_model: 8 vocab_size: 5 context_length: 8 ", block, first,
                              "} } ", block, second, "} }"))
            .message());
  };
  const std::string rms = "norm: \"rms_norm\" ";
  EXPECT_EQ(error(rms, rms), "");
  // Parameters that only one of the layers has are its own.
  EXPECT_EQ(error(rms, "norm: \"layer_norm\" "), "");
  EXPECT_EQ(error(rms + "sublayer { mlp {} }", rms + "sublayer { mlp { gated: true bias: true } }"),
            "");
  EXPECT_THAT(error(rms + "sublayer { name: \"mix\" conv {} }",
                    rms + "sublayer { name: \"mix\" conv { width: 2 } }"),
              AllOf(HasSubstr("layers.1.mix.weight is [8, 2] and cannot share "
                              "layers.0.mix.weight, which is [8, 4]"),
                    HasSubstr("equal sublayers")));
}

// Checkpoints and graphs cannot distinguish two tensors of one name.
TEST_F(ParametersTest, RefusesSlotsNamedLikeAProjection) {
  TinyModel model;
  model.placement = "mine";
  const auto error_of = [&](const std::string& body) {
    model.more = absl::StrCat("placement { name: \"mine\" ", body, " }");
    return GetError(model.Text());
  };
  const std::pair<const char*, const char*> errors[] = {
      {"slot { name: \"up\" } each: \"x = x + f(up(x))\"", "layers.0.mlp.up.weight"},
      {"slot { name: \"q\" } each: \"x = x + q(f(x))\"", "layers.0.attention.q.weight"},
      {"slot { name: \"o\" } each: \"x = x + f(x)\" inside { point: \"attention.q\" rule: \"q = "
       "o(q)\" }",
       "layers.0.attention.o.weight"},
  };
  for (const auto& [body, name] : errors) {
    const absl::Status status = error_of(body);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << body << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("test.pbtxt:"), HasSubstr(name),
                      HasSubstr("rename the norm slot or the projection")));
  }
  EXPECT_TRUE(error_of("each: \"x = x + f(norm_up(x))\"").ok());
}

TEST_F(ParametersTest, RefusesMoreParametersThanCanBeCounted) {
  TinyModel model;
  model.more = "head_dim: 16777216";
  model.n_head = model.n_kv_head = model.d_model = 16777216;
  EXPECT_EQ(GetError(model.Text()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(GetError(model.Text()).message()), HasSubstr("parameters; at most"));
}

TEST_F(ParametersTest, RefusesADimensionThatItsNormRefuses) {
  TinyModel model;
  model.more = R"(norm { name: "bad" plugin: "rms_norm" attr { name: "eps" number: -1 } })";
  model.norm = "bad";
  const absl::Status status = GetError(model.Text());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("eps"));
}

}  // namespace
}  // namespace plumb
