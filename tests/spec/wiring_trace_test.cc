// What indexed names, ranges, projections, tables and what is for training only come to: what the
// walk tells its backend.
#include <gtest/gtest.h>

#include <string>

#include "tests/spec/recorder.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

// Of one layer of attention and an MLP, so that it is short.
std::string TraceOf(const std::string& fields) {
  return Trace(
      "n_layer: 1 n_head: 2 d_model: 8 d_ff: 16 vocab_size: 11 context_length: 4\n"
      "placement { name: \"p\"\n" +
      fields + "\n}\nblock { placement: \"p\" norm: \"rms_norm\" }\n");
}

TEST(WiringTraceTest, AnIndexedNameLivesToTheEnd) {
  EXPECT_EQ(TraceOf("begin: \"h[0] = x\" block: \"y = attention(h[0])\" block: \"h[layer] = y + "
                    "mlp(x)\" end: \"x = x + h[1]\""),
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = layers.0.attention(t0) layer 1 sublayer 1\n"
            "t2 = layers.0.mlp(t0) layer 1 sublayer 2\n"
            "t3 = t1 + t2\n"
            "end layer 0 t0\n"
            "t4 = t0 + t3\n"
            "t5 = head(t4)\n"
            "logits t5\n");
}

TEST(WiringTraceTest, TheNameOfAnIndexHasNoSpace) {
  EXPECT_EQ(TraceOf("begin: \"h[0, 1] = x\" each: \"x = f(h[0, 2 - 1] + x)\""),
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = 2 t0\n"
            "t2 = layers.0.attention(t1) layer 1 sublayer 1\n"
            "t3 = t0 + t2\n"
            "t4 = layers.0.mlp(t3) layer 1 sublayer 2\n"
            "end layer 0 t4\n"
            "t5 = head(t4)\n"
            "logits t5\n");
}

TEST(WiringTraceTest, ARangeIsThatManyStatements) {
  EXPECT_EQ(TraceOf("begin: \"h[i] = i * x for i = 1..3 if i != 2\" block: \"x = x + "
                    "attention(h[1]) + mlp(h[3])\""),
            "t0 = embed\n"
            "t1 = 3 t0\n"
            "begin layer 0 t0\n"
            "t2 = layers.0.attention(t0) layer 1 sublayer 1\n"
            "t3 = layers.0.mlp(t1) layer 1 sublayer 2\n"
            "t4 = t0 + t2 + t3\n"
            "end layer 0 t4\n"
            "t5 = head(t4)\n"
            "logits t5\n");
}

TEST(WiringTraceTest, RightSidesAreReadBeforeLeftSidesAreSet) {
  EXPECT_EQ(TraceOf("begin: \"h[i] = (i + 1) * x for i = 0..1\" block: \"h[i] = h[1 - i] - x for i "
                    "= 0..1\" block: \"x = attention(h[0]) + mlp(h[1])\""),
            "t0 = embed\n"
            "t1 = 2 t0\n"
            "begin layer 0 t0\n"
            "t2 = t1 + -1 t0\n"
            "t3 = 0 t0\n"
            "t4 = layers.0.attention(t2) layer 1 sublayer 1\n"
            "t5 = layers.0.mlp(t3) layer 1 sublayer 2\n"
            "t6 = t4 + t5\n"
            "end layer 0 t6\n"
            "t7 = head(t6)\n"
            "logits t7\n");
}

TEST(WiringTraceTest, ASumIsItsTerms) {
  EXPECT_EQ(TraceOf("begin: \"h[i] = norm(x) for i = 0..1\" block: \"x = sum(k = 0..1, (k + 1) * "
                    "h[k]) + attention(x) + mlp(x)\""),
            "t0 = embed\n"
            "t1 = rms_norm begin.norm[8 of 8](t0)\n"
            "t2 = rms_norm begin.norm[8 of 8](t0) again\n"
            "begin layer 0 t0\n"
            "t3 = layers.0.attention(t0) layer 1 sublayer 1\n"
            "t4 = layers.0.mlp(t0) layer 1 sublayer 2\n"
            "t5 = t1 + 2 t2 + t3 + t4\n"
            "end layer 0 t5\n"
            "t6 = head(t5)\n"
            "logits t6\n");
}

TEST(WiringTraceTest, APlaceInARangeSharesItsParameters) {
  EXPECT_EQ(TraceOf("linear { name: \"g\" out: \"1\" } block: \"x = sum(k = 0..1, g(norm_k(x))) * "
                    "x + attention(x) + mlp(x)\""),
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = rms_norm layers.0.norm_k[8 of 8](t0)\n"
            "t2 = linear layers.0.g[1 of 8](t1)\n"
            "t3 = rms_norm layers.0.norm_k[8 of 8](t0) again\n"
            "t4 = linear layers.0.g[1 of 8](t3) again\n"
            "t5 = t2 + t4\n"
            "t6 = t0 * t5\n"
            "t7 = layers.0.attention(t0) layer 1 sublayer 1\n"
            "t8 = layers.0.mlp(t0) layer 1 sublayer 2\n"
            "t9 = t6 + t7 + t8\n"
            "end layer 0 t9\n"
            "t10 = head(t9)\n"
            "logits t10\n");
}

TEST(WiringTraceTest, AnIndexedPlaceHasItsOwn) {
  EXPECT_EQ(TraceOf("linear { name: \"g\" out: \"2\" } block: \"x = sum(k = 0..1, "
                    "g[k](norm[k](x))) * x + attention(x) + mlp(x)\""),
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = rms_norm layers.0.norm.0[8 of 8](t0)\n"
            "t2 = linear layers.0.g.0[2 of 8](t1)\n"
            "t3 = rms_norm layers.0.norm.1[8 of 8](t0)\n"
            "t4 = linear layers.0.g.1[2 of 8](t3)\n"
            "t5 = t2 + t4\n"
            "t6 = t0 * t5\n"
            "t7 = layers.0.attention(t0) layer 1 sublayer 1\n"
            "t8 = layers.0.mlp(t0) layer 1 sublayer 2\n"
            "t9 = t6 + t7 + t8\n"
            "end layer 0 t9\n"
            "t10 = head(t9)\n"
            "logits t10\n");
}

TEST(WiringTraceTest, ASoftmaxIsWeightsAndASum) {
  EXPECT_EQ(TraceOf("learned { name: \"w\" index: \"k = 0..1\" } block: \"y = attention(x)\" "
                    "block: \"x = softmax(k = 0..1, w[k], k * x + y) + mlp(x)\""),
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = layers.0.attention(t0) layer 1 sublayer 1\n"
            "t2 = learned layers.0.w[1] value 0 of 2 init 0\n"
            "t3 = learned layers.0.w[1] value 1 of 2 init 0\n"
            "t4 = softmax(t2, t3)\n"
            "t5 = part(t4, 0, 2)\n"
            "t6 = 0 t0 + t1\n"
            "t7 = t6 * t5\n"
            "t8 = part(t4, 1, 2)\n"
            "t9 = t0 + t1\n"
            "t10 = t9 * t8\n"
            "t11 = layers.0.mlp(t0) layer 1 sublayer 2\n"
            "t12 = t7 + t10 + t11\n"
            "end layer 0 t12\n"
            "t13 = head(t12)\n"
            "logits t13\n");
}

TEST(WiringTraceTest, ASoftmaxOfNumbersIsFolded) {
  EXPECT_EQ(
      TraceOf(
          "block: \"y = attention(x)\" block: \"x = softmax(k = 0..1, 0, k * x + y) + mlp(x)\""),
      "t0 = embed\n"
      "begin layer 0 t0\n"
      "t1 = layers.0.attention(t0) layer 1 sublayer 1\n"
      "t2 = layers.0.mlp(t0) layer 1 sublayer 2\n"
      "t3 = 0.5 t0 + t1 + t2\n"
      "end layer 0 t3\n"
      "t4 = head(t3)\n"
      "logits t4\n");
}

TEST(WiringTraceTest, ATableIsReadByItsFlatIndex) {
  EXPECT_EQ(
      TraceOf(
          "learned { name: \"w\" index: \"i = 1..2\" index: \"j = 0..2\" init_expression: \"10 * i "
          "+ j\" per_channel: true } block: \"x = w[2, 1] * attention(x) + w[1, 0] + mlp(x)\""),
      "t0 = embed\n"
      "begin layer 0 t0\n"
      "t1 = learned layers.0.w[8] value 4 of 2 x 3 init 21\n"
      "t2 = layers.0.attention(t0) layer 1 sublayer 1\n"
      "t3 = t2 * t1\n"
      "t4 = learned layers.0.w[8] value 0 of 2 x 3 init 10\n"
      "t5 = layers.0.mlp(t0) layer 1 sublayer 2\n"
      "t6 = t3 + t4 + t5\n"
      "end layer 0 t6\n"
      "t7 = head(t6)\n"
      "logits t7\n");
}

TEST(WiringTraceTest, ATableHasItsRangeAtItsPlace) {
  EXPECT_EQ(TraceOf("learned { name: \"w\" index: \"k = 0..layer\" init_expression: \"k == layer\" "
                    "} block: \"x = w[layer] * attention(x) + mlp(x)\""),
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = learned layers.0.w[1] value 1 of 2 init 1\n"
            "t2 = layers.0.attention(t0) layer 1 sublayer 1\n"
            "t3 = t2 * t1\n"
            "t4 = layers.0.mlp(t0) layer 1 sublayer 2\n"
            "t5 = t3 + t4\n"
            "end layer 0 t5\n"
            "t6 = head(t5)\n"
            "logits t6\n");
}

TEST(WiringTraceTest, WidthsThatDivideBroadcast) {
  EXPECT_EQ(
      TraceOf("linear { name: \"g\" out: \"n_head\" } block: \"x = g(x) * attention(x) + mlp(x)\""),
      "t0 = embed\n"
      "begin layer 0 t0\n"
      "t1 = linear layers.0.g[2 of 8](t0)\n"
      "t2 = layers.0.attention(t0) layer 1 sublayer 1\n"
      "t3 = t2 * t1\n"
      "t4 = layers.0.mlp(t0) layer 1 sublayer 2\n"
      "t5 = t3 + t4\n"
      "end layer 0 t5\n"
      "t6 = head(t5)\n"
      "logits t6\n");
}

TEST(WiringTraceTest, FunctionsOfChannels) {
  EXPECT_EQ(TraceOf("block: \"y = attention(x)\" block: \"x = dot(x, y) * concat(part(x, 1, 2), "
                    "part(y, 0, 2)) + mlp(x)\""),
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = layers.0.attention(t0) layer 1 sublayer 1\n"
            "t2 = dot(t0, t1)\n"
            "t3 = part(t0, 1, 2)\n"
            "t4 = part(t1, 0, 2)\n"
            "t5 = concat(t3, t4)\n"
            "t6 = t5 * t2\n"
            "t7 = layers.0.mlp(t0) layer 1 sublayer 2\n"
            "t8 = t6 + t7\n"
            "end layer 0 t8\n"
            "t9 = head(t8)\n"
            "logits t9\n");
}

TEST(WiringTraceTest, FunctionsOfValues) {
  EXPECT_EQ(
      TraceOf("block: \"x = max(0, attention(x)) / abs(x) + min(mlp(x), x, 2) ^ 0.5 + (x > 1)\""),
      "t0 = embed\n"
      "begin layer 0 t0\n"
      "t1 = layers.0.attention(t0) layer 1 sublayer 1\n"
      "t2 = max(t1, 0)\n"
      "t3 = abs(t0)\n"
      "t4 = reciprocal(t3)\n"
      "t5 = t2 * t4\n"
      "t6 = layers.0.mlp(t0) layer 1 sublayer 2\n"
      "t7 = min(t6, t0)\n"
      "t8 = min(t7, 2)\n"
      "t9 = pow(t8, 0.5)\n"
      "t10 = t0 + -1\n"
      "t11 = >(t10, 0)\n"
      "t12 = t5 + t9 + t11\n"
      "end layer 0 t12\n"
      "t13 = head(t12)\n"
      "logits t13\n");
}

TEST(WiringTraceTest, AConcatRunsOverARange) {
  EXPECT_EQ(TraceOf("block: \"x = concat(k = 0..3, part(x, 3 - k, 4)) + attention(x) + mlp(x)\""),
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = part(t0, 3, 4)\n"
            "t2 = part(t0, 2, 4)\n"
            "t3 = part(t0, 1, 4)\n"
            "t4 = part(t0, 0, 4)\n"
            "t5 = concat(t1, t2, t3, t4)\n"
            "t6 = layers.0.attention(t0) layer 1 sublayer 1\n"
            "t7 = layers.0.mlp(t0) layer 1 sublayer 2\n"
            "t8 = t5 + t6 + t7\n"
            "end layer 0 t8\n"
            "t9 = head(t8)\n"
            "logits t9\n");
}

TEST(WiringTraceTest, WhatIsForTrainingOnly) {
  EXPECT_EQ(TraceOf("block: \"x = x + drop(attention(x), 0.1)\" block: \"x = stop(x) + "
                    "drop_path(min(1, step / 10) * mlp(x), 0.2) + drop(x, 0)\""),
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = layers.0.attention(t0) layer 1 sublayer 1\n"
            "t2 = layers.0.drop p 0.1(t1)\n"
            "t3 = t0 + t2\n"
            "t4 = stop(t3)\n"
            "t5 = step\n"
            "t6 = 0.1 t5\n"
            "t7 = min(t6, 1)\n"
            "t8 = layers.0.mlp(t3) layer 1 sublayer 2\n"
            "t9 = t8 * t7\n"
            "t10 = layers.0.drop_path p 0.2 path(t9)\n"
            "t11 = t4 + t10 + t3\n"
            "end layer 0 t11\n"
            "t12 = head(t11)\n"
            "logits t12\n");
}

TEST(WiringTraceTest, ThreeStreamsOfAttention) {
  EXPECT_EQ(
      TraceOf("begin: \"e = x\" block: \"x = x + attention(norm_q(x), norm_k(x), e) + mlp(x)\""),
      "t0 = embed\n"
      "begin layer 0 t0\n"
      "t1 = rms_norm layers.0.norm_q[8 of 8](t0)\n"
      "t2 = rms_norm layers.0.norm_k[8 of 8](t0)\n"
      "t3 = layers.0.attention(t1, t2, t0) layer 1 sublayer 1\n"
      "t4 = layers.0.mlp(t0) layer 1 sublayer 2\n"
      "t5 = t0 + t3 + t4\n"
      "end layer 0 t5\n"
      "t6 = head(t5)\n"
      "logits t6\n");
}

TEST(WiringTraceTest, ASublayersInputAndIndexedNames) {
  EXPECT_EQ(
      TraceOf("linear { name: \"g\" out: \"n_head\" } each: \"x = x + f(norm(x))\" inside { point: "
              "\"attention.v\" rule: \"u[layer] = v\" rule: \"v = v + u[1]\" } inside { point: "
              "\"attention.context\" rule: \"context = sigmoid(g(input)) * context\" }"),
      "t0 = embed\n"
      "begin layer 0 t0\n"
      "t1 = rms_norm layers.0.attention.norm[8 of 8](t0)\n"
      "t2 = 2 t1\n"
      "t3 = linear layers.0.attention.g[2 of 8](t1)\n"
      "t4 = sigmoid(t3)\n"
      "t5 = t2 * t4\n"
      "t6 = layers.0.attention(t5) layer 1 sublayer 1\n"
      "t7 = t0 + t6\n"
      "t8 = rms_norm layers.0.mlp.norm[8 of 8](t7)\n"
      "t9 = layers.0.mlp(t8) layer 1 sublayer 2\n"
      "t10 = t7 + t9\n"
      "end layer 0 t10\n"
      "t11 = head(t10)\n"
      "logits t11\n");
}

TEST(WiringTraceTest, PointsAfterRotation) {
  EXPECT_EQ(TraceOf("each: \"x = x + f(x)\" inside { point: \"attention.q_rot\" rule: \"q_rot = 2 "
                    "* q_rot\" } inside { point: \"attention.k_rot\" rule: \"k_rot = 3 * k_rot\" } "
                    "inside { point: \"mlp.up\" rule: \"up = 4 * up\" }"),
            "t0 = embed\n"
            "begin layer 0 t0\n"
            "t1 = 2 t0\n"
            "t2 = 3 t1\n"
            "t3 = layers.0.attention(t2) layer 1 sublayer 1\n"
            "t4 = t0 + t3\n"
            "t5 = 4 t4\n"
            "t6 = layers.0.mlp(t5) layer 1 sublayer 2\n"
            "t7 = t4 + t6\n"
            "end layer 0 t7\n"
            "t8 = head(t7)\n"
            "logits t8\n");
}

}  // namespace
}  // namespace plumb
