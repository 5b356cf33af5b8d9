// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/newton_schulz.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/rng.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size(), 0));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < b.size(); ++k) {
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

Matrix Transposed(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  }
  return t;
}

// Orthogonalizes as described in Muon's publication.
Matrix Orthogonalized(Matrix g, int steps) {
  const bool is_tall = g.size() > g[0].size();
  Matrix x = is_tall ? Transposed(g) : g;
  double square = 0;
  for (const auto& row : x) {
    for (const double v : row) square += v * v;
  }
  for (auto& row : x) {
    for (double& v : row) v /= std::sqrt(square) + 1e-7;
  }
  for (int s = 0; s < steps; ++s) {
    const Matrix gram = Product(x, Transposed(x)), square_of_gram = Product(gram, gram);
    Matrix factor = gram;
    for (size_t i = 0; i < gram.size(); ++i) {
      for (size_t j = 0; j < gram.size(); ++j) {
        factor[i][j] = -4.7750 * gram[i][j] + 2.0315 * square_of_gram[i][j];
      }
    }
    const Matrix product = Product(factor, x);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < x[0].size(); ++j) x[i][j] = 3.4445 * x[i][j] + product[i][j];
    }
  }
  return is_tall ? Transposed(x) : x;
}

Matrix RandomMatrix(int64_t rows, int64_t columns) {
  const RngStream stream(3, "matrix");
  Matrix m(static_cast<size_t>(rows), std::vector<double>(static_cast<size_t>(columns)));
  uint64_t draw = 0;
  for (auto& row : m) {
    for (double& v : row) v = static_cast<float>(stream.Normal(draw++));
  }
  return m;
}

class NewtonSchulzTest : public ::testing::Test {
 protected:
  NewtonSchulzTest() { RegisterOps(&ops_); }
  OpRegistry ops_;
};

TEST_F(NewtonSchulzTest, MatchesTheIteration) {
  const std::vector<Shape> shapes = {Shape({1, 1}),   Shape({5, 3}),   Shape({3, 5}),
                                     Shape({16, 16}), Shape({96, 33}), Shape({64, 192})};
  for (const int steps : {1, 5}) {
    const auto newton_schulz = *NewtonSchulz::Create(ops_, shapes, steps);
    newton_schulz->Allocate();
    for (const Shape& shape : shapes) {
      const Matrix g = RandomMatrix(shape[0], shape[1]), want = Orthogonalized(g, steps);
      std::vector<float> first;
      for (const int threads : {1, 2, 4}) {
        float* to = newton_schulz->input();
        for (const auto& row : g) {
          for (const double v : row) *to++ = static_cast<float>(v);
        }
        ASSERT_TRUE(newton_schulz->Run(shape, threads).ok());
        const float* const y = newton_schulz->output();
        const std::vector<float> got(y, y + shape.num_elements());
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << threads;
      }
      for (size_t i = 0; i < want.size(); ++i) {
        for (size_t j = 0; j < want[0].size(); ++j) {
          ASSERT_NEAR(first[i * want[0].size() + j], want[i][j], 2e-5) << shape.ToString();
        }
      }
    }
  }
}

// Singular values of the result are between 0.68 and 1.13. So are the roots of the diagonal of the
// Gram matrix if the matrix is far from square, because its singular values are close to each other
// from the start.
TEST_F(NewtonSchulzTest, MakesRowsNearlyOrthonormal) {
  const Shape shape({8, 512});
  const auto newton_schulz = *NewtonSchulz::Create(ops_, {shape}, 5);
  newton_schulz->Allocate();
  float* to = newton_schulz->input();
  for (const auto& row : RandomMatrix(shape[0], shape[1])) {
    for (const double v : row) *to++ = static_cast<float>(v);
  }
  ASSERT_TRUE(newton_schulz->Run(shape, 1).ok());
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t j = 0; j < 8; ++j) {
      double dot = 0;
      for (int64_t k = 0; k < 512; ++k) {
        dot += static_cast<double>(newton_schulz->output()[i * 512 + k]) *
               static_cast<double>(newton_schulz->output()[j * 512 + k]);
      }
      if (i == j) {
        EXPECT_GT(std::sqrt(dot), 0.68);
        EXPECT_LT(std::sqrt(dot), 1.2);
      } else {
        EXPECT_LT(std::fabs(dot), 0.3);
      }
    }
  }
}

TEST_F(NewtonSchulzTest, KeepsZeros) {
  const Shape shape({4, 6});
  const auto newton_schulz = *NewtonSchulz::Create(ops_, {shape}, 5);
  newton_schulz->Allocate();
  std::fill_n(newton_schulz->input(), 24, 0.0f);
  ASSERT_TRUE(newton_schulz->Run(shape, 1).ok());
  for (int i = 0; i < 24; ++i) EXPECT_EQ(newton_schulz->output()[i], 0);
}

}  // namespace
}  // namespace plumb
