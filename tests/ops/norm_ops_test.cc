// SPDX-License-Identifier: Apache-2.0
// Properties of norms that op_cases_norm.cc cannot express: bits equal to those of separate ops,
// statistics, rejected operands, failures of plugins.
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/ops.h"
#include "tests/kernels/simd_targets.h"
#include "tests/ops/norm_cases.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/op_test_util.h"
#include "tests/ops/tanh_norm_plugin.h"

namespace plumb {
namespace {

using testing::DoubleNear;
using testing::Each;
using testing::HasSubstr;
using testing::Pointwise;

class NormOpsTest : public testing::Test {
 protected:
  NormOpsTest() { RegisterOps(&registry_); }

  absl::StatusOr<std::vector<ReferenceTensor>> Run(const OpCase& c,
                                                   const std::vector<ReferenceTensor>& inputs,
                                                   int threads = 1, int alias = -1) {
    absl::StatusOr<Graph> graph = BuildCase(registry_, c);
    if (!graph.ok()) return graph.status();
    return RunKernel(*graph, inputs, threads, alias);
  }
  absl::StatusOr<std::vector<ReferenceTensor>> Run(const OpCase& c) {
    return Run(c, MakeInputs(c));
  }
  std::string Refusal(const OpCase& c) { return Run(c).status().ToString(); }

  OpRegistry registry_;
};

// -- The sum before a norm, and the gradient past it

const char* const kRowWise[] = {"layer_norm", "rms_norm", "none", "test.tanh",
                                "test.tanh_residual"};
// One row; rows that are not aligned to cache lines; several chunks, tasks and row blocks.
const std::pair<Shape, int64_t> kShapes[] = {
    {{1, 16}, 16}, {{5, 33}, 33}, {{3, 67, 100}, 100}, {{300, 128}, 64}};

OpCase NormCase(const std::string& op, const std::string& id, std::vector<CaseInput> inputs,
                int64_t dim) {
  const auto attr = MakeNormAttr(id, dim);
  OpCase c;
  c.op = op;
  c.name = id;
  c.inputs = std::move(inputs);
  for (const NormParam& param : attr->instance().params()) {
    c.inputs.push_back(Random(Shape(param.dims), 0.5, 1.5));
  }
  c.attrs = {{"instance", std::shared_ptr<const AttrObject>(attr)}, {"train", true}};
  return c;
}

OpCase SumCase(const Shape& x) {
  OpCase c;
  c.op = "combine";
  c.inputs = {Random(x), Random(x)};
  c.attrs = {{"coefs", std::vector<double>{1, 1}}, {"constant", 0.0}};
  return c;
}

TEST_F(NormOpsTest, AddNormEqualsSumAndNorm) {
  for (const char* id : kRowWise) {
    for (const auto& [x, dim] : kShapes) {
      const OpCase fused = NormCase("add_norm", id, {Random(x), Random(x)}, dim);
      const std::vector<ReferenceTensor> inputs = MakeInputs(fused);
      const auto sum = Run(SumCase(x), {inputs[0], inputs[1]});
      ASSERT_TRUE(sum.ok()) << sum.status();
      std::vector<ReferenceTensor> norm_inputs = {(*sum)[0]};
      norm_inputs.insert(norm_inputs.end(), inputs.begin() + 2, inputs.end());
      const auto norm = Run(NormCase("norm", id, {Random(x)}, dim), norm_inputs);
      ASSERT_TRUE(norm.ok()) << norm.status();
      for (const int alias : {-1, 0, 1}) {
        const auto both = Run(fused, inputs, 4, alias);
        ASSERT_TRUE(both.ok()) << both.status();
        EXPECT_EQ((*both)[0].f, (*sum)[0].f) << id << x.ToString();
        ASSERT_EQ(both->size(), norm->size() + 1);
        for (size_t o = 0; o < norm->size(); ++o) {
          EXPECT_EQ((*both)[o + 1].f, (*norm)[o].f) << id << x.ToString() << " output " << o;
        }
      }
    }
  }
}

TEST_F(NormOpsTest, NormGradWithDsumEqualsGradientAndSum) {
  for (const char* id : kRowWise) {
    for (const auto& [x, dim] : kShapes) {
      const std::shared_ptr<const NormAttr> attr = MakeNormAttr(id, dim);
      const NormInstance& instance = attr->instance();
      const Shape saved = {x.num_elements() / dim, instance.saved_per_row()};
      OpCase fused =
          NormCase("norm_grad", id,
                   {instance.backward_needs_x() ? Random(x) : Absent(),
                    instance.backward_needs_y() ? Random(x, -0.9, 0.9) : Absent(), Random(x),
                    instance.saved_per_row() > 0 ? Random(saved, 0.5, 1.5) : Absent(), Random(x)},
                   dim);
      const std::vector<ReferenceTensor> inputs = MakeInputs(fused);
      OpCase plain = fused;
      plain.inputs[4] = Absent();
      const std::vector<ReferenceTensor> plain_inputs = MakeInputs(plain);
      const auto gradient = Run(plain, plain_inputs);
      ASSERT_TRUE(gradient.ok()) << gradient.status();
      const auto sum = Run(SumCase(x), {inputs[4], (*gradient)[0]});
      ASSERT_TRUE(sum.ok()) << sum.status();
      for (const int alias : {-1, 0}) {
        const auto both = Run(fused, inputs, 4, alias);
        ASSERT_TRUE(both.ok()) << both.status();
        EXPECT_EQ((*both)[0].f, (*sum)[0].f) << id << x.ToString() << " alias " << alias;
        for (size_t o = 1; o < gradient->size(); ++o) {
          EXPECT_EQ((*both)[o].f, (*gradient)[o].f) << id << x.ToString() << " output " << o;
        }
      }
    }
  }
}

// -- Fewer chunks on request (ABI 1.1)

// test.tanh with at most `max` chunks. It counts the places to which it added gradients.
struct FewChunks {
  static inline uint32_t max = 0;
  static inline std::mutex mutex;
  static inline std::set<const void*> places;

  static std::shared_ptr<const NormAttr> Attr(uint32_t max_chunks, int64_t dim) {
    static const plumb_norm_plugin table = [] {
      plumb_norm_plugin copy = *TanhNorm();
      copy.layout = [](const plumb_norm_instance* instance, plumb_norm_layout* out) {
        const plumb_status status = TanhNorm()->layout(instance, out);
        if (PLUMB_HAS(plumb_norm_layout, out, max_chunks)) out->max_chunks = max;
        return status;
      };
      copy.backward = [](const plumb_norm_instance* instance, const plumb_norm_call* call,
                         int64_t r0, int64_t r1) {
        {
          const std::lock_guard<std::mutex> lock(mutex);
          places.insert(call->dparams[1]);
        }
        return TanhNorm()->backward(instance, call, r0, r1);
      };
      return copy;
    }();
    static const NormPlugin* const plugin = NormPlugin::Create(&table, "").value().release();
    max = max_chunks;
    places.clear();
    return std::make_shared<NormAttr>(plugin->Instantiate(dim, {}).value());
  }
};

TEST_F(NormOpsTest, NormGradRespectsMaxChunks) {
  const Shape x = {800, 16};
  std::vector<std::vector<ReferenceTensor>> results;
  for (const uint32_t max : {0, 1, 3, 1000}) {
    OpCase c = NormCase("norm_grad", "test.tanh",
                        {Random(x), Random(x, -0.9, 0.9), Random(x), Absent(), Absent()}, 16);
    c.attrs.Set("instance", std::shared_ptr<const AttrObject>(FewChunks::Attr(max, 16)));
    const auto got = Run(c, MakeInputs(c), 4);
    ASSERT_TRUE(got.ok()) << got.status();
    const size_t places = FewChunks::places.size();
    if (max == 1 || max == 3) {
      EXPECT_LE(places, max);
    } else {
      EXPECT_GT(places, 40u) << max;
    }
    results.push_back(*got);
  }
  for (size_t i = 1; i < results.size(); ++i) {
    EXPECT_EQ(results[i][0].f, results[0][0].f) << "dx does not depend on chunks";
    EXPECT_THAT(results[i][2].f, Pointwise(DoubleNear(1e-3), results[0][2].f));
  }
}

// -- Statistics over rows

TEST_F(NormOpsTest, CrossNormNormalizesColumnsAndMovesItsRunningStatistics) {
  const int64_t rows = 700, dim = 3;
  std::vector<double> values;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < dim; ++j) {
      values.push_back(static_cast<double>(j + 1) * ((r % 2 == 0 ? 1.0 : -1.0) + 2));
    }
  }
  OpCase c = NormCase("cross_norm", "test.batch", {Values({rows, dim}, values), Random({48})}, dim);
  c.attrs = {{"instance", c.attrs.GetObject("instance")}};
  std::vector<ReferenceTensor> inputs = MakeInputs(c);
  std::fill(inputs[1].f.begin(), inputs[1].f.end(), 1.0);  // mean, variance, number of backward
                                                           // calls
  std::fill(inputs[2].f.begin(), inputs[2].f.end(), 1.0);  // gain
  std::fill(inputs[3].f.begin(), inputs[3].f.end(), 0.0);  // bias
  const auto outputs = Run(c, inputs, 4);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  // Columns of mean 2 (j + 1) and variance (j + 1)^2.
  for (int64_t r = 0; r < rows; ++r) {
    EXPECT_NEAR((*outputs)[0].f[static_cast<size_t>(r * dim)], r % 2 == 0 ? 1 : -1, 1e-3);
  }
  const std::vector<double>& state = (*outputs)[1].f;
  ASSERT_EQ(state.size(), 48u);
  for (size_t j = 0; j < 3; ++j) {
    const double scale = static_cast<double>(j) + 1;
    EXPECT_NEAR(state[j], 1 + 0.25 * (2 * scale - 1), 1e-5);
    EXPECT_NEAR(state[16 + j], 1 + 0.25 * (scale * scale - 1), 1e-5);
  }
  EXPECT_EQ(state[32], 1);  // forward counts no backward calls

  c.op = "cross_norm_eval";
  const auto evaluated = Run(c, inputs, 4);
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  ASSERT_EQ(evaluated->size(), 1u);
  // The running mean and variance are 1.
  EXPECT_NEAR((*evaluated)[0].f[1], (values[1] - 1) / std::sqrt(1.001), 1e-5);
}

TEST_F(NormOpsTest, CrossNormMayTakeStatisticsInEvaluation) {
  const OpCase training =
      NormCase("cross_norm", "test.batch_eval", {Random({300, 5}), Random({16})}, 5);
  OpCase evaluation = training;
  evaluation.op = "cross_norm_eval";
  const std::vector<ReferenceTensor> inputs = MakeInputs(training);
  const auto trained = Run(training, inputs);
  const auto evaluated = Run(evaluation, inputs, 4);
  ASSERT_TRUE(trained.ok() && evaluated.ok()) << trained.status() << evaluated.status();
  EXPECT_EQ((*evaluated)[0].f, (*trained)[0].f);
  EXPECT_EQ((*trained)[1].f, inputs[1].f);  // nothing to keep
  ASSERT_EQ(trained->size(), 4u);           // y, state, call_saved, saved
}

TEST_F(NormOpsTest, CrossNormGradUpdatesTheState) {
  const OpCase c = NormCase(
      "cross_norm_grad", "test.batch",
      {Random({300, 4}), Absent(), Random({300, 4}), Random({48}), Random({16}), Absent()}, 4);
  std::vector<ReferenceTensor> inputs = MakeInputs(c);
  inputs[3].f[32] = 7;
  const auto outputs = Run(c, inputs);  // also checks that inputs do not change
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ((*outputs)[1].f[32], 8);
  inputs[3].f[32] = 8;
  EXPECT_EQ((*outputs)[1].f, inputs[3].f);
}

TEST_F(NormOpsTest, EachKindOfNormHasItsOps) {
  EXPECT_THAT(Refusal(NormCase("norm", "test.batch", {Random({3, 4})}, 4)),
              HasSubstr("its op is cross_norm"));
  EXPECT_THAT(Refusal(NormCase("add_norm", "test.batch", {Random({3, 4}), Random({3, 4})}, 4)),
              HasSubstr("its op is cross_norm"));
  EXPECT_THAT(Refusal(NormCase("cross_norm", "rms_norm", {Random({3, 4}), Random({16})}, 4)),
              HasSubstr("its op is norm"));
  EXPECT_THAT(Refusal(NormCase("cross_norm", "test.batch", {Random({3, 4}), Random({47})}, 4)),
              HasSubstr("state is f32[47], must be f32[48]"));
  EXPECT_THAT(Refusal(NormCase("add_norm", "rms_norm", {Random({3, 4}), Random({4, 4})}, 4)),
              HasSubstr("res"));
}

// -- Wrong behaviour of plugins

OpCase TanhNormCase(const std::string& id, Shape x, int64_t dim) {
  OpCase c;
  c.op = "norm";
  c.inputs = {Random(x), Random(Shape(absl::Span<const int64_t>())), Random({dim})};
  c.attrs = {{"instance", std::shared_ptr<const AttrObject>(MakeNormAttr(id, dim))},
             {"train", true}};
  return c;
}

TEST_F(NormOpsTest, NormSavesNothingOutsideOfTraining) {
  for (const char* id : {"layer_norm", "rms_norm", "none", "test.tanh"}) {
    const auto attr = MakeNormAttr(id, 33);
    OpCase c;
    c.op = "norm";
    c.name = id;
    c.inputs = {Random({2, 67, 66})};
    for (const NormParam& param : attr->instance().params()) {
      c.inputs.push_back(Random(Shape(param.dims)));
    }
    c.attrs = {{"instance", std::shared_ptr<const AttrObject>(attr)}, {"train", false}};
    ExpectKernelMatchesReference(registry_, c);
    const auto outputs = Run(c);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(outputs->size(), 1u);
  }
}

TEST_F(NormOpsTest, NormGradRequiresSavedValues) {
  const auto attr = MakeNormAttr("rms_norm", 16);
  ASSERT_GT(attr->instance().saved_per_row(), 0);
  OpCase c;
  c.op = "norm";
  c.inputs = {Random({7, 16})};
  for (const NormParam& param : attr->instance().params()) {
    c.inputs.push_back(Random(Shape(param.dims)));
  }
  c.attrs = {{"instance", std::shared_ptr<const AttrObject>(attr)}, {"train", false}};
  auto graph = BuildCase(registry_, c);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const Node node = graph->nodes[0];
  GraphBuilder b(&registry_, *std::move(graph));
  const ValueId dy = b.Input("dy", F32({7, 16}));
  node.op->vjp(b, node, {dy}, std::vector<bool>(node.inputs.size(), true));
  EXPECT_THAT(std::move(b).Finish().status().ToString(), HasSubstr("train = true"));
}

TEST_F(NormOpsTest, NormReturnsThePluginsMessage) {
  const OpCase c = TanhNormCase("test.tanh", {300, 100}, 100);
  std::vector<ReferenceTensor> inputs = MakeInputs(c);
  inputs[0].f[40 * 100 + 7] = inputs[0].f[290 * 100] = std::numeric_limits<double>::quiet_NaN();
  for (const int threads : {1, 4}) {
    const std::string text = Run(c, inputs, threads).status().ToString();
    EXPECT_THAT(text, HasSubstr("test.tanh"));
    EXPECT_THAT(text, HasSubstr("row 40 is not a number"));
  }
}

TEST_F(NormOpsTest, NormReferenceFallsBackToF32) {
  const OpCase with = TanhNormCase("test.tanh", {9, 6}, 6);
  const OpCase without = TanhNormCase("test.tanh_f32", {9, 6}, 6);
  const std::vector<ReferenceTensor> inputs = MakeInputs(with);
  std::vector<std::vector<double>> results;
  for (const OpCase* c : {&with, &without}) {
    const auto graph = BuildCase(registry_, *c);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto values =
        RunReference(*graph, {{"in0", inputs[0]}, {"in1", inputs[1]}, {"in2", inputs[2]}});
    ASSERT_TRUE(values.ok()) << values.status();
    results.push_back((*values)[static_cast<size_t>(graph->nodes[0].outputs[0])].f);
  }
  EXPECT_NE(results[0], results[1]);
  EXPECT_THAT(results[1], Pointwise(DoubleNear(1e-6), results[0]));
}

TEST_F(NormOpsTest, NormNamesTheWrongOperand) {
  OpCase c = TanhNormCase("test.tanh", {9, 6}, 6);
  c.inputs[2] = Random({5});
  EXPECT_THAT(Refusal(c), HasSubstr("parameter shift"));
  c = TanhNormCase("test.tanh", {9, 7}, 6);
  EXPECT_THAT(Refusal(c), HasSubstr("is not a multiple of the 6"));
  c = TanhNormCase("test.tanh", {9, 6}, 6);
  c.inputs.pop_back();
  EXPECT_THAT(Refusal(c), HasSubstr("has 2 parameters"));
}

}  // namespace
}  // namespace plumb
