// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/picture.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/picture/picture_models.h"

namespace plumb {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RecordTest, PreNorm) {
  EXPECT_EQ(FlowOfPlacement("pre").ToString(), R"(0 enter embedding
1 leave x <- 0
--
layers 0..1: pre
0 enter x
1 norm norm <- 0
2 sublayer attention <- 1
3 add <- 0, 2
4 norm norm <- 3
5 sublayer mlp <- 4
6 add <- 3, 5
7 leave x <- 6
--
0 enter x
1 norm norm <- 0
2 leave head <- 1
)");
}

// Returns the layers of a picture, without the sections before and after them.
std::string LayersOf(const FlowPicture& picture) {
  std::string text;
  for (const FlowSection& section : picture.sections) {
    if (!section.title.empty()) absl::StrAppend(&text, section.ToString());
  }
  return text;
}

TEST(RecordTest, PostNormIsOnTheStream) {
  EXPECT_EQ(LayersOf(FlowOfPlacement("post")), R"(layers 0..1: post
0 enter x
1 sublayer attention <- 0
2 add <- 0, 1
3 norm norm <- 2
4 sublayer mlp <- 3
5 add <- 3, 4
6 norm norm <- 5
7 leave x <- 6
)");
}

TEST(RecordTest, TheSandwichHasTwoNormsASublayer) {
  EXPECT_THAT(LayersOf(FlowOfPlacement("double")), HasSubstr(R"(
1 norm norm_in <- 0
2 sublayer attention <- 1
3 norm norm_out <- 2
4 add <- 0, 3
)"));
}

TEST(RecordTest, ParallelSublayersReadOneNorm) {
  EXPECT_EQ(LayersOf(FlowOfPlacement("parallel")), R"(layers 0..1: parallel
0 enter x
1 norm norm <- 0
2 sublayer attention <- 1
3 sublayer mlp <- 1
4 add <- 0, 2, 3
5 leave x <- 4
)");
}

TEST(RecordTest, B2tAddsTheLayersInputAgain) {
  EXPECT_EQ(LayersOf(FlowOfPlacement("b2t")), R"(layers 0..1: b2t
0 enter x
1 sublayer attention <- 0
2 add <- 0, 1
3 norm norm_1 <- 2
4 sublayer mlp <- 3
5 add <- 3, 4, 0
6 norm norm_2 <- 5
7 leave x <- 6
)");
}

// The second stream starts as a copy of the first one but is a stream of its own.
TEST(RecordTest, ResiDualHasTwoStreams) {
  const FlowPicture picture = FlowOfPlacement("resi_dual");
  EXPECT_THAT(picture.streams, testing::ElementsAre("x", "d"));
  EXPECT_EQ(picture.ToString(), R"(0 enter embedding
1 leave x <- 0
2 leave d <- 0
--
layers 0..1: resi_dual
0 enter x
1 enter d
2 sublayer attention <- 0
3 add <- 1, 2
4 add <- 0, 2
5 norm norm <- 4
6 sublayer mlp <- 5
7 add <- 3, 6
8 add <- 5, 6
9 norm norm <- 8
10 leave x <- 9
11 leave d <- 7
--
0 enter x
1 enter d
2 norm norm <- 1
3 add <- 0, 2
4 leave head <- 3
)");
}

// Coefficients belong to edges, so that a layer with coefficient 1 is of the same kind.
TEST(RecordTest, LayerDependentNumbersAreRanges) {
  EXPECT_EQ(LayersOf(FlowOfPlacement("ln_scaling", 4)), R"(layers 0..3: ln_scaling
0 enter x
1 norm norm <- 0
2 sublayer attention <- 0.5 … 1 * 1
3 add <- 0, 2
4 norm norm <- 3
5 sublayer mlp <- 0.5 … 1 * 4
6 add <- 3, 5
7 leave x <- 6
)");
}

TEST(RecordTest, NumbersHaveTheNameOfTheirLet) {
  EXPECT_THAT(LayersOf(FlowOfPlacement("deepnorm")), HasSubstr("add <- alpha * 0, 1"));
  // If two lets have the same value, neither name is shown.
  EXPECT_THAT(LayersOf(FlowOfBody("let: \"a = 3\" let: \"b = 6 / 2\" let: \"c = 2 * layer\" "
                                  "each: \"x = a * x + f(b * x)\" each: \"x = c * x + tanh(x)\"")),
              AllOf(HasSubstr("attention <- 3 * 0"), HasSubstr("add <- c * ")));
}

TEST(RecordTest, DropsNumbersThatChange) {
  const std::string body =
      "learned { name: \"g\" init: 1 } each: \"x = x + tanh(g / (layer + 1)) * f(x)\"";
  EXPECT_THAT(LayersOf(FlowOfBody(body, 3)),
              AllOf(HasSubstr("layers 0..2: mine"), HasSubstr("gain tanh(… * g) <- 1")));
}

TEST(RecordTest, DifferentLayersAreDifferentKinds) {
  const FlowPicture swin = FlowOfPlacement("swin_v2", 12);
  ASSERT_EQ(swin.sections.size(), 4u);
  EXPECT_EQ(swin.sections[1].title, "layers 0..4, 6..10: swin_v2");
  EXPECT_EQ(swin.sections[2].title, "layers 5, 11: swin_v2");
  EXPECT_THAT(swin.sections[2].ToString(), HasSubstr("norm stream_norm <- "));
}

TEST(RecordTest, ShowsOneLayerByNumber) {
  TinyModel model;
  model.placement = "ln_scaling";
  model.n_layer = 4;
  PictureOptions options;
  options.layer = 3;
  const FlowPicture picture = *FlowOf(model, options);
  ASSERT_EQ(picture.sections.size(), 3u);
  EXPECT_THAT(picture.sections[1].ToString(), HasSubstr("layer 3: ln_scaling"));
  EXPECT_THAT(picture.sections[1].ToString(), HasSubstr("attention <- 0.5 * 1"));
  for (const int64_t layer : {-1, 4}) {
    options.layer = layer;
    EXPECT_EQ(FlowOf(model, options).status().message(),
              absl::StrCat("there is no layer ", layer, "; layers are 0..3"));
  }
}

TEST(RecordTest, LearnedFactorsAreGains) {
  EXPECT_THAT(LayersOf(FlowOfPlacement("layer_scale")), HasSubstr("gain gamma <- 2"));
  const std::string body =
      "learned { name: \"g\" init: 1 } learned { name: \"h\" init: 1 per_channel: true } "
      "each: \"x = x + (1 - sigmoid(g)) * h * f(x)\"";
  EXPECT_THAT(LayersOf(FlowOfBody(body)), HasSubstr("2 gain (-sigmoid(g) + 1) * h <- 1\n"));
}

TEST(RecordTest, MarksRulesInsideSublayers) {
  EXPECT_THAT(LayersOf(FlowOfPlacement("qk_norm")),
              HasSubstr("sublayer attention <- 1 {q = q_norm(q); k = k_norm(k)}"));
  EXPECT_THAT(LayersOf(FlowOfPlacement("normformer")),
              HasSubstr("{context = head_scale * context}"));
  const std::string body =
      "each: \"x = x + f(x)\" "
      "inside { point: \"mlp.hidden\" rule: \"h = 0.5 * hidden\" "
      "rule: \"hidden = (hidden + h - 1) * sigmoid(h)\" } "
      "inside { point: \"head.logits\" rule: \"logits = 30 * tanh(logits / 30)\" }";
  const std::string text = FlowOfBody(body).ToString();
  EXPECT_THAT(text, HasSubstr("{hidden = (1.5 * hidden - 1) * sigmoid(0.5 * hidden)}"));
  EXPECT_THAT(text, HasSubstr("leave head <- 0 {logits = 30 * tanh(0.0333 * logits)}"));
}

TEST(RecordTest, MarksOptionsOfSublayers) {
  TinyModel model;
  model.n_layer = 4;
  model.more = "attention { window: \"4 * (layer % 2)\" score_cap: \"50\" sinks: true } ";
  const FlowPicture picture = *FlowOf(model);
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
  EXPECT_THAT(LayersOf(FlowOfBody(body + "}")), HasSubstr("{hidden = … * …}"));
}

TEST(RecordTest, ConstantsAndNegativeTerms) {
  EXPECT_THAT(LayersOf(FlowOfBody("each: \"y = f(x)\" each: \"x = 2 * x - y + 3\"")),
              HasSubstr("2 add <- 2 * 0, -1 * 1 + 3\n"));
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
  EXPECT_THAT(FlowOf(model).status().message(), HasSubstr("more than 6 kinds"));
  PictureOptions options;
  options.layer = 5;
  EXPECT_TRUE(FlowOf(model, options).ok());
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
  EXPECT_THAT(FlowOf(model).status().message(), HasSubstr("too large for a picture"));
}

}  // namespace
}  // namespace plumb
