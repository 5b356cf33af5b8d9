// SPDX-License-Identifier: Apache-2.0
// Tests of pictures of formulas with indices, projections and ranges: the wiring of the streams.
#include <gmock/gmock.h>

#include "tests/picture/picture_models.h"

namespace plumb {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kDenseFormer[] = R"pbtxt(
  learned { name: "w" index: "k = 0..layer" init_expression: "k == layer" }
  begin: "h[0] = x"
  block: "x = x + attention(norm_1(x))"
  block: "h[layer] = x + mlp(norm_2(x))"
  block: "x = sum(k = 0..layer, w[k] * h[k])"
  end: "x = norm(x)")pbtxt";

TEST(WiringTest, DenseFormerReadsAllEarlierLayers) {
  const FlowPicture picture = FlowOfBody(kDenseFormer, 6);
  EXPECT_THAT(picture.streams, ElementsAre("x"));
  EXPECT_EQ(picture.sections[0].ToString(),
            "0 enter embedding\n1 leave x <- 0\n2 keep h[0] <- 0\n");
  EXPECT_EQ(picture.sections[1].ToString(), R"(layers 0..4: mine
0 enter x
1 earlier h[0..layer - 1]
2 norm norm_1 <- 0
3 sublayer attention <- 2
4 add <- 0, 3
5 norm norm_2 <- 4
6 sublayer mlp <- 5
7 add <- 4, 6
8 add <- w: 1, w: 7
9 leave x <- 8
10 keep h[layer] <- 7
)");
  // No layer reads the value that the last layer would keep.
  EXPECT_THAT(picture.sections[2].ToString(), HasSubstr("earlier h[0..5]\n"));
  EXPECT_THAT(picture.sections[2].ToString(), Not(HasSubstr("keep")));
}

constexpr char kHyperConnections[] = R"pbtxt(
  let: "n = 4"
  learned { name: "m" index: "j = 0..n - 1" init_expression: "j == (sublayer - 1) % n" }
  learned { name: "r" index: "i = 0..n - 1" index: "j = 0..n - 1" init_expression: "i == j" }
  learned { name: "b" index: "i = 0..n - 1" init: 1 }
  begin: "h[i] = x for i = 0..n - 1"
  each: "y = f(norm(sum(j = 0..n - 1, m[j] * h[j])))"
  each: "h[i] = sum(j = 0..n - 1, r[i, j] * h[j]) + b[i] * y for i = 0..n - 1"
  end: "x = norm(sum(j = 0..n - 1, h[j]))")pbtxt";

TEST(WiringTest, HyperConnectionsAreOneBundleOfStreams) {
  const FlowPicture picture = FlowOfBody(kHyperConnections, 6);
  EXPECT_THAT(picture.streams, ElementsAre("h"));
  EXPECT_EQ(picture.ToString(), R"(0 enter embedding
1 leave h[0..3] <- 0
--
layers 0..5: mine
0 enter h[0..3]
1 add <- m: 0
2 norm norm <- 1
3 sublayer attention <- 2
4 add <- r: 0, b: 3
5 add <- m: 4
6 norm norm <- 5
7 sublayer mlp <- 6
8 add <- r: 4, b: 7
9 leave h[0..3] <- 8
--
0 enter h[0..3]
1 add <- 0
2 norm norm <- 1
3 leave head <- 2
)");
}

constexpr char kDynamicHyperConnections[] = R"pbtxt(
  let: "n = 4"
  learned { name: "m" index: "j = 0..n - 1" init_expression: "j == (sublayer - 1) % n" }
  learned { name: "r" index: "i = 0..n - 1" index: "j = 0..n - 1" init_expression: "i == j" }
  learned { name: "b" index: "i = 0..n - 1" init: 1 }
  learned { name: "s" init: 0.01 }
  linear { name: "pm" out: "1" } linear { name: "pr" out: "1" } linear { name: "pb" out: "1" }
  begin: "h[i] = x for i = 0..n - 1"
  each: "y = f(norm(sum(j = 0..n - 1, (m[j] + s * tanh(pm(norm_d(h[j])))) * h[j])))"
  each: "h[i] = sum(j = 0..n - 1, (r[i, j] + s * tanh(pr[i](norm_d(h[j])))) * h[j]) + (b[i] + s * tanh(pb(norm_d(h[i])))) * y for i = 0..n - 1"
  end: "x = norm(sum(j = 0..n - 1, h[j]))")pbtxt";

// Four streams with four weights each are drawn as one stream with one weight.
TEST(WiringTest, ProjectionWeightsAreDrawnOnce) {
  const FlowPicture picture = FlowOfBody(kDynamicHyperConnections, 6);
  EXPECT_THAT(picture.sections[1].ToString(), HasSubstr(R"(
1 parameter m
2 norm norm_d <- 0
3 linear pm <- 2
4 function tanh <- 3
5 gain s <- 4
6 add <- 1, 5
7 multiply <- 0, 6
8 add <- 7
9 norm norm <- 8
10 sublayer attention <- 9
)"));
  EXPECT_LE(picture.sections[1].nodes.size(), 60u);
}

constexpr char kAttentionResiduals[] = R"pbtxt(
  linear { name: "pq" out: "1" init { constant {} } }
  begin: "h[0] = x"
  each: "x = softmax(k = 0..sublayer - 1, pq(norm_k(h[k])), h[k])"
  each: "h[sublayer] = f(norm(x))"
  end: "x = norm(softmax(k = 0..n_sublayer, pq(norm_k(h[k])), h[k]))")pbtxt";

TEST(WiringTest, AttentionResidualsReadOverDepth) {
  const FlowPicture picture = FlowOfBody(kAttentionResiduals, 6);
  EXPECT_THAT(picture.sections[2].ToString(),
              AllOf(HasSubstr(R"(layers 1..5: mine
0 earlier h[0..2 * layer - 2]
1 norm norm_k <- 0
2 linear pq <- 1
3 function softmax <- 2
4 multiply <- 0, 3
5 add <- 4
6 norm norm <- 5
7 sublayer attention <- 6
)"),
                    HasSubstr("keep h[2 * layer - 1] <- 7\n"), HasSubstr("keep h[2 * layer] <- ")));
}

// A wire that takes a value from inside a sublayer says which one, and where it goes.
TEST(WiringTest, WiresFromInsideASublayerNameTheirValue) {
  TinyModel model;
  model.placement = "mine";
  model.d_ff = model.d_model;
  model.more = R"pbtxt(placement {
    name: "mine" block: "x = x + attention(x)" block: "x = x + mlp(x) + 2 * u[layer]"
    inside { point: "attention.v" rule: "u[layer] = sigmoid(v)" }
    inside { point: "mlp.hidden" rule: "hidden = hidden + u[layer]" } })pbtxt";
  const std::string layer = FlowOf(model)->sections[1].ToString();
  EXPECT_THAT(layer, HasSubstr("sublayer mlp <- 2, sigmoid(v) → hidden: 1 {"));
  EXPECT_THAT(layer, HasSubstr("sigmoid(v): 2 * 1\n"));
}

// Each sublayer has its own norm and projection of the same earlier values.
TEST(WiringTest, PlacesHaveParametersOfTheirOwn) {
  const std::string layer = FlowOfBody(kAttentionResiduals, 6).sections[2].ToString();
  EXPECT_THAT(layer, AllOf(HasSubstr("8 norm norm_k <- 0\n"), HasSubstr("9 linear pq <- 8\n")));
}

constexpr char kResFormer[] = R"pbtxt(
  each: "x = x + f(norm(x))" end: "x = norm(x)"
  inside { point: "attention.v" rule: "u[layer] = v" rule: "v = 0.5 * v + 0.5 * u[1]" })pbtxt";

TEST(WiringTest, FirstLayerValuesAreEarlierNodes) {
  const FlowPicture picture = FlowOfBody(kResFormer, 6);
  EXPECT_THAT(picture.sections[1].ToString(),
              AllOf(HasSubstr("layer 0: mine"), HasSubstr("keep u[1] <- v: 2\n")));
  EXPECT_THAT(picture.sections[2].ToString(),
              AllOf(HasSubstr("layers 1..5: mine"), HasSubstr("earlier u[1]\n"),
                    HasSubstr("attention <- 2, v: 1 {v = 0.5 * v + 0.5 * u[1]}")));
}

constexpr char kGates[] = R"pbtxt(
  linear { name: "gate" out: "n_head" }
  each: "x = x + min(1, step / (1000 * layer)) * drop(f(norm(x)), 0.1)"
  inside { point: "attention.context" rule: "context = sigmoid(gate(input)) * context" })pbtxt";

TEST(WiringTest, GatesStepsAndDropout) {
  const FlowPicture picture = FlowOfBody(kGates, 6);
  ASSERT_EQ(picture.sections.size(), 3u);
  EXPECT_THAT(picture.sections[1].ToString(),
              AllOf(HasSubstr("{context = context * sigmoid(gate(input))}"),
                    HasSubstr("function drop 0.1 <- "), HasSubstr("gain min(… * step, 1) <- ")));
}

TEST(WiringTest, AttentionOfThreeStreams) {
  EXPECT_THAT(FlowOfBody(R"pbtxt(begin: "a = x" begin: "c = x"
    block: "x = x + attention(x, a, norm(c))" block: "x = x + mlp(x)")pbtxt")
                  .ToString(),
              HasSubstr("sublayer attention <- q: 0, k: 1, v: 3\n"));
}

}  // namespace
}  // namespace plumb
