// SPDX-License-Identifier: Apache-2.0
// Cases of the ops on norms: shipped ones and those linked into the tests, which together need
// every operand that exists.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/ops/norm_cases.h"

namespace plumb {
namespace {

// An instance, and operands for it.
struct Norm {
  Norm(const std::string& id, const Shape& x_shape, int64_t dim, const NormAttrs& attrs = {},
       int64_t heads = 0)
      : attr(MakeNormAttr(id, dim, attrs, heads)),
        instance(attr->instance()),
        name(absl::StrCat(id, " ", x_shape.ToString(), " by ", dim)),
        x(x_shape),
        saved({x_shape.num_elements() / dim, instance.saved_per_row()}) {}

  OpCase Case(const std::string& op, std::vector<CaseInput> inputs, double tolerance) const {
    OpCase c;
    c.op = op;
    c.name = name;
    c.inputs = std::move(inputs);
    for (const NormParam& param : instance.params()) {
      c.inputs.push_back(Random(Shape(param.dims), 0.5, 1.5));
    }
    if (instance.two_inputs()) {
      const bool reads = op != "norm_grad" || instance.backward_needs_x2();
      c.inputs.push_back(reads ? Random(x) : Absent());
    }
    if (instance.wants_positions()) {
      std::vector<int32_t> positions;
      for (int64_t t = 0; t < x.num_elements() / x.last(); ++t) {
        positions.push_back(static_cast<int32_t>(t * 5 % 11));
      }
      c.inputs.push_back(Ints(Shape({x[0], x[1]}), std::move(positions)));
    }
    if (instance.wants_step()) {
      CaseInput step = Values({1}, {5.5});
      step.constant = true;
      c.inputs.push_back(std::move(step));
    }
    c.attrs = {{"instance", std::shared_ptr<const AttrObject>(attr)}};
    c.tolerance = tolerance;
    return c;
  }

  std::shared_ptr<const NormAttr> attr;
  const NormInstance& instance;
  std::string name;
  Shape x, saved;
};

void AddCases(const Norm& norm, std::vector<OpCase>* cases) {
  const NormInstance& instance = norm.instance;
  OpCase forward = norm.Case("norm", {Random(norm.x)}, 2e-6);
  forward.attrs.Set("train", true);
  cases->push_back(forward);
  // Without `train` the op saves nothing, and has no gradient if that needs saved values.
  OpCase eval = norm.Case("norm", {Random(norm.x)}, 2e-6);
  eval.name = absl::StrCat(norm.name, " in evaluation");
  eval.differentiated_outputs = {};
  cases->push_back(eval);

  OpCase add = norm.Case("add_norm", {Random(norm.x), Random(norm.x)}, 2e-6);
  OpCase eval_add = add;
  eval_add.name = absl::StrCat(norm.name, " in evaluation");
  eval_add.differentiated_outputs = {};
  cases->push_back(eval_add);
  add.attrs.Set("train", true);
  for (const std::vector<int>& differentiated : {std::vector<int>{0, 1}, {1}, {0}}) {
    // Parameters have no gradient if only the sum has.
    if (differentiated == std::vector<int>{0} && !instance.params().empty()) continue;
    add.name = absl::StrCat(norm.name, " to ", differentiated.size(), differentiated.back());
    add.differentiated_outputs = differentiated;
    cases->push_back(add);
  }

  for (const bool dsum : {false, true}) {
    OpCase grad = norm.Case(
        "norm_grad",
        {instance.backward_needs_x() ? Random(norm.x) : Absent(),
         instance.backward_needs_y() ? Random(norm.x, -0.9, 0.9) : Absent(), Random(norm.x),
         instance.saved_per_row() > 0 ? Random(norm.saved, 0.5, 1.5) : Absent(),
         dsum ? Random(norm.x) : Absent()},
        5e-6);
    grad.name = absl::StrCat(norm.name, dsum ? " and dsum" : "");
    cases->push_back(grad);
  }
}

// Repeats the cases from `first` on in bf16: rows are bf16; parameters, saved values and states are
// not.
void AddInBf16(size_t first, std::vector<OpCase>* cases) {
  const size_t count = cases->size();
  for (size_t i = first; i < count; ++i) {
    const OpCase c = (*cases)[i];
    std::vector<size_t> rows = {0};
    if (c.op == "add_norm") rows = {0, 1};
    if (c.op == "norm_grad") rows = {0, 1, 2, 4};
    if (c.op == "cross_norm_grad") rows = {0, 1, 2};
    const auto attr = std::dynamic_pointer_cast<const NormAttr>(c.attrs.GetObject("instance"));
    if (attr->instance().two_inputs()) {
      const size_t first_param = c.op == "norm" ? 1 : c.op == "add_norm" ? 2 : 5;
      rows.push_back(first_param + attr->instance().params().size());
    }
    cases->push_back(InBf16(c, rows));
  }
}

void AddCrossRowCases(const Norm& norm, std::vector<OpCase>* cases) {
  const NormInstance& instance = norm.instance;
  const CaseInput state = Random({instance.state_elements()}, 0.5, 1.5);
  cases->push_back(norm.Case("cross_norm", {Random(norm.x), state}, 1e-5));
  cases->push_back(norm.Case("cross_norm_eval", {Random(norm.x), state}, 1e-5));

  CaseInput x = Random(norm.x), saved = Absent();
  if (instance.saved_per_row() > 0) {  // the test's norm expects the row's first number
    x.values.resize(static_cast<size_t>(norm.x.num_elements()));
    std::vector<double> first;
    for (size_t e = 0; e < x.values.size(); ++e) {
      x.values[e] = static_cast<double>(e * 37 % 101) / 64 - 0.75;
      if (e % static_cast<size_t>(instance.dim()) == 0) first.push_back(x.values[e]);
    }
    saved = Values(norm.saved, std::move(first));
  }
  cases->push_back(norm.Case("cross_norm_grad",
                             {std::move(x), Absent(), Random(norm.x), state,
                              Random({instance.saved_per_call()}, 0.5, 1.5), std::move(saved)},
                             1e-5));
}

}  // namespace

std::vector<OpCase> NormOpCases() {
  std::vector<OpCase> cases;
  const auto for_all_shapes = [](const auto& add) {
    add(Shape({1, 7, 16}), 16);
    add(Shape({2, 5, 33}), 33);     // two chunks of rows, rows that are not aligned to cache lines
    add(Shape({2, 9, 4 * 8}), 8);   // heads: several rows per token
    add(Shape({3, 67, 100}), 100);  // several tasks
    add(Shape({1, 1, 1}), 1);
  };
  for (const char* id : {"layer_norm", "rms_norm", "none", "test.tanh", "test.tanh_residual"}) {
    const size_t first = cases.size();
    for_all_shapes([&](const Shape& x, int64_t dim) { AddCases(Norm(id, x, dim), &cases); });
    AddInBf16(first, &cases);
  }
  // Features of ABI 1.1: parameters of each head, positions and step, two inputs.
  for (const char* id : {"test.grown", "test.pair"}) {
    const size_t first = cases.size();
    for_all_shapes([&](const Shape& x, int64_t dim) {
      const int64_t heads = x.last() == dim ? 0 : x.last() / dim;
      AddCases(Norm(id, x, dim, {{"aware", true}}, heads), &cases);
    });
    Norm unaware(id, Shape({2, 5, 33}), 33);
    unaware.name += " without context";
    AddCases(unaware, &cases);
    AddInBf16(first, &cases);
  }
  for (const char* id : {"test.batch", "test.batch_eval"}) {
    const size_t first = cases.size();
    for_all_shapes(
        [&](const Shape& x, int64_t dim) { AddCrossRowCases(Norm(id, x, dim), &cases); });
    AddInBf16(first, &cases);
  }
  return cases;
}

}  // namespace plumb
