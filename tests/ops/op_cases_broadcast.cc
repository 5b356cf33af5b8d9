// SPDX-License-Identifier: Apache-2.0
// Cases of the ops of formulas: products and sums of operands of different widths, functions of
// each element, parts of the channels, dropout.
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/ops/op_cases.h"

namespace plumb {
namespace {

Attrs Size(int64_t size) { return Attrs({{"size", size}}); }

// Returns an operand of which only the type matters.
CaseInput Like(Shape shape) {
  CaseInput input = Random(std::move(shape));
  input.constant = true;
  return input;
}

void AddProducts(std::vector<OpCase>* cases) {
  // Width of each operand; a vector if it has no rows.
  struct Widths {
    int64_t a, b;
    bool a_has_rows, b_has_rows;
  };
  for (const Widths w : {Widths{36, 1, true, true},
                         {36, 4, true, true},
                         {36, 12, true, true},
                         {1, 36, true, false},
                         {4, 36, true, true},
                         {1, 1, true, true},
                         {36, 36, false, true},
                         {3, 36, false, true},
                         {66, 33, true, true}}) {
    const auto input = [](int64_t width, bool rows) {
      return rows ? Random({2, 5, width}) : Random({width});
    };
    const std::string name = absl::StrCat(w.a_has_rows ? "rows of " : "", w.a, " by ",
                                          w.b_has_rows ? "rows of " : "", w.b);
    AddCase(cases, "mul", name, {input(w.a, w.a_has_rows), input(w.b, w.b_has_rows)});
  }
  AddCase(cases, "mul", "many rows by scalars", {Random({3, 201, 64}), Random({3, 201, 1})});
  for (const int64_t b : {1, 4, 12, 36}) {
    for (const int64_t size : {1, 4, 36}) {
      const std::string name = absl::StrCat("rows of ", b, " to ", size);
      AddCase(cases, "mul_reduce", name, {Random({2, 5, 36}), Random({2, 5, b})}, Size(size));
      AddCase(cases, "row_dot", name, {Random({2, 5, 36}), Random({2, 5, b})}, Size(size));
      AddCase(cases, "row_dot", absl::StrCat("vector of ", name), {Random({2, 5, 36}), Random({b})},
              Size(size));
    }
  }
  AddCase(cases, "mul_reduce", "alone", {Random({2, 5, 36})}, Size(12));
  AddCase(cases, "mul_reduce", "many rows alone", {Random({401, 36})}, Size(36));
  AddCase(cases, "mul_reduce", "many rows by scalars", {Random({401, 36}), Random({401, 1})},
          Size(36));
  AddCase(cases, "row_dot", "alone", {Random({2, 5, 36})}, Size(3));
  AddCase(cases, "row_dot", "odd widths", {Random({2, 5, 51}), Random({2, 5, 51})}, Size(3));
  AddCase(cases, "row_dot", "many rows", {Random({3, 201, 100}), Random({100})}, Size(1));
}

void AddWeightedSums(std::vector<OpCase>* cases) {
  const auto coefs = [](std::vector<double> c, double constant = 0) {
    return Attrs({{"coefs", std::move(c)}, {"constant", constant}});
  };
  AddCase(cases, "weighted_sum", "of streams by scalars",
          {Random({2, 5, 17}), Random({1}), Random({2, 5, 17}), Random({2, 5, 1})},
          coefs({1, -0.5}));
  AddCase(cases, "weighted_sum", "the last factor is absent",
          {Random({2, 5, 16}), Random({2, 5, 16}), Random({16})}, coefs({1, 2}, 0.25));
  AddCase(cases, "weighted_sum", "widths",
          {Random({2, 5, 36}), Random({12}), Random({2, 5, 4}), Random({2, 5, 12}), Random({3}),
           Absent()},
          coefs({1, 1, 1}));
  AddCase(cases, "weighted_sum", "of vectors", {Random({36}), Absent(), Random({4}), Random({1})},
          coefs({0.5, 1}));
  AddCase(cases, "weighted_sum", "of scalars of tokens",
          {Random({2, 5, 1}), Random({1}), Random({2, 5, 1})}, coefs({1, 1}));
  std::vector<CaseInput> many;
  std::vector<double> ones;
  for (int i = 0; i < 12; ++i) {
    many.push_back(Random({3, 67, 65}));
    many.push_back(Random({3, 67, 1}));
    ones.push_back(1);
  }
  AddCase(cases, "weighted_sum", "many terms", std::move(many), coefs(ones));

  AddCase(cases, "expand", "a scalar", {Random({1}), Like({2, 5, 17})});
  AddCase(cases, "expand", "heads", {Random({2, 5, 4}), Like({2, 5, 36})});
  AddCase(cases, "expand", "a vector", {Random({17}), Like({2, 5, 17})});
  AddCase(cases, "expand", "to a width", {Random({3}), Like({2, 5, 17})},
          Attrs({{"width", int64_t{6}}}));
  AddCase(cases, "expand", "a vector to a width", {Random({3}), Like({3})},
          Attrs({{"width", int64_t{6}}}));
}

void AddMaps(std::vector<OpCase>* cases) {
  struct Function {
    const char* kind;
    double low, high, number;
  };
  for (const Function f : {Function{"exp", -4, 4, 0},
                           {"log", 0.1, 9, 0},
                           {"sqrt", 0.1, 9, 0},
                           {"abs", -2, 2, 0},
                           {"reciprocal", 0.2, 4, 0},
                           {"cos", -9, 9, 0},
                           {"sin", -9, 9, 0},
                           {"pow", 0.2, 2, -1.5},
                           {"pow", -2, 2, 3},
                           {"max", -2, 2, 0.25},
                           {"min", -2, 2, -0.25},
                           {"floor", -2, 2, 0},
                           {"<", -2, 2, 0.5},
                           {"<=", -2, 2, 0},
                           {">", -2, 2, 0},
                           {">=", -2, 2, 0},
                           {"==", -2, 2, 0},
                           {"!=", -2, 2, 0}}) {
    const Attrs attrs({{"kind", std::string(f.kind)}, {"number", f.number}});
    const std::string name = absl::StrCat(f.kind, " ", f.number);
    AddCase(cases, "map", name, {Random({2, 5, 17}, f.low, f.high)}, attrs);
    const bool is_step = f.kind[0] < 'a' || f.kind == std::string("floor");
    cases->back().inputs[0].constant = is_step;
    AddCase(cases, "map_grad", name, {Random({2, 5, 17}, f.low, f.high), Random({2, 5, 17})},
            attrs);
  }
  AddCase(cases, "map", "== at it", {Values({4}, {0, 1, 0, -1})},
          Attrs({{"kind", std::string("==")}}));
  cases->back().inputs[0].constant = true;
  AddCase(cases, "map", "exp many", {Random({129, 333})}, Attrs({{"kind", std::string("exp")}}));
  for (const bool max : {true, false}) {
    const Attrs attrs({{"max", max}});
    AddCase(cases, "extremum", max ? "max" : "min", {Random({2, 5, 17}), Random({2, 5, 17})},
            attrs);
    AddCase(cases, "extremum_grad", max ? "max, with ties" : "min, with ties",
            {Values({4}, {1, 2, 3, -4}), Values({4}, {1, 3, 2, -4}), Random({4})}, attrs);
  }
}

void AddParts(std::vector<OpCase>* cases) {
  AddCase(cases, "concat", "two", {Random({2, 5, 3}), Random({2, 5, 14})});
  AddCase(cases, "concat", "vectors", {Random({1}), Random({2}), Random({1})});
  AddCase(cases, "concat", "vectors to a matrix", {Random({2}), Random({2}), Random({2})},
          Attrs({{"dims", std::vector<double>{3, 2}}}));
  AddCase(cases, "concat", "many rows", {Random({3, 201, 33}), Random({3, 201, 1})});
  OpCase split;
  split.op = "split";
  split.name = "of rows";
  split.inputs = {Random({2, 5, 9})};
  split.attrs = Attrs({{"widths", std::vector<double>{2, 4, 3}}, {"flat", false}});
  split.differentiated_outputs = {0, 1, 2};
  cases->push_back(split);
  split.name = "one part is of use";
  split.differentiated_outputs = {1};
  cases->push_back(split);
  split.name = "of a matrix";
  split.inputs = {Random({3, 3})};
  split.attrs.Set("flat", true);
  cases->push_back(split);
  OpCase stop;
  stop.op = "stop";
  stop.name = "rows";
  stop.inputs = {Random({2, 5, 17})};
  stop.differentiated_outputs = {};
  cases->push_back(stop);
}

void AddDrop(std::vector<OpCase>* cases) {
  const CaseInput random = Ints({6}, {7, -1, 3, 0, 5, 9});
  for (const double p : {0.0, 0.3, 0.9}) {
    AddCase(cases, "drop", absl::StrCat("p ", p), {Random({2, 5, 17}), random},
            Attrs({{"p", p}, {"path", false}, {"name", std::string("layers.0.drop")}}));
  }
  AddCase(cases, "drop", "of sequences", {Random({8, 5, 17}), random},
          Attrs({{"p", 0.5}, {"path", true}, {"name", std::string("layers.0.drop_path")}}));
  AddCase(cases, "drop", "many", {Random({129, 333}), random},
          Attrs({{"p", 0.5}, {"path", false}, {"name", std::string("a")}}));
}

}  // namespace

std::vector<OpCase> BroadcastOpCases() {
  std::vector<OpCase> cases;
  AddProducts(&cases);
  AddWeightedSums(&cases);
  AddMaps(&cases);
  AddParts(&cases);
  AddDrop(&cases);
  // Repeats the cases in bf16: operands with rows are bf16, vectors stay f32.
  const size_t count = cases.size();
  for (size_t i = 0; i < count; ++i) {
    std::vector<size_t> with_rows;
    for (size_t k = 0; k < cases[i].inputs.size(); ++k) {
      const CaseInput& input = cases[i].inputs[k];
      const bool is_float = !input.absent && input.ints.empty();
      if (is_float && input.type.shape.rank() > 1) with_rows.push_back(k);
    }
    const std::string& op = cases[i].op;
    if (!with_rows.empty() && !cases[i].attrs.GetBool("flat", false) && op != "map_grad") {
      cases.push_back(InBf16(cases[i], with_rows));
    }
  }
  return cases;
}

}  // namespace plumb
