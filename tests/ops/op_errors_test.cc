// SPDX-License-Identifier: Apache-2.0
// Error messages of ops for invalid operands.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/ops.h"
#include "tests/ops/op_test_util.h"

namespace plumb {
namespace {

using testing::HasSubstr;

class OpErrorsTest : public testing::Test {
 protected:
  OpErrorsTest() { RegisterOps(&registry_); }

  // Returns the message of the shape rule, or "" if it accepts the operands.
  std::string ShapeError(const std::string& op, std::vector<CaseInput> inputs, Attrs attrs = {}) {
    OpCase c;
    c.op = op;
    c.inputs = std::move(inputs);
    c.attrs = std::move(attrs);
    const auto graph = BuildCase(registry_, c);
    return graph.ok() ? "" : std::string(graph.status().message());
  }

  absl::Status RunError(const std::string& op, std::vector<CaseInput> inputs, Attrs attrs = {}) {
    OpCase c;
    c.op = op;
    c.inputs = std::move(inputs);
    c.attrs = std::move(attrs);
    const auto graph = BuildCase(registry_, c);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return RunKernel(*graph, MakeInputs(c), 1).status();
  }

  OpRegistry registry_;
};

TEST_F(OpErrorsTest, MatmulNamesTheSizesThatDiffer) {
  EXPECT_THAT(ShapeError("matmul", {Random({2, 3}), Random({4, 5})}),
              HasSubstr("the inner sizes differ: 3 of a and 4 of b"));
  EXPECT_THAT(
      ShapeError("matmul", {Random({2, 3}), Random({5, 4})}, Attrs({{"transpose_b", true}})),
      HasSubstr("the inner sizes differ: 3 of a and 4 of b"));
  EXPECT_THAT(ShapeError("matmul", {Random({2, 3}), Random({3, 5}), Random({4})}),
              HasSubstr("bias must be [5]"));
  EXPECT_THAT(ShapeError("matmul", {Ints({2, 3}, {0, 0, 0, 0, 0, 0}), Random({3, 5})}),
              HasSubstr("a must be f32 or bf16 and is i32"));
}

TEST_F(OpErrorsTest, MatmulRefusesGradientsOfAnotherShape) {
  GraphBuilder b(&registry_);
  const ValueId x = b.Parameter("x", F32({6, 3}));
  const ValueId y = b.Parameter("y", F32({2, 3, 5}));
  b.Apply("matmul", {x, y}, Attrs({{"transpose_a", true}}));
  const ValueId dz = b.Input("dz", F32({3, 5}));
  const Node node = b.graph().nodes[0];
  node.op->vjp(b, node, {dz}, {true, false});
  ASSERT_FALSE(b.ok());
  EXPECT_THAT(std::string(std::move(b).Finish().status().message()), HasSubstr("f32[6, 3]"));
}

TEST_F(OpErrorsTest, CombineRequiresACoefficientPerTerm) {
  EXPECT_THAT(
      ShapeError("combine", {Random({2}), Random({2})}, Attrs({{"coefs", std::vector<double>{1}}})),
      HasSubstr("2 terms need as many coefficients, not 1"));
  EXPECT_THAT(ShapeError("combine", {Random({2}), Random({3})},
                         Attrs({{"coefs", std::vector<double>{1, 1}}})),
              HasSubstr("operand 0 and operand 1 must have the same type"));
}

TEST_F(OpErrorsTest, MulRequiresEqualRowsAndDivisibleWidths) {
  EXPECT_THAT(ShapeError("mul", {Random({2, 6}), Random({4})}), HasSubstr("must divide 6"));
  EXPECT_THAT(ShapeError("mul", {Random({2, 6}), Random({2, 4})}), HasSubstr("must divide 6"));
  EXPECT_THAT(ShapeError("mul", {Random({2, 6}), Random({3, 6})}),
              HasSubstr("differ in their rows"));
  EXPECT_THAT(
      ShapeError("mul_reduce", {Random({2, 6}), Random({2, 6})}, Attrs({{"size", int64_t{4}}})),
      HasSubstr("size must divide 6"));
}

TEST_F(OpErrorsTest, SuggestsActivationNames) {
  EXPECT_THAT(ShapeError("act", {Random({2})}, Attrs({{"kind", std::string("sillu")}})),
              HasSubstr("did you mean \"silu\""));
  EXPECT_THAT(
      ShapeError("gated", {Random({2}), Random({2})}, Attrs({{"kind", std::string("gellu")}})),
      HasSubstr("did you mean \"gelu\""));
}

TEST_F(OpErrorsTest, FillRequiresPositiveDimensions) {
  EXPECT_THAT(ShapeError("fill", {}, Attrs({{"dims", std::vector<double>{2, 0}}, {"value", 1.0}})),
              HasSubstr("positive integers"));
}

TEST_F(OpErrorsTest, FewerQueriesThanKeysRequireACache) {
  const Attrs heads = {{"n_head", int64_t{2}}, {"n_kv_head", int64_t{2}}, {"scale", 1.0}};
  const CaseInput three = Random({1, 3, 4}), two = Random({1, 2, 4});
  const CaseInput cache = Random({1, 2, 8, 2});
  EXPECT_EQ(ShapeError("attention_cached",
                       {two, three, three, cache, cache, Ints({1, 3}, {0, 1, 2})}, heads),
            "");
  EXPECT_THAT(ShapeError("attention_cached",
                         {two, three, three, cache, cache, Ints({1, 2}, {0, 1})}, heads),
              HasSubstr("must be i32[1, 3]"));
  EXPECT_THAT(
      ShapeError("attention_cached", {three, two, two, cache, cache, Ints({1, 2}, {0, 1})}, heads),
      HasSubstr("both must be f32[1, 3, 4]"));
  EXPECT_THAT(ShapeError("attention", {two, three, three}, heads),
              HasSubstr("q has 2 tokens and k 3: they must have as many"));
}

TEST_F(OpErrorsTest, AttentionChecksSinksAndWindow) {
  Attrs heads = {{"n_head", int64_t{2}}, {"n_kv_head", int64_t{2}}, {"scale", 1.0}};
  const CaseInput x = Random({1, 3, 4});
  EXPECT_EQ(ShapeError("attention", {x, x, x, Random({2})}, heads), "");
  EXPECT_THAT(ShapeError("attention", {x, x, x, Random({4})}, heads),
              HasSubstr("the sinks are f32[4], must be f32[2]"));
  EXPECT_THAT(ShapeError("attention_sink_grad", {Random({3}), x, Random({1, 2, 3}), x}),
              HasSubstr("do not match"));
  heads.Set("window", int64_t{-1});
  EXPECT_THAT(ShapeError("attention", {x, x, x}, heads), HasSubstr("window = -1"));
}

TEST_F(OpErrorsTest, KeyBiasesAreOnePerTokenAndHead) {
  Attrs heads = {{"n_head", int64_t{2}}, {"n_kv_head", int64_t{2}}, {"scale", 1.0}};
  const CaseInput x = Random({1, 3, 4}), bias = Random({1, 3, 2}), sinks = Random({2});
  const CaseInput cache = Random({1, 2, 8, 2}), positions = Ints({1, 3}, {0, 1, 2});
  EXPECT_EQ(ShapeError("attention", {x, x, x, Absent(), Absent(), bias}, heads), "");
  EXPECT_THAT(ShapeError("attention", {x, x, x, Absent(), Absent(), x}, heads),
              HasSubstr("the biases of keys are f32[1, 3, 4], must be f32[1, 3, 2]"));
  EXPECT_THAT(ShapeError("attention", {x, x, x, sinks, Absent(), bias}, heads),
              HasSubstr("without sinks"));
  EXPECT_THAT(ShapeError("attention_cached_bias",
                         {x, x, x, cache, cache, positions, Absent(), bias, cache}, heads),
              HasSubstr("the cache of biases must be f32[1, 1, 8, 2]"));
  heads.Set("window", int64_t{2});
  EXPECT_THAT(ShapeError("attention", {x, x, x, Absent(), Absent(), bias}, heads),
              HasSubstr("without sinks, lengths, cap, window"));
}

TEST_F(OpErrorsTest, ConvolutionsRequireAWeightPerChannel) {
  const CaseInput x = Random({2, 3, 4}), weight = Random({4, 2}), cache = Random({2, 1, 8, 4});
  EXPECT_THAT(ShapeError("causal_conv", {x, Random({3, 2})}), HasSubstr("the weight f32[3, 2]"));
  EXPECT_THAT(ShapeError("causal_conv", {x, weight, Random({2})}), HasSubstr("must be f32[4]"));
  EXPECT_THAT(ShapeError("causal_conv_weight_grad", {x, x}, Attrs({{"width", int64_t{0}}})),
              HasSubstr("width 0"));
  const CaseInput positions = Ints({2, 3}, {0, 1, 2, 5, 6, 7});
  EXPECT_EQ(ShapeError("causal_conv_cached", {x, weight, cache, positions}), "");
  EXPECT_THAT(ShapeError("causal_conv_cached", {x, weight, Random({2, 8, 4}), positions}),
              HasSubstr("must be f32[2, 1, capacity, 4]"));
  EXPECT_THAT(ShapeError("causal_conv_cached", {x, weight, cache, Ints({2}, {0, 5})}),
              HasSubstr("must be i32[2, 3]"));
  const absl::Status outside =
      RunError("causal_conv_cached", {x, weight, cache, Ints({2, 3}, {0, 1, 2, 6, 7, 8})});
  EXPECT_EQ(outside.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(outside.message()), HasSubstr("position 8 of row 1"));
}

TEST_F(OpErrorsTest, EmbeddingRefusesTokensOutsideTheVocabulary) {
  const absl::Status high = RunError("embedding", {Random({5, 3}), Ints({3}, {0, 5, 1})});
  EXPECT_EQ(high.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(high.message()),
              HasSubstr("token 5 at position 1 is outside the vocabulary [0, 5)"));
  EXPECT_FALSE(RunError("embedding", {Random({5, 3}), Ints({1}, {-1})}).ok());
  EXPECT_FALSE(
      RunError("embedding_grad", {Ints({1}, {5}), Random({1, 3})}, Attrs({{"rows", int64_t{5}}}))
          .ok());
}

TEST_F(OpErrorsTest, ExpertOpsRequireMatchingRows) {
  const auto route = [](int64_t top_k, const char* router) {
    return Attrs({{"top_k", top_k}, {"router", std::string(router)}});
  };
  EXPECT_THAT(ShapeError("route", {Random({3, 4})}, route(5, "softmax")),
              HasSubstr("top_k 5 is not in 1..4"));
  EXPECT_THAT(ShapeError("route", {Random({3, 4})}, route(2, "top_k")),
              HasSubstr("router must be softmax_of_top_k, softmax or sigmoid"));
  EXPECT_THAT(ShapeError("to_experts", {Random({3, 4}), Ints({2, 1}, {0, 1})}),
              HasSubstr("x and places must have the same tokens"));
  EXPECT_THAT(ShapeError("from_experts", {Random({3, 4}), Ints({2, 1}, {0, 1})}),
              HasSubstr("y must have 2 rows, one a place"));
  EXPECT_THAT(ShapeError("from_experts", {Random({2, 4}), Ints({2, 1}, {0, 1}), Random({2, 2})}),
              HasSubstr("weights must be f32[2, 1]"));
  EXPECT_THAT(
      ShapeError("expert_matmul", {Random({3, 4}), Random({2, 5, 6}), Ints({3}, {0, 1, 3})}),
      HasSubstr("inner sizes differ: 4 and 5"));
  EXPECT_THAT(ShapeError("expert_matmul", {Random({3, 4}), Random({2, 4, 6}), Ints({2}, {0, 3})}),
              HasSubstr("starts must be [3], one more than there are experts"));
  // Operands that no other kernel produces.
  EXPECT_THAT(std::string(RunError("to_experts", {Random({2, 4}), Ints({2, 1}, {0, 2})}).message()),
              HasSubstr("2"));
  for (const std::vector<int32_t>& starts :
       {std::vector<int32_t>{0, 2, 1}, {1, 2, 3}, {0, 4, 3}, {0, -1, 3}, {0, 1, 4}}) {
    const absl::Status status =
        RunError("expert_matmul", {Random({3, 4}), Random({2, 4, 6}), Ints({3}, starts)});
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("starts do not ascend from 0 to the 3 rows there are"));
    EXPECT_FALSE(
        RunError("expert_outer", {Random({3, 4}), Random({3, 5}), Ints({3}, starts)}).ok());
    EXPECT_FALSE(RunError("expert_sum", {Random({3, 4}), Ints({3}, starts)}).ok());
  }
}

}  // namespace
}  // namespace plumb
