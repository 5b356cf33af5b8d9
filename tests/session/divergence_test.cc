// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/divergence.h"

#include <gtest/gtest.h>

namespace plumb {
namespace {

TEST(DivergenceTest, PlaceOfParsesNames) {
  EXPECT_EQ(GetPlace("layers.3.mlp.norm.out"), "layer 3, mlp, slot norm");
  EXPECT_EQ(GetPlace("layers.3.mlp.norm.out.1"), "layer 3, mlp, slot norm");
  EXPECT_EQ(GetPlace("layers.12.attention.q"), "layer 12, attention");
  EXPECT_EQ(GetPlace("layers.0.sum_2"), "layer 0");
  EXPECT_EQ(GetPlace("end.norm.out"), "end, slot norm");
  EXPECT_EQ(GetPlace("logits"), "");
  EXPECT_EQ(GetPlace("grad.layers.3.attention.q"), "backward pass, layer 3, attention");
  EXPECT_EQ(GetPlace("grad.layers.1.mlp.up.weight"), "backward pass, layer 1, mlp");
  EXPECT_EQ(GetPlace("grad.logits"), "backward pass");
  EXPECT_EQ(GetPlace("embedding.token.weight"), "embedding");
  EXPECT_EQ(GetPlace(""), "");
}

TEST(DivergenceTest, DescriptionDropsUnknownParts) {
  EXPECT_EQ(DescribeNonFinite({"layers.0.sum", "matmul_add"}),
            "layers.0.sum (layer 0; op matmul_add)");
  EXPECT_EQ(DescribeNonFinite({"logits", "matmul"}), "logits (op matmul)");
  EXPECT_EQ(DescribeNonFinite({"head.weight", ""}), "head.weight (head)");
  EXPECT_EQ(DescribeNonFinite({"w", ""}), "w");
}

}  // namespace
}  // namespace plumb
