// SPDX-License-Identifier: Apache-2.0
// Tests of every shipped placement and every example.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"
#include "runtime/spec/interpret.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

std::vector<std::string> ShippedNames() {
  std::vector<std::string> names;
  const std::vector<std::string> files = ListDirectory(ShippedPlacements()).value();
  for (absl::string_view file : files) {
    if (absl::ConsumeSuffix(&file, ".pbtxt")) names.emplace_back(file);
  }
  return names;
}

class ShippedPlacementTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ShippedPlacementTest, ResolvesAtEveryDepthWithEveryNorm) {
  for (const char* norm : {"rms_norm", "layer_norm", "none"}) {
    for (const int n_layer : {1, 2, 3, 24, 40}) {
      const absl::StatusOr<ResolvedModel> model = ResolveText(
          absl::StrCat("n_layer: ", n_layer,
                       " n_head: 4 n_kv_head: 2 d_model: 16 vocab_size: 11 context_length: 4\n",
                       "positions { kind: ROPE }\nblock { placement: \"", GetParam(), "\" norm: \"",
                       norm, "\" }"));
      ASSERT_TRUE(model.ok()) << n_layer << " layers with " << norm << ": " << model.status();
      EXPECT_THAT(model->warnings, ::testing::IsEmpty()) << n_layer << " layers with " << norm;
    }
  }
}

TEST_P(ShippedPlacementTest, HasItsOrigin) {
  const absl::StatusOr<ResolvedModel> model = ResolveText(
      absl::StrCat(kDims, "block { placement: \"", GetParam(), "\" norm: \"rms_norm\" }"));
  ASSERT_TRUE(model.ok()) << model.status();
  const PlacementSpec& placement = *model->layers[0]->placement;
  EXPECT_EQ(placement.name, GetParam());
  EXPECT_NE(placement.doc, "");
  for (const auto* section :
       {&placement.begin, &placement.each, &placement.block, &placement.end}) {
    for (const Statement& s : *section) EXPECT_EQ(s.ToString(), s.text.value);
  }
}

TEST_P(ShippedPlacementTest, SelfContainedTextIsTheSameModel) {
  const absl::StatusOr<ResolvedModel> model = ResolveText(
      absl::StrCat(kDims, "block { placement: \"", GetParam(), "\" norm: \"rms_norm\" }"));
  ASSERT_TRUE(model.ok()) << model.status();
  PluginRegistry plugins;
  plugins.AddDirectory(PLUMB_TEST_PLUGIN_DIR);
  const absl::StatusOr<ModelSpec> spec =
      ModelSpec::FromText(model->self_contained_text, "elsewhere/run.pbtxt");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const absl::StatusOr<ResolvedModel> again = Resolve(*spec, &plugins, ResolveOptions());
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << model->self_contained_text;
  EXPECT_EQ(Print(*again), Print(*model));
  EXPECT_EQ(again->self_contained_text, model->self_contained_text);
  // Sources are for readers: a run is identified by this text.
  EXPECT_THAT(model->self_contained_text, ::testing::Not(::testing::HasSubstr("source {")));
}

INSTANTIATE_TEST_SUITE_P(All, ShippedPlacementTest, ::testing::ValuesIn(ShippedNames()),
                         [](const auto& test) { return test.param; });

TEST(ShippedPlacementsTest, AreInstalled) { EXPECT_GE(ShippedNames().size(), 3u); }

TEST(ExampleModelsTest, Resolve) {
  PluginRegistry plugins;
  plugins.AddDirectory(PLUMB_TEST_PLUGIN_DIR);
  ResolveOptions options;
  options.placement_directories = {ShippedPlacements()};
  int models = 0;
  const std::string examples = JoinPath(PLUMB_SOURCE_DIR, "examples");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(examples)) {
    const std::string path = entry.path().string();
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".pbtxt") continue;
    // The directory also contains recipes and studies.
    if (absl::StartsWith(name, "train") || name == "study.pbtxt" || name == "text.pbtxt") continue;
    absl::StatusOr<ModelSpec> spec = ModelSpec::FromFile(path);
    ASSERT_TRUE(spec.ok()) << spec.status();
    if (spec->vocab_size() == 0) {
      ASSERT_TRUE(spec->Set("vocab_size", "65").ok());
    }
    const absl::StatusOr<ResolvedModel> model = Resolve(*spec, &plugins, options);
    EXPECT_TRUE(model.ok()) << model.status();
    ++models;
  }
  EXPECT_GE(models, 1);
}

}  // namespace
}  // namespace plumb
