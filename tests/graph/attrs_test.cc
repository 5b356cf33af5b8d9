// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/attrs.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace plumb {
namespace {

class Named : public AttrObject {
 public:
  explicit Named(std::string name) : name_(std::move(name)) {}
  std::string ToString() const override { return name_; }

 private:
  std::string name_;
};

TEST(AttrsTest, PrintsSortedByNameWithTheShortestNumbersThatReadBack) {
  Attrs attrs{{"transpose_b", true}, {"eps", 1e-5}, {"rows", int64_t{65}}, {"kind", "gelu"}};
  attrs.Set("coefs", std::vector<double>{1, 0.1, -2.5});
  attrs.Set("instance", std::make_shared<const Named>("rms_norm(eps=1e-05)[16]"));
  EXPECT_EQ(attrs.ToString(),
            "{coefs=[1, 0.1, -2.5], eps=1e-05, instance=rms_norm(eps=1e-05)[16], kind=\"gelu\", "
            "rows=65, transpose_b=true}");
}

TEST(AttrsTest, PrintsNothingWhenEmpty) { EXPECT_EQ(Attrs().ToString(), ""); }

TEST(AttrsTest, PrintsNeighbouringDoublesDifferently) {
  const double third = 1.0 / 3.0;
  EXPECT_FALSE(Attrs({{"a", third}}) == Attrs({{"a", std::nextafter(third, 1.0)}}));
  EXPECT_TRUE(Attrs({{"a", third}}) == Attrs({{"a", third}}));
}

TEST(AttrsTest, ReturnsSetValues) {
  const Attrs attrs{
      {"b", true}, {"i", int64_t{7}}, {"d", 0.5}, {"s", "text"}, {"v", std::vector<double>{1, 2}}};
  EXPECT_TRUE(attrs.GetBool("b", false));
  EXPECT_FALSE(attrs.GetBool("absent", false));
  EXPECT_EQ(attrs.GetInt("i"), 7);
  EXPECT_EQ(attrs.GetDouble("d"), 0.5);
  EXPECT_EQ(attrs.GetDouble("i"), 7.0);
  EXPECT_EQ(attrs.GetDouble("absent", 3.0), 3.0);
  EXPECT_EQ(attrs.GetString("s"), "text");
  EXPECT_THAT(attrs.GetDoubles("v"), testing::ElementsAre(1, 2));
  EXPECT_TRUE(attrs.Has("v"));
  EXPECT_FALSE(attrs.Has("w"));
}

TEST(AttrsTest, SettingANameAgainReplacesItsValue) {
  Attrs attrs{{"a", int64_t{1}}};
  attrs.Set("a", int64_t{2});
  EXPECT_EQ(attrs.ToString(), "{a=2}");
}

TEST(AttrsDeathTest, ANumberIsNotReadAsAString) {
  EXPECT_DEATH(Attrs({{"a", int64_t{1}}}).GetString("a"), "not a string");
  EXPECT_DEATH(Attrs().GetInt("missing"), "missing");
}

}  // namespace
}  // namespace plumb
