// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/picture.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"
#include "tests/picture/picture_models.h"

namespace plumb {
namespace {

using testing::HasSubstr;

TEST(RecordTest, FlowsMatchTheFile) {
  const absl::StatusOr<std::string> file = ReadFile(PLUMB_SOURCE_DIR "/tests/picture/flows.txt");
  ASSERT_TRUE(file.ok()) << file.status();
  const std::vector<std::string> cases = absl::StrSplit(*file, "\n==== ");
  EXPECT_GT(cases.size(), 20u);
  for (size_t i = 1; i < cases.size(); ++i) {
    const std::string flow = cases[i].substr(0, cases[i].find("\n\n"));  // a comment may follow
    const std::vector<std::string> halves = absl::StrSplit(flow, absl::MaxSplits("----\n", 1));
    const std::vector<std::string> model = absl::StrSplit(halves[0], absl::MaxSplits('\n', 1));
    const std::vector<std::string> words = absl::StrSplit(model[0], ' ');
    const int layers = std::stoi(words.back());
    const std::string text =
        (words[0] == "body" ? FlowOfBody(model[1], layers) : FlowOfPlacement(words[1], layers))
            .ToString();
    size_t at = 0;
    for (const std::string& part : std::vector<std::string>(absl::StrSplit(halves[1], "\n...\n"))) {
      const size_t found = text.find(part, at);
      ASSERT_NE(found, std::string::npos) << part << "\nis missing in\n" << text;
      at = found + part.size();
    }
  }
}

TEST(RecordTest, ShowsOneLayerByNumber) {
  TinyModel model;
  model.placement = "ln_scaling";
  model.n_layer = 4;
  PictureOptions options;
  options.layer = 3;
  const FlowPicture picture = *MakeFlow(model, options);
  ASSERT_EQ(picture.sections.size(), 3u);
  EXPECT_THAT(picture.sections[1].ToString(), HasSubstr("layer 3: ln_scaling"));
  EXPECT_THAT(picture.sections[1].ToString(), HasSubstr("attention <- 0.5 * 1"));
  for (const int64_t layer : {-1, 4}) {
    options.layer = layer;
    EXPECT_EQ(MakeFlow(model, options).status().message(),
              absl::StrCat("there is no layer ", layer, "; layers are 0..3"));
  }
}

TEST(RecordTest, MarksOptionsOfSublayers) {
  TinyModel model;
  model.n_layer = 4;
  model.more = "attention { window: \"4 * (layer % 2)\" score_cap: \"50\" sinks: true } ";
  const FlowPicture picture = *MakeFlow(model);
  ASSERT_EQ(picture.sections.size(), 4u);
  EXPECT_EQ(picture.sections[1].title, "layers 0, 2: pre");
  EXPECT_THAT(picture.sections[1].ToString(),
              HasSubstr("attention <- 1 {window of 4; scores to ±50; sinks}"));
  EXPECT_THAT(picture.sections[2].ToString(), HasSubstr("attention <- 1 {scores to ±50; sinks}"));
}

// Forty lines give a formula of 2^40 factors.
TEST(RecordTest, LongFormulasAreCut) {
  std::string body = "each: \"x = x + f(x)\" inside { point: \"mlp.hidden\" ";
  for (int i = 0; i < 40; ++i) body += "rule: \"hidden = hidden * hidden\" ";
  EXPECT_THAT(FlowOfBody(body + "}").ToString(), HasSubstr("{hidden = … * …}"));
}

TEST(RecordTest, RefusesTooManyKindsOfLayers) {
  std::string body = "each: \"x = x + f(x)\" ";
  std::string value = "x";
  for (int layer = 1; layer <= 8; ++layer) {
    value = absl::StrCat("tanh(", value, ")");
    absl::StrAppend(&body, "each: \"x = ", value, " if layer == ", layer, "\" ");
  }
  TinyModel model;
  model.placement = "mine";
  model.n_layer = 8;
  model.more = absl::StrCat("placement { name: \"mine\" ", body, " }");
  EXPECT_THAT(MakeFlow(model).status().message(), HasSubstr("more than 6 kinds"));
  PictureOptions options;
  options.layer = 5;
  EXPECT_TRUE(MakeFlow(model, options).ok());
}

// Pictures that would be too large are refused.
TEST(RecordTest, RefusesTooLargePictures) {
  std::string sum = "x";
  for (int i = 0; i < 10; ++i) absl::StrAppend(&sum, " + tanh(x + ", i, ")");
  std::string body = "each: \"x = x + f(x)\" ";
  for (int i = 0; i < 20; ++i) absl::StrAppend(&body, "each: \"x = ", sum, "\" ");
  TinyModel model;
  model.placement = "mine";
  model.more = absl::StrCat("placement { name: \"mine\" ", body, " }");
  EXPECT_THAT(MakeFlow(model).status().message(), HasSubstr("too large for a picture"));
}

// A wire that takes a value from inside a sublayer says which one, and where it goes.
TEST(RecordTest, WiresFromInsideASublayerNameTheirValue) {
  TinyModel model;
  model.placement = "mine";
  model.d_ff = model.d_model;
  model.more = R"pbtxt(placement {
    name: "mine" block: "x = x + attention(x)" block: "x = x + mlp(x) + 2 * u[layer]"
    inside { point: "attention.v" rule: "u[layer] = sigmoid(v)" }
    inside { point: "mlp.hidden" rule: "hidden = hidden + u[layer]" } })pbtxt";
  const std::string layer = MakeFlow(model)->sections[1].ToString();
  EXPECT_THAT(layer, HasSubstr("sublayer mlp <- 2, sigmoid(v) → hidden: 1 {"));
  EXPECT_THAT(layer, HasSubstr("sigmoid(v): 2 * 1\n"));
}

}  // namespace
}  // namespace plumb
