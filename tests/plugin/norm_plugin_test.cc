#include "runtime/plugin/norm_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plugin/test_norm.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

class NormPluginTest : public ::testing::Test {
 protected:
  ~NormPluginTest() override {
    test_norm::layout_answer = {};
    test_norm::forward_answer = PLUMB_OK;
  }

  plumb_norm_plugin table_ = test_norm::Table();
  std::unique_ptr<NormPlugin> plugin_ = NormPlugin::Create(&table_, "").value();
};

TEST_F(NormPluginTest, PrintsAnInstanceWithAllItsAttributesByName) {
  const auto instance = plugin_->Instantiate(16, {{"groups", 2.0}, {"label", std::string("a\"b")}});
  ASSERT_TRUE(instance.ok()) << instance.status();
  EXPECT_EQ(
      (*instance)->ToString(),
      "org.example.test(affine=true, axis=\"row\", eps=1e-05, groups=2, label=\"a\\\"b\")[16]");
}

TEST_F(NormPluginTest, PrintsDifferentNumbersDifferently) {
  const auto a = plugin_->Instantiate(4, {{"eps", 0.1}});
  const auto b = plugin_->Instantiate(4, {{"eps", 0.1 + 1e-18}});
  const auto c = plugin_->Instantiate(4, {{"eps", 0.10000000000000002}});
  EXPECT_EQ((*a)->ToString(), (*b)->ToString());  // the same double
  EXPECT_NE((*a)->ToString(), (*c)->ToString());
}

TEST_F(NormPluginTest, HandsOverCompleteValuesInTheSchemasOrder) {
  const auto instance = plugin_->Instantiate(4, {{"groups", 3.0}, {"affine", false}});
  ASSERT_TRUE(instance.ok()) << instance.status();
  EXPECT_EQ(test_norm::last_values[0].f, 1e-5);
  EXPECT_EQ(test_norm::last_values[1].i, 3);
  EXPECT_EQ(test_norm::last_values[2].i, 0);
}

TEST_F(NormPluginTest, RefusesImpossibleDimensions) {
  for (const int64_t dim : {int64_t{0}, int64_t{-5}, int64_t{1} << 40}) {
    EXPECT_EQ(plugin_->Instantiate(dim, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(NormPluginTest, DestroysWhatItCreated) {
  {
    const auto instance = plugin_->Instantiate(4, {});
    EXPECT_EQ(test_norm::live, 1);
  }
  EXPECT_EQ(test_norm::live, 0);
  test_norm::layout_answer.scratch_bytes = size_t{1} << 40;
  EXPECT_FALSE(plugin_->Instantiate(4, {}).ok());
  EXPECT_EQ(test_norm::live, 0);
}

TEST_F(NormPluginTest, RefusesAnIdentityWithState) {
  table_.flags = PLUMB_NORM_IDENTITY;
  plugin_ = NormPlugin::Create(&table_, "").value();
  EXPECT_TRUE(plugin_->identity());
  test_norm::layout_answer.saved_per_row = 1;
  EXPECT_THAT(std::string(plugin_->Instantiate(4, {}).status().message()), HasSubstr("identity"));
}

TEST_F(NormPluginTest, PassesOnWhyACallFailed) {
  const auto instance = plugin_->Instantiate(4, {}).value();
  plumb_norm_call call{};
  call.struct_size = sizeof(call);
  EXPECT_TRUE(instance->Forward(call, 0, 0).ok());
  test_norm::forward_answer = PLUMB_OUT_OF_RANGE;
  char text[64] = "";
  call.err = text;
  call.err_cap = sizeof(text);
  const absl::Status status = instance->Backward(call, 0, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("org.example.test("));
  EXPECT_THAT(std::string(status.message()), HasSubstr("backward: not today"));
  call.err = nullptr;
  test_norm::forward_answer = 4711;  // no status code that there is
  EXPECT_EQ(instance->Forward(call, 0, 0).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace plumb
