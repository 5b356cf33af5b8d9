// SPDX-License-Identifier: Apache-2.0
// Cases of the ops of mixtures of experts.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"
#include "runtime/kernels/gemv/quantize.h"
#include "tests/ops/op_cases.h"

namespace plumb {
namespace {

// -- Routers

OpCase Route(const std::string& router, Shape logits, int64_t top_k) {
  OpCase c;
  c.op = "route";
  c.name = absl::StrCat(router, " ", logits.ToString(), " top ", top_k);
  c.inputs = {Random(logits)};
  c.attrs = {{"top_k", top_k}, {"router", router}};
  return c;
}

// Places are compared exactly, so the reference must choose the same experts as the kernel: of
// equal logits the first, even if a whole row is equal.
OpCase TiedRoute(const std::string& router) {
  OpCase c = Route(router, {3, 4}, 2);
  absl::StrAppend(&c.name, " with ties");
  c.inputs = {Values({3, 4}, {1, 2, 2, 2, 0, 0, 0, 0, 3, 1, 3, 1})};
  c.differentiated_outputs = {};  // the choice is not continuous there
  return c;
}

// Adds a correction to the scores. It has no gradient.
OpCase Corrected(OpCase c) {
  absl::StrAppend(&c.name, " corrected");
  CaseInput correction = Random({c.inputs[0].type.shape.last()});
  correction.constant = true;
  c.inputs.push_back(correction);
  return c;
}

OpCase Grouped(OpCase c, int64_t groups, int64_t chosen) {
  absl::StrAppend(&c.name, " from ", chosen, " of ", groups, " groups");
  c.attrs.Set("n_group", groups);
  c.attrs.Set("top_group", chosen);
  return c;
}

// Adds a case and that of its gradient, in f32 and bf16.
void AddWithGradient(const OpCase& c, std::vector<OpCase>* cases) {
  OpCase grad = c;
  grad.op = "route_grad";
  grad.inputs.insert(grad.inputs.begin() + 1,
                     Random(c.inputs[0].type.shape.WithLast(c.attrs.GetInt("top_k"))));
  for (const OpCase& each : {c, grad}) {
    cases->push_back(each);
    cases->push_back(InBf16(each, {0}));
  }
}

void AddRoutes(std::vector<OpCase>* cases) {
  for (const std::string router : {"softmax_of_top_k", "softmax", "sigmoid"}) {
    cases->push_back(Route(router, {7, 4}, 2));
    cases->push_back(Route(router, {1, 1}, 1));
    cases->push_back(Route(router, {2, 5, 6}, 1));
    cases->push_back(Route(router, {5, 3}, 3));     // every token chooses all experts
    cases->push_back(Route(router, {300, 33}, 8));  // several tasks
    cases->push_back(TiedRoute(router));
    OpCase scaled = Route(router, {7, 4}, 2);
    absl::StrAppend(&scaled.name, " scaled");
    scaled.attrs.Set("scale", 2.5);
    AddWithGradient(scaled, cases);

    OpCase corrected = Corrected(Route(router, {9, 6}, 2));
    AddWithGradient(corrected, cases);
    AddWithGradient(Grouped(corrected, 3, 2), cases);
    AddWithGradient(Grouped(Route(router, {9, 6}, 2), 2, 1), cases);
    cases->push_back(Grouped(TiedRoute(router), 2, 1));  // of equal groups the first
    cases->push_back(Grouped(Corrected(Route(router, {300, 32}, 8)), 8, 4));
    cases->push_back(Grouped(Route(router, {5, 3}, 2), 3, 2));  // groups of one expert
    cases->push_back(Grouped(Corrected(Route(router, {5, 3}, 2)), 3, 2));
  }
  for (OpCase c :
       {Route("sigmoid", {7, 4}, 2), Grouped(Corrected(Route("sigmoid", {8, 9}, 3)), 3, 2)}) {
    absl::StrAppend(&c.name, " renormalized");
    c.attrs.Set("renormalize", true);
    c.attrs.Set("scale", 2.5);
    AddWithGradient(c, cases);
  }
}

// -- Rows of tokens and of experts

// Returns the row of every assignment, in an arbitrary order.
CaseInput Places(Shape shape) {
  std::vector<int32_t> places;
  for (const int64_t place : Permutation(RngStream(5, "places"), shape.num_elements())) {
    places.push_back(static_cast<int32_t>(place));
  }
  return Ints(std::move(shape), places);
}

void AddRowCases(Shape places, int64_t d, std::vector<OpCase>* cases) {
  std::vector<int64_t> dims(places.dims().begin(), places.dims().end() - 1);
  dims.push_back(d);
  const Shape tokens = Shape(dims), rows = {places.num_elements(), d};
  const std::string name = absl::StrCat(places.ToString(), " of ", d);
  const size_t first = cases->size();
  AddCase(cases, "to_experts", name, {Random(tokens), Places(places)});
  AddCase(cases, "to_experts", absl::StrCat(name, " weighted"),
          {Random(tokens), Places(places), Random(places)});
  AddCase(cases, "from_experts", name, {Random(rows), Places(places)});
  AddCase(cases, "from_experts", absl::StrCat(name, " weighted"),
          {Random(rows), Places(places), Random(places)});
  AddCase(cases, "expert_dot", name, {Random(rows), Random(tokens), Places(places)});
  for (size_t i = first, end = cases->size(); i < end; ++i) {
    const bool is_dot = (*cases)[i].op == "expert_dot";
    cases->push_back(
        InBf16((*cases)[i], is_dot ? std::vector<size_t>{0, 1} : std::vector<size_t>{0}));
  }
}

// -- Products

// Groups of these sizes.
struct Groups {
  std::vector<int32_t> sizes;

  int64_t count() const { return static_cast<int64_t>(sizes.size()); }
  int64_t rows() const {
    int64_t rows = 0;
    for (const int32_t size : sizes) rows += size;
    return rows;
  }
  CaseInput Starts() const {
    std::vector<int32_t> starts = {0};
    for (const int32_t size : sizes) starts.push_back(starts.back() + size);
    return Ints({count() + 1}, starts);
  }
  std::string ToString() const {
    std::string text;
    for (const int32_t size : sizes) absl::StrAppend(&text, text.empty() ? "" : "+", size);
    return text;
  }
};

void AddProducts(const Groups& groups, int64_t n, int64_t k, std::vector<OpCase>* cases) {
  const std::string name = absl::StrCat(groups.ToString(), " rows ", n, "x", k);
  const CaseInput x = Random({groups.rows(), k}), starts = groups.Starts();
  const CaseInput bias = Random({groups.count(), n});
  const Attrs transposed = {{"transpose_b", true}};
  const size_t first = cases->size();
  AddCase(cases, "expert_matmul", absl::StrCat(name, " transpose_b"),
          {x, Random({groups.count(), n, k}), starts}, transposed);
  AddCase(cases, "expert_matmul", absl::StrCat(name, " transpose_b bias"),
          {x, Random({groups.count(), n, k}), starts, bias}, transposed);
  AddCase(cases, "expert_matmul", name, {x, Random({groups.count(), k, n}), starts});
  AddCase(cases, "expert_outer", name, {Random({groups.rows(), n}), x, starts});
  for (size_t i = first, end = cases->size(); i < end; ++i) {
    (*cases)[i].tolerance = 4e-6;
    cases->push_back(InBf16((*cases)[i], {0, 1}));
  }
  AddCase(cases, "expert_sum", name, {Random({groups.rows(), n}), starts});
  cases->push_back(InBf16(cases->back(), {0}));
}

// Returns matrices with elements of all values but -128, which quantization does not produce.
CaseInput Int8Matrices(Shape matrices) {
  CaseInput input;
  input.type = Int8Elements(matrices);
  const RngStream draws(3, "int8 experts");
  for (int64_t i = 0; i < input.type.num_elements(); ++i) {
    input.ints.push_back(static_cast<int32_t>(draws.Below(static_cast<uint64_t>(i), 255)) - 127);
  }
  return input;
}

void AddInt8Products(const Groups& groups, int64_t n, int64_t k, std::vector<OpCase>* cases) {
  const Shape w = {groups.count(), n, k};
  OpCase c;
  c.op = "expert_matmul_int8";
  c.name = absl::StrCat(groups.ToString(), " rows ", n, "x", k);
  c.inputs = {Random({groups.rows(), k}), Int8Matrices(w), groups.Starts(),
              Random(Int8Scales(w).shape, 0.001, 0.02)};
  c.attrs = {{"rows", n}};
  c.tolerance = 4.0 / 65534;  // x is rounded to 16 bits
  c.differentiated_outputs = {};
  cases->push_back(c);
  c.inputs.push_back(Random({groups.count(), n}));
  absl::StrAppend(&c.name, " bias");
  cases->push_back(std::move(c));
}

// -- The balance loss

void AddBalanceLosses(Shape logits, const Groups& groups, std::vector<OpCase>* cases) {
  const std::string name = absl::StrCat(logits.ToString(), " to ", groups.ToString());
  const Attrs attrs = {{"coefficient", 0.5}};
  AddCase(cases, "balance_loss", name, {Random(logits), groups.Starts()}, attrs);
  cases->push_back(InBf16(cases->back(), {0}));
  AddCase(cases, "expert_load", name, {Random({groups.count()}), groups.Starts()});
  AddCase(cases, "balance_loss_grad", name, {Random(logits), groups.Starts(), Random({1})}, attrs);
  cases->push_back(InBf16(cases->back(), {0}));
}

}  // namespace

std::vector<OpCase> ExpertOpCases() {
  std::vector<OpCase> cases;
  AddRoutes(&cases);
  AddRowCases({5, 2}, 16, &cases);
  AddRowCases({2, 3, 1}, 7, &cases);
  AddRowCases({1, 3}, 1, &cases);
  AddRowCases({64, 4}, 300, &cases);  // several tasks
  AddProducts({{3, 0, 4, 1}}, 5, 7, &cases);
  AddProducts({{1}}, 1, 1, &cases);
  AddProducts({{0, 2}}, 48, 100, &cases);          // GEMV
  AddProducts({{16, 17, 0, 1}}, 130, 64, &cases);  // GEMV and GEMM
  AddProducts({{150, 1, 70}}, 96, 160, &cases);    // several blocks of rows, columns in parts
  AddProducts({{0, 0, 600}}, 64, 48, &cases);      // all rows of one expert
  AddInt8Products({{3, 0, 4, 1}}, 5, 7, &cases);
  AddInt8Products({{1}}, 1, 1, &cases);
  AddInt8Products({{16, 17, 0, 1}}, 130, 65, &cases);  // rounded rows and panels
  AddInt8Products({{2, 40}}, 700, 640, &cases);        // several tasks
  AddBalanceLosses({7, 4}, {{3, 0, 4, 7}}, &cases);
  AddBalanceLosses({2, 5, 3}, {{10, 0, 0}}, &cases);
  AddBalanceLosses({400, 8}, {{100, 0, 50, 50, 300, 100, 100, 100}}, &cases);
  return cases;
}

}  // namespace plumb
