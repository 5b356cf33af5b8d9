// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/plugin/norm_plugin.h"
#include "tests/plugin/test_norm.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AttrCheckTest : public ::testing::Test {
 protected:
  std::string MessageFor(const NormAttrs& attrs) {
    const auto values = plugin_->CheckAttrs(attrs);
    EXPECT_EQ(values.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(values.status().message());
  }

  plumb_norm_plugin table_ = test_norm::Table();
  std::unique_ptr<NormPlugin> plugin_ = NormPlugin::Create(&table_, "").value();
};

TEST_F(AttrCheckTest, FillsInDefaultsInTheSchemasOrder) {
  const auto values = plugin_->CheckAttrs({});
  ASSERT_TRUE(values.ok()) << values.status();
  ASSERT_EQ(values->size(), 5u);
  EXPECT_EQ(std::get<double>((*values)[0]), 1e-5);
  EXPECT_EQ(std::get<int64_t>((*values)[1]), 4);
  EXPECT_EQ(std::get<bool>((*values)[2]), true);
  EXPECT_EQ(std::get<std::string>((*values)[3]), "row");
  EXPECT_EQ(std::get<std::string>((*values)[4]), "");
}

TEST_F(AttrCheckTest, SuggestsTheNameThatWasMeant) {
  EXPECT_EQ(MessageFor({{"epz", 1e-6}}),
            "org.example.test: unknown attribute \"epz\"; did you mean \"eps\"?");
}

TEST_F(AttrCheckTest, ListsTheAttributesWhenNoneIsNear) {
  EXPECT_EQ(
      MessageFor({{"temperature", 1.0}}),
      "org.example.test: unknown attribute \"temperature\"; it has eps, groups, affine, axis, "
      "label");
}

TEST_F(AttrCheckTest, RefusesNumbersOutsideTheirRange) {
  EXPECT_THAT(MessageFor({{"eps", 2.0}}), HasSubstr("\"eps\" must be in [0, 1], not 2"));
  EXPECT_THAT(MessageFor({{"groups", 0.0}}), HasSubstr("\"groups\" must be at least 1, not 0"));
  EXPECT_THAT(MessageFor({{"eps", NAN}}), HasSubstr("must be finite"));
  EXPECT_THAT(MessageFor({{"eps", INFINITY}}), HasSubstr("must be finite"));
}

TEST_F(AttrCheckTest, AcceptsTheEndsOfARange) {
  EXPECT_TRUE(plugin_->CheckAttrs({{"eps", 0.0}}).ok());
  EXPECT_TRUE(plugin_->CheckAttrs({{"eps", 1.0}}).ok());
  EXPECT_TRUE(plugin_->CheckAttrs({{"groups", 1e9}}).ok());
}

TEST_F(AttrCheckTest, TakesOnlyWholeNumbersForAnInteger) {
  EXPECT_THAT(MessageFor({{"groups", 2.5}}), HasSubstr("must be a whole number, not 2.5"));
  EXPECT_THAT(MessageFor({{"groups", 1e300}}), HasSubstr("is too large"));
  EXPECT_THAT(MessageFor({{"groups", std::string("four")}}), HasSubstr("wants integer"));
  EXPECT_THAT(MessageFor({{"groups", std::string("0")}}), HasSubstr("must be at least 1, not 0"));
  EXPECT_THAT(MessageFor({{"groups", std::string("9223372036854775808")}}),
              HasSubstr("wants integer"));
  EXPECT_TRUE(plugin_->CheckAttrs({{"groups", 8.0}}).ok());
}

TEST_F(AttrCheckTest, RefusesValuesOfAnotherType) {
  EXPECT_THAT(MessageFor({{"eps", std::string("small")}}),
              HasSubstr("\"eps\" wants number, not the text \"small\""));
  EXPECT_THAT(MessageFor({{"affine", 1.0}}), HasSubstr("\"affine\" wants bool, not the number 1"));
  EXPECT_THAT(MessageFor({{"groups", true}}), HasSubstr("\"groups\" wants integer, not true"));
  EXPECT_THAT(MessageFor({{"axis", 3.0}}), HasSubstr("wants one of row, column, not the number 3"));
}

TEST_F(AttrCheckTest, SuggestsTheChoiceThatWasMeant) {
  EXPECT_THAT(MessageFor({{"axis", std::string("colum")}}),
              HasSubstr("must be one of row, column, not \"colum\"; did you mean \"column\"?"));
}

TEST_F(AttrCheckTest, BoundsTheLengthOfText) {
  EXPECT_THAT(MessageFor({{"label", std::string(5000, 'a')}}), HasSubstr("at most 4096"));
  EXPECT_THAT(MessageFor({{"label", std::string("a\0b", 3)}}), HasSubstr("NUL"));
}

TEST_F(AttrCheckTest, ListsAllErrorsAtOnce) {
  const std::string message =
      MessageFor({{"epz", 1.0}, {"eps", -1.0}, {"affine", 0.0}, {"groups", 2.0}});
  EXPECT_THAT(message, HasSubstr("\"epz\""));
  EXPECT_THAT(message, HasSubstr("\"eps\" must be"));
  EXPECT_THAT(message, HasSubstr("\"affine\" wants"));
  EXPECT_THAT(message, Not(HasSubstr("groups\" ")));
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 2);
}

TEST_F(AttrCheckTest, NamesARequiredAttributeThatIsMissing) {
  plumb_attr_def attrs[1] = {test_norm::kAttrs[0]};
  attrs[0].flags = PLUMB_ATTR_FLAG_REQUIRED;
  table_.attrs = attrs;
  table_.n_attrs = 1;
  plugin_ = NormPlugin::Create(&table_, "").value();
  EXPECT_THAT(MessageFor({}), HasSubstr("\"eps\" (number) must be set"));
  EXPECT_TRUE(plugin_->CheckAttrs({{"eps", 0.5}}).ok());
}

}  // namespace
}  // namespace plumb
