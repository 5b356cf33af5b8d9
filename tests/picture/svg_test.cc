// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/picture.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "tests/picture/picture_models.h"
#include "tests/picture/xml_nesting.h"

namespace plumb {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(SvgTest, IsWellFormedAndSelfContained) {
  for (const NamedFlow& flow : FlowsOfAllSorts()) {
    const std::string svg = ToSvg(flow.picture);
    EXPECT_THAT(BadlyNested(svg), testing::IsEmpty()) << flow.name;
    EXPECT_TRUE(absl::StartsWith(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\"")) << flow.name;
    EXPECT_THAT(svg, HasSubstr("<title>"));
    EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
    EXPECT_THAT(svg, Not(HasSubstr("<script")));
    EXPECT_THAT(svg, Not(HasSubstr("href")));
    EXPECT_THAT(svg, Not(HasSubstr("=\"nan")));
    EXPECT_EQ(svg, ToSvg(flow.picture)) << flow.name;
  }
}

TEST(SvgTest, EveryNameIsText) {
  const std::string svg = ToSvg(FlowOfPlacement("qk_norm"));
  EXPECT_THAT(svg, HasSubstr(">layers 0..1: qk_norm</text>"));
  EXPECT_THAT(svg, HasSubstr(">attention</text>"));
  EXPECT_THAT(svg, HasSubstr(">q = q_norm(q)</text>"));
  EXPECT_THAT(svg, HasSubstr(">norm</text>"));
}

// Names of models and placements may contain any characters.
TEST(SvgTest, NamesAreEscaped) {
  FlowPicture picture = FlowOfPlacement("pre");
  const std::string name = "</text><script>&\"\x01\xff\n";
  picture.name = name;
  picture.sections[1].title = name;
  for (FlowNode& node : picture.sections[1].nodes) {
    if (node.kind == FlowKind::kSublayer) node.label = name;
    if (node.kind == FlowKind::kSublayer) node.marks = {name};
  }
  const std::string svg = ToSvg(picture);
  EXPECT_THAT(svg, HasSubstr("&lt;/text&gt;&lt;script&gt;&amp;&quot;"));
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_EQ(svg.find('\x01'), std::string::npos);
  EXPECT_EQ(svg.find('\xff'), std::string::npos);
  EXPECT_THAT(BadlyNested(svg), testing::IsEmpty());
}

}  // namespace
}  // namespace plumb
