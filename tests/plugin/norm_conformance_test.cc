// SPDX-License-Identifier: Apache-2.0
// Tests every row-wise norm in the build's plugin directory, with its default attributes and with
// each of its bools negated. A new norm is tested as soon as its file is there. OtherAttributes()
// lists further attributes. Norms that use plumb/norm_rows.h are also tested as compiled for lower
// instruction sets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/plugin/registry.h"
#include "tests/plugin/built_plugins.h"
#include "tests/plugin/norm_harness.h"
#include "tests/plugin/norm_references.h"

namespace plumb {
namespace {

constexpr int64_t kDims[] = {1, 2, 3, 7, 8, 16, 17, 64, 100, 768};
constexpr int64_t kRows[] = {0, 1, 3, 7};

struct Case {
  std::string id;
  NormAttrs attrs;
  int level;         // PLUMB_ROWS_MAX_LEVEL; 3: no restriction
  std::string name;  // valid as a name in gtest
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<std::pair<std::string, NormAttrs>> OtherAttributes() {
  return {{"scale_norm", {{"eps", 1.0}}},    {"l2_norm", {{"eps", 1.0}, {"scale", 3.0}}},
          {"p_rms_norm", {{"p", 0.5}}},      {"p_rms_norm", {{"p", 1.0}}},
          {"group_norm", {{"groups", 4.0}}}, {"group_norm", {{"affine", false}, {"groups", 2.0}}}};
}

std::vector<Case> GetCases(const NormPlugin& plugin, int level) {
  std::string word = plugin.id();
  std::replace(word.begin(), word.end(), '.', '_');
  const std::string suffix = level == 3 ? "" : absl::StrCat("_level_", level);
  std::vector<Case> cases = {{plugin.id(), {}, level, word + suffix}};
  for (const NormAttrSpec& spec : plugin.attrs()) {
    if (spec.type != NormAttrType::kBool) continue;
    const bool negated = !std::get<bool>(spec.default_value);
    cases.push_back({plugin.id(),
                     {{spec.name, negated}},
                     level,
                     absl::StrCat(word, negated ? "_with_" : "_without_", spec.name, suffix)});
  }
  int number = 0;
  for (const auto& [id, attrs] : OtherAttributes()) {
    ++number;
    if (id != plugin.id()) continue;
    cases.push_back({id, attrs, level, absl::StrCat(word, "_otherwise_", number, suffix)});
  }
  return cases;
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const int level : {0, 1, 2, 3}) {
    for (const NormPlugin* plugin : BuiltPlugins(level).Loaded()) {
      if (plugin->cross_row()) continue;
      for (Case& each : GetCases(*plugin, level)) cases.push_back(std::move(each));
    }
  }
  return cases;
}

class NormConformanceTest : public ::testing::TestWithParam<Case> {
 protected:
  // Returns those of kDims that the norm accepts. For example, the number of groups must divide
  // dim.
  std::vector<int64_t> Dims() const {
    std::vector<int64_t> dims;
    for (const int64_t dim : kDims) {
      const absl::Status status = plugin_->Instantiate(dim, GetParam().attrs).status();
      EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
      if (status.ok()) dims.push_back(dim);
    }
    EXPECT_THAT(dims, ::testing::IsSupersetOf({8, 16, 64, 100, 768}));
    return dims;
  }
  std::shared_ptr<const NormInstance> Make(int64_t dim) const {
    auto instance = plugin_->Instantiate(dim, GetParam().attrs);
    EXPECT_TRUE(instance.ok()) << instance.status();
    return instance.value();
  }
  const NormPlugin* plugin_ = FindBuilt(GetParam().id, GetParam().level);
};

TEST_P(NormConformanceTest, AgreesWithItsEquation) {
  if (!plugin_->has_f64()) GTEST_SKIP();
  for (const int64_t dim : Dims()) {
    const auto instance = Make(dim);
    for (const int64_t rows : kRows) {
      NormHarness<double> harness(*instance, rows);
      NormValues<double> v = harness.Random(1);
      harness.Forward(&v, true, 0, rows);
      for (int64_t r = 0; r < rows; ++r) {
        const std::vector<double> x(v.x.begin() + r * dim, v.x.begin() + (r + 1) * dim);
        const std::vector<double> want = ReferenceRow(GetParam().id, GetParam().attrs, x, v.params);
        if (want.empty()) GTEST_SKIP() << "no reference for " << GetParam().id;
        for (int64_t i = 0; i < dim; ++i) {
          ASSERT_NEAR(v.y[r * dim + i], want[i], 1e-11 * (1 + std::fabs(want[i])))
              << "dim " << dim << " row " << r << " element " << i;
        }
      }
    }
  }
}

// -- Gradients
// ---------------------------------------------------------------------------------------------

// Returns the loss sum(dy * y), whose gradient backward() computes, over row `row` or, if `row` is
// negative, over all rows.
double Loss(NormHarness<double>* harness, NormValues<double>* v, int64_t row, int64_t rows) {
  const int64_t r0 = row < 0 ? 0 : row, r1 = row < 0 ? rows : row + 1;
  harness->Forward(v, false, r0, r1);
  const size_t dim = v->x.size() / static_cast<size_t>(rows);
  double loss = 0;
  for (size_t i = dim * r0; i < dim * r1; ++i) loss += v->dy[i] * v->y[i];
  return loss;
}

double CentralDifference(NormHarness<double>* harness, NormValues<double>* v, double* at,
                         int64_t row, int64_t rows) {
  constexpr double kStep = 1e-6;
  const double there = *at;
  *at = there + kStep;
  const double above = Loss(harness, v, row, rows);
  *at = there - kStep;
  const double below = Loss(harness, v, row, rows);
  *at = there;
  return (above - below) / (2 * kStep);
}

TEST_P(NormConformanceTest, GradientsAgreeWithCentralDifferences) {
  if (!plugin_->has_f64()) GTEST_SKIP();
  for (const int64_t dim : Dims()) {
    const auto instance = Make(dim);
    for (const int64_t rows : kRows) {
      if (rows == 0) continue;
      NormHarness<double> harness(*instance, rows);
      NormValues<double> v = harness.Random(2);
      harness.Run(&v);
      const NormValues<double> got = v;
      // All elements of a narrow row are checked; of a wide one the first, the last, and some
      // between.
      const int64_t step = std::max<int64_t>(1, dim / 13);
      for (int64_t i = 0; i < dim; i = (i + step < dim || i == dim - 1) ? i + step : dim - 1) {
        for (int64_t r = 0; r < rows; ++r) {
          const size_t at = r * dim + i;
          const double want = CentralDifference(&harness, &v, &v.x[at], r, rows);
          ASSERT_NEAR(got.dx[at], want, 1e-6 + 1e-4 * std::fabs(want))
              << "dx, dim " << dim << " row " << r << " element " << i;
        }
      }
      for (size_t p = 0; p < v.params.size(); ++p) {
        const size_t size = v.params[p].size(), param_step = std::max<size_t>(1, size / 13);
        for (size_t i = 0; i < size; i += param_step) {
          const double want = CentralDifference(&harness, &v, &v.params[p][i], -1, rows);
          ASSERT_NEAR(got.dparams[p][i], want, 1e-6 + 1e-4 * std::fabs(want))
              << "d" << instance->params()[p].name << ", dim " << dim << " element " << i;
        }
      }
    }
  }
}

// -- float
// -------------------------------------------------------------------------------------------------

template <class T>
double Largest(const std::vector<T>& values) {
  double largest = 1;
  for (const T v : values) largest = std::max(largest, std::fabs(static_cast<double>(v)));
  return largest;
}

template <class A, class B>
void ExpectNear(const std::vector<A>& got, const std::vector<B>& want, const std::string& what,
                double scale = 1) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const double tolerance = 1e-5 * std::max(scale, Largest(want));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got[i]), static_cast<double>(want[i]), tolerance)
        << what << " element " << i;
  }
}

TEST_P(NormConformanceTest, FloatAgreesWithDouble) {
  if (!plugin_->has_f64()) GTEST_SKIP();
  for (const int64_t dim : Dims()) {
    const auto instance = Make(dim);
    for (const int64_t rows : kRows) {
      NormHarness<float> narrow(*instance, rows);
      NormHarness<double> wide(*instance, rows);
      NormValues<float> f = narrow.Random(3);
      NormValues<double> d = wide.Random(3);
      narrow.Run(&f);
      wide.Run(&d);
      const std::string where = absl::StrCat("dim ", dim, " rows ", rows, " ");
      ExpectNear(f.y, d.y, where + "y");
      // dx is a difference of terms as large as dy times the factor of the row. If that factor is
      // large, forward() has saved it.
      ExpectNear(f.dx, d.dx, where + "dx", Largest(d.saved));
      for (size_t p = 0; p < f.dparams.size(); ++p) {
        ExpectNear(f.dparams[p], d.dparams[p], where + "d" + instance->params()[p].name);
      }
    }
  }
}

TEST_P(NormConformanceTest, AccumulatesDparamsAndOptionallyDx) {
  for (const int64_t dim : Dims()) {
    const auto instance = Make(dim);
    NormHarness<float> harness(*instance, 3);
    NormValues<float> once = harness.Random(4);
    harness.Run(&once);

    NormValues<float> again = harness.Random(4);
    again.y = once.y;
    again.saved = once.saved;
    again.dx.assign(again.dx.size(), 0.5f);
    for (auto& gradient : again.dparams) gradient.assign(gradient.size(), 2);
    harness.Backward(&again, true, 0, 3);
    NormValues<float> want = once;
    for (float& value : want.dx) value += 0.5f;
    for (auto& gradient : want.dparams) {
      for (float& value : gradient) value += 2;
    }
    ExpectNear(again.dx, want.dx, absl::StrCat("dx, dim ", dim));
    for (size_t p = 0; p < want.dparams.size(); ++p) {
      ExpectNear(again.dparams[p], want.dparams[p], absl::StrCat("dparam, dim ", dim));
    }

    // Without the flag dx is not read.
    again = harness.Random(4);
    again.y = once.y;
    again.saved = once.saved;
    again.dx.assign(again.dx.size(), std::numeric_limits<float>::quiet_NaN());
    harness.Backward(&again, false, 0, 3);
    EXPECT_EQ(again.dx, once.dx);
  }
}

// -- The same bits in any range and at any place
// -------------------------------------------------------------

template <class T>
std::vector<T> Rows(const std::vector<T>& values, int64_t rows, int64_t r0, int64_t r1) {
  const int64_t width = static_cast<int64_t>(values.size()) / rows;
  return std::vector<T>(values.begin() + r0 * width, values.begin() + r1 * width);
}

TEST_P(NormConformanceTest, RowsDoNotDependOnTheirRange) {
  constexpr int64_t kAll = 7;
  const Placing placings[] = {{0, 0, false}, {3, 1, true}, {16, 0, false}, {1, 3, false}};
  for (const int64_t dim : Dims()) {
    const auto instance = Make(dim);
    NormHarness<float> harness(*instance, kAll);
    NormValues<float> whole = harness.Random(5);
    harness.Run(&whole);
    for (const Placing placing : placings) {
      NormHarness<float> other(*instance, kAll, placing);
      for (const auto& [r0, r1] :
           {std::pair<int64_t, int64_t>{0, 7}, {0, 1}, {2, 5}, {6, 7}, {4, 4}}) {
        NormValues<float> part = other.Random(5);
        other.Forward(&part, true, r0, r1);
        other.Backward(&part, false, r0, r1);
        EXPECT_EQ(Rows(part.y, kAll, r0, r1), Rows(whole.y, kAll, r0, r1)) << "y, dim " << dim;
        EXPECT_EQ(Rows(part.dx, kAll, r0, r1), Rows(whole.dx, kAll, r0, r1)) << "dx, dim " << dim;
        if (instance->saved_per_row() > 0) {
          EXPECT_EQ(Rows(part.saved, kAll, r0, r1), Rows(whole.saved, kAll, r0, r1))
              << "dim " << dim;
        }
        // Rows outside the range do not change.
        EXPECT_EQ(Rows(part.y, kAll, 0, r0), std::vector<float>(r0 * dim, 0.0f));
        EXPECT_EQ(Rows(part.dx, kAll, r1, kAll), std::vector<float>((kAll - r1) * dim, 0.0f));
      }
    }
  }
}

TEST_P(NormConformanceTest, EvaluationGivesTheBitsOfTraining) {
  for (const int64_t dim : Dims()) {
    const auto instance = Make(dim);
    NormHarness<float> harness(*instance, 3);
    NormValues<float> train = harness.Random(6), eval = train;
    harness.Forward(&train, true, 0, 3);
    harness.Forward(&eval, false, 0, 3);
    EXPECT_EQ(train.y, eval.y) << "dim " << dim;
  }
}

TEST_P(NormConformanceTest, WorksInPlaceIfDeclared) {
  if (!plugin_->in_place()) GTEST_SKIP();
  for (const int64_t dim : Dims()) {
    const auto instance = Make(dim);
    NormHarness<float> harness(*instance, 3);
    NormValues<float> apart = harness.Random(7), together = apart;
    harness.Forward(&apart, true, 0, 3);
    harness.Forward(&together, true, 0, 3, /*in_place=*/true);
    EXPECT_EQ(apart.y, together.y) << "dim " << dim;
  }
}

TEST_P(NormConformanceTest, WritesDxOverDyIfDeclared) {
  if (!plugin_->dx_may_be_dy()) GTEST_SKIP();
  for (const int64_t dim : Dims()) {
    const auto instance = Make(dim);
    NormHarness<float> harness(*instance, 3);
    NormValues<float> apart = harness.Random(8);
    harness.Run(&apart);
    NormValues<float> together = harness.Random(8);
    together.y = apart.y;
    together.saved = apart.saved;
    harness.Backward(&together, false, 0, 3, /*in_place=*/true);
    EXPECT_EQ(apart.dx, together.dx) << "dim " << dim;
  }
}

TEST_P(NormConformanceTest, ANaNStaysInItsRow) {
  for (const int64_t dim : Dims()) {
    const auto instance = Make(dim);
    NormHarness<float> harness(*instance, 3);
    NormValues<float> clean = harness.Random(9), dirty = clean;
    dirty.x[dim + dim / 2] = std::numeric_limits<float>::quiet_NaN();
    harness.Run(&clean);
    harness.Run(&dirty);
    for (const int64_t row : {0, 2}) {
      EXPECT_EQ(Rows(dirty.y, 3, row, row + 1), Rows(clean.y, 3, row, row + 1)) << "dim " << dim;
      EXPECT_EQ(Rows(dirty.dx, 3, row, row + 1), Rows(clean.dx, 3, row, row + 1)) << "dim " << dim;
    }
    EXPECT_TRUE(std::isnan(dirty.y[dim + dim / 2]));
  }
}

TEST_P(NormConformanceTest, StaysFiniteOnRowsOfZerosAndOfOneConstant) {
  for (const int64_t dim : Dims()) {
    const auto instance = Make(dim);
    NormHarness<float> harness(*instance, 2);
    NormValues<float> v = harness.Random(10);
    std::fill_n(v.x.begin(), dim, 0.0f);
    std::fill_n(v.x.begin() + dim, dim, 1234.5f);
    harness.Run(&v);
    for (const std::vector<float>* values : {&v.y, &v.dx}) {
      for (const float value : *values) ASSERT_TRUE(std::isfinite(value)) << "dim " << dim;
    }
  }
}

TEST_P(NormConformanceTest, StaysFiniteOnHugeAndOnTinyRows) {
  for (const int64_t dim : Dims()) {
    const auto instance = Make(dim);
    for (const float scale : {1e15f, 1e-20f}) {
      NormHarness<float> harness(*instance, 2);
      NormValues<float> v = harness.Random(11);
      for (float& value : v.x) value *= scale;
      harness.Run(&v);
      for (const std::vector<float>* values : {&v.y, &v.dx}) {
        for (const float value : *values) {
          ASSERT_TRUE(std::isfinite(value)) << "dim " << dim << " scale " << scale;
        }
      }
    }
  }
}

TEST_P(NormConformanceTest, RefusesAnElementTypeThatItDoesNotOffer) {
  const auto instance = Make(4);
  plumb_norm_call call{};
  call.struct_size = sizeof(call);
  call.dtype = 1u << 9;
  call.dim = 4;
  EXPECT_EQ(instance->Forward(call, 0, 0).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(instance->Backward(call, 0, 0).code(), absl::StatusCode::kUnimplemented);
}

TEST_P(NormConformanceTest, DescribesItself) {
  EXPECT_NE(plugin_->version(), "");
  EXPECT_NE(plugin_->doc(), "");
  for (const NormAttrSpec& spec : plugin_->attrs()) EXPECT_NE(spec.doc, "") << spec.name;
  const auto a = Make(16), b = Make(16);
  EXPECT_EQ(a->ToString(), b->ToString());
  for (const NormParam& param : a->params()) EXPECT_NE(param.doc, "") << param.name;
}

INSTANTIATE_TEST_SUITE_P(Shipped, NormConformanceTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace plumb
