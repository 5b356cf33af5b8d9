// SPDX-License-Identifier: Apache-2.0
// Norms with statistics over tokens must be allowed explicitly.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/spec/centering_norm.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CrossTokenTest : public ::testing::Test {
 protected:
  CrossTokenTest() {
    EXPECT_TRUE(plugins_.Register(CenteringNorm()).ok());
    EXPECT_TRUE(plugins_.Register(CenteringEvalNorm()).ok());
  }
  absl::StatusOr<ResolvedModel> Resolve(const std::string& lines) {
    return ResolveText(absl::StrCat(kDims, lines), &plugins_);
  }
  std::string Error(const std::string& lines) {
    const absl::StatusOr<ResolvedModel> model = Resolve(lines);
    if (model.ok()) return "no error";
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(model.status().message());
  }

  PluginRegistry plugins_;
};

constexpr char kWhy[] =
    "\"test.centering\" takes statistics over tokens: in training a token's output depends on "
    "later "
    "tokens of its sequence and on the other sequences of the batch, so a causal model sees the "
    "future that it is to predict; if that is wanted, ";

TEST_F(CrossTokenTest, RequiresAllowCrossToken) {
  const std::string use = "block { placement: \"pre\" norm: \"c\" }";
  EXPECT_EQ(
      Error(absl::StrCat("norm { name: \"c\"\n  plugin: \"test.centering\" }\n", use)),
      absl::StrCat("m.pbtxt:3:3: norm \"c\": ", kWhy, "add allow_cross_token: true to the norm"));
  EXPECT_EQ(
      Error(absl::StrCat("norm { name: \"c\"\n  plugin: \"test.centering\" "
                         "allow_cross_token: false }\n",
                         use)),
      absl::StrCat("m.pbtxt:3:3: norm \"c\": ", kWhy, "add allow_cross_token: true to the norm"));
}

TEST_F(CrossTokenTest, RequiresADeclaredNorm) {
  const std::string advice =
      "declare it, norm { name: \"my_norm\" plugin: \"test.centering\" allow_cross_token: true }, "
      "and write \"my_norm\"";
  EXPECT_EQ(Error("block { placement: \"pre\"\n  norm: \"test.centering\" }"),
            absl::StrCat("m.pbtxt:3:3: block.norm: ", kWhy, advice));
  EXPECT_EQ(Error("block { placement: \"pre\" norm: \"none\"\n"
                  "  slot { name: \"norm\" norm: \"test.centering\" } }"),
            absl::StrCat("m.pbtxt:3:3: block.slot \"norm\": ", kWhy, advice));
}

TEST_F(CrossTokenTest, PermissionWarnsOnce) {
  const absl::StatusOr<ResolvedModel> model = Resolve(
      "norm { name: \"c\" plugin: \"test.centering\"\n  allow_cross_token: true }\n"
      "layers { block { placement: \"pre\" norm: \"c\" }\n"
      "         block { placement: \"post\" norm: \"c\" } }");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->warnings,
              ElementsAre("m.pbtxt:3:3: norm \"c\": \"test.centering\" takes statistics over "
                          "tokens; in training a token's output depends on later tokens, so "
                          "training losses are those of a model that sees the future"));
}

TEST_F(CrossTokenTest, BatchStatisticsNormsWarnOfSampling) {
  const absl::StatusOr<ResolvedModel> model = Resolve(
      "norm { name: \"c\" plugin: \"test.centering_eval\" allow_cross_token: true }\n"
      "block { placement: \"pre\" norm: \"c\" }");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->warnings,
              ElementsAre(HasSubstr("in evaluation, and nothing can be sampled from it")));
}

TEST_F(CrossTokenTest, UnneededPermissionIsAWarning) {
  const absl::StatusOr<ResolvedModel> model = Resolve(
      "norm { name: \"r\" plugin: \"rms_norm\" allow_cross_token: true }\n"
      "block { placement: \"pre\" norm: \"r\" }");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->warnings,
              ElementsAre("m.pbtxt:2:37: norm \"r\": allow_cross_token has no effect; \"rms_norm\" "
                          "takes no statistics over tokens"));
}

TEST_F(CrossTokenTest, UnusedNormsNeedNoPermission) {
  const absl::StatusOr<ResolvedModel> model = Resolve(
      "norm { name: \"c\" plugin: \"test.centering\" }\n"
      "block { placement: \"pre\" norm: \"rms_norm\" }");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->warnings, IsEmpty());
}

TEST_F(CrossTokenTest, SelfContainedTextKeepsThePermission) {
  const absl::StatusOr<ResolvedModel> model = Resolve(
      "norm { name: \"c\" plugin: \"test.centering\" allow_cross_token: true }\n"
      "block { placement: \"pre\" norm: \"c\" }");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->self_contained_text, HasSubstr("allow_cross_token: true"));
  const absl::StatusOr<ResolvedModel> again = ResolveText(model->self_contained_text, &plugins_);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->self_contained_text, model->self_contained_text);
}

}  // namespace
}  // namespace plumb
