// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/tensor_type.h"

#include <gtest/gtest.h>

#include <vector>

namespace plumb {
namespace {

TEST(ShapeTest, CountsElementsAndRows) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[1], 3);
  EXPECT_EQ(shape.num_elements(), 30);
  EXPECT_EQ(shape.last(), 5);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.ToString(), "[2, 3, 5]");
}

TEST(ShapeTest, ARankZeroShapeIsOneElementInOneRow) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.num_elements(), 1);
  EXPECT_EQ(scalar.rows(), 1);
  EXPECT_EQ(scalar.ToString(), "[]");
}

TEST(ShapeTest, AnEmptyDimensionHasNoRows) {
  EXPECT_EQ((Shape{4, 0}).rows(), 0);
  EXPECT_EQ((Shape{0, 4}).rows(), 0);
  EXPECT_EQ((Shape{0, 4}).num_elements(), 0);
}

TEST(ShapeTest, WithLastReplacesTheLastDimensionOnly) {
  const Shape shape{2, 3};
  EXPECT_EQ(shape.WithLast(7), (Shape{2, 7}));
  EXPECT_EQ(shape, (Shape{2, 3}));
  EXPECT_EQ(Shape().WithLast(7), Shape{7});
}

TEST(ShapeTest, ComparesDimensions) {
  const std::vector<int64_t> dims = {2, 3};
  EXPECT_EQ(Shape(absl::MakeConstSpan(dims)), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
}

TEST(TensorTypeTest, KnowsItsBytesAndPrints) {
  EXPECT_EQ(F32({2, 16}).bytes(), 128);
  EXPECT_EQ(I32({3}).bytes(), 12);
  EXPECT_EQ(F32({2, 16}).ToString(), "f32[2, 16]");
  EXPECT_EQ(TensorType().ToString(), "f32[]");
  EXPECT_NE(F32({2}), I32({2}));
  EXPECT_EQ(F32({2}), F32({2}));
}

}  // namespace
}  // namespace plumb
