// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

constexpr char kModel[] =
    "n_layer: 2\n"
    "n_head: 2\n"
    "d_model: 8\n"
    "context_length: 4\n"
    "norm { name: \"a\" plugin: \"rms_norm\" attr { name: \"eps\" number: 1e-5 } }\n"
    "placement { name: \"p\" each: \"y = f(x)\" each: \"x = x + y\" }\n"
    "block { placement: \"p\" norm: \"a\" }\n";

ModelSpec Spec() { return ModelSpec::FromText(kModel, "dir/m.pbtxt").value(); }

std::string SetError(absl::string_view path, absl::string_view value) {
  ModelSpec spec = Spec();
  const absl::Status status = spec.Set(path, value);
  EXPECT_EQ(spec.ToText(), Spec().ToText()) << "a Set that fails changes nothing";
  return status.ok() ? "no error" : std::string(status.message());
}

TEST(ModelSpecTest, HasItsFileAndVocabulary) {
  EXPECT_EQ(Spec().file(), "dir/m.pbtxt");
  EXPECT_EQ(Spec().vocab_size(), 0);
  EXPECT_EQ(ModelSpec::FromText("vocab_size: 7", "m").value().vocab_size(), 7);
}

TEST(ModelSpecTest, ReadsAFile) {
  const ScratchDirectory directory;
  const std::string path = directory.Write("m.pbtxt", kModel);
  const absl::StatusOr<ModelSpec> spec = ModelSpec::FromFile(path);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->file(), path);
  EXPECT_EQ(spec->ToText(), Spec().ToText());
  EXPECT_EQ(ModelSpec::FromFile(path + "x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ModelSpec::FromFile(directory.path()).ok());
  EXPECT_FALSE(ModelSpec::FromFile("/dev/zero").ok());
}

TEST(ModelSpecTest, TextRoundTrips) {
  const std::string text = Spec().ToText();
  EXPECT_EQ(ModelSpec::FromText(text, "m").value().ToText(), text);
}

TEST(ModelSpecTest, SetsFieldsOfEveryKind) {
  ModelSpec spec = Spec();
  for (const auto& [path, value] : {std::pair<const char*, const char*>{"n_layer", "8"},
                                    {"name", "mine"},
                                    {"tie_embeddings", "true"},
                                    {"mlp.activation", "silu"},
                                    {"positions.kind", "ROPE"},
                                    {"positions.rope_theta", "1e6"},
                                    {"norm[0].attr[0].number", "1e-6"},
                                    {"placement[0].each[1]", "x = x + 2 * y"},
                                    {"block.norm", "none"}}) {
    const absl::Status status = spec.Set(path, value);
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(spec.ToText(),
            "name: \"mine\"\n"
            "n_layer: 8\n"
            "n_head: 2\n"
            "d_model: 8\n"
            "context_length: 4\n"
            "positions {\n"
            "  kind: ROPE\n"
            "  rope_theta: 1000000\n"
            "}\n"
            "tie_embeddings: true\n"
            "mlp {\n"
            "  activation: SILU\n"
            "}\n"
            "norm {\n"
            "  name: \"a\"\n"
            "  plugin: \"rms_norm\"\n"
            "  attr {\n"
            "    name: \"eps\"\n"
            "    number: 1e-06\n"
            "  }\n"
            "}\n"
            "placement {\n"
            "  name: \"p\"\n"
            "  each: \"y = f(x)\"\n"
            "  each: \"x = x + 2 * y\"\n"
            "}\n"
            "block {\n"
            "  placement: \"p\"\n"
            "  norm: \"none\"\n"
            "}\n");
}

TEST(ModelSpecTest, CopiesAreIndependent) {
  ModelSpec spec = Spec();
  const ModelSpec copy = spec;
  ASSERT_TRUE(spec.Set("n_layer", "8").ok());
  EXPECT_EQ(copy.ToText(), Spec().ToText());
}

TEST(ModelSpecTest, SetReturnsErrors) {
  EXPECT_EQ(SetError("n_layers", "8"),
            "n_layers: Model has no field \"n_layers\"; did you mean \"n_layer\"?");
  EXPECT_EQ(SetError("blok.norm", "none"),
            "blok.norm: Model has no field \"blok\"; did you mean \"block\"?");
  EXPECT_EQ(SetError("block.nrom", "none"),
            "block.nrom: Block has no field \"nrom\"; did you mean \"norm\"?");
  EXPECT_EQ(SetError("", "8"), ": Model has no field \"\"");
  EXPECT_EQ(SetError("n_layer.", "8"), "n_layer.: n_layer has no fields");
  EXPECT_EQ(SetError("n_layer", "eight"), "n_layer: \"eight\" is not a whole number");
  EXPECT_EQ(SetError("n_layer", "8.5"), "n_layer: \"8.5\" is not a whole number");
  EXPECT_EQ(SetError("n_layer", "99999999999"),
            "n_layer: \"99999999999\" is not a number of 32 bits");
  EXPECT_EQ(SetError("tie_embeddings", "maybe"), "tie_embeddings: \"maybe\" is not true or false");
  EXPECT_EQ(SetError("positions.rope_theta", "inf"),
            "positions.rope_theta: \"inf\" is not a number");
  EXPECT_EQ(SetError("mlp.activation", "swish"),
            "mlp.activation: \"swish\" is not one of RELU, GELU, GELU_TANH, SILU, NONE");
  EXPECT_EQ(SetError("block", "pre"),
            "block: is a group of fields; set one of placement, norm, slot, sublayer, inside, "
            "share, own_norms");
  EXPECT_EQ(SetError("norm", "pre"), "norm: norm needs an index below 1: norm[0]");
  EXPECT_EQ(SetError("norm[0]", "pre"),
            "norm[0]: is a group of fields; set one of name, plugin, attr, "
            "allow_cross_token");
  EXPECT_EQ(SetError("norm[1].name", "b"), "norm[1].name: norm needs an index below 1: norm[0]");
  EXPECT_EQ(SetError("norm[-1].name", "b"), "norm[-1].name: bad index in \"norm[-1]\"");
  EXPECT_EQ(SetError("norm[0.name", "b"), "norm[0.name: bad index in \"norm[0\"");
  EXPECT_EQ(SetError("norm[].name", "b"), "norm[].name: bad index in \"norm[]\"");
  EXPECT_EQ(SetError("layers[0].repeat", "2"), "layers[0].repeat: there is no layers to set");
  EXPECT_EQ(SetError("n_layer[0]", "2"), "n_layer[0]: n_layer takes no index");
  EXPECT_EQ(SetError("placement[0].each", "x = x"),
            "placement[0].each: each needs an index below 2: each[0]");
}

TEST(ModelSpecTest, TheNextIndexOfAListOfTextsAppends) {
  ModelSpec spec = Spec();
  ASSERT_TRUE(spec.Set("adapter.let", "a = 1").ok());
  ASSERT_TRUE(spec.Set("adapter.let[1]", "b = 2").ok());
  ASSERT_TRUE(spec.Set("adapter.let[0]", "a = 3").ok());
  EXPECT_THAT(spec.ToText(), ::testing::HasSubstr("let: \"a = 3\"\n  let: \"b = 2\""));
  EXPECT_EQ(std::string(spec.Set("adapter.let", "c = 1").message()),
            "adapter.let: let needs an index below 2: let[0]");
  EXPECT_FALSE(spec.Set("adapter.let[3]", "c = 1").ok());
}

TEST(ModelSpecTest, SetChecksFields) {
  PluginRegistry plugins;
  plugins.AddDirectory(PLUMB_TEST_PLUGIN_DIR);
  ModelSpec spec = Spec();
  ASSERT_TRUE(spec.Set("vocab_size", "11").ok());
  EXPECT_TRUE(Resolve(spec, &plugins, ResolveOptions()).ok());
  ASSERT_TRUE(spec.Set("placement[0].each[1]", "x = z + y").ok());
  EXPECT_EQ(std::string(Resolve(spec, &plugins, ResolveOptions()).status().message()),
            "dir/m.pbtxt:6:40: placement \"p\", each, attention: unknown name \"z\"; here there "
            "are y, x, layer, sublayer, and the model's dimensions\n"
            "  x = z + y\n"
            "      ^");
  // The field was set by the program, so the error has no location in the file.
  ASSERT_TRUE(spec.Set("attention.scale", "1 +").ok());
  EXPECT_EQ(std::string(Resolve(spec, &plugins, ResolveOptions()).status().message()),
            "dir/m.pbtxt: the formula ends where a value is expected\n"
            "  1 +\n"
            "     ^");
}

}  // namespace
}  // namespace plumb
