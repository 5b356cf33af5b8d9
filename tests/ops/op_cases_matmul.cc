// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/ops/op_cases.h"

namespace plumb {
namespace {

// A product's sizes, the transposition of its operands, and the type of both.
struct Sizes {
  int64_t m, n, k;
  bool ta = false, tb = false, bf16 = false;

  CaseInput Operand(Shape shape) const {
    return bf16 ? RandomBf16(std::move(shape)) : Random(std::move(shape));
  }
  CaseInput A() const { return Operand(ta ? Shape{k, m} : Shape{m, k}); }
  CaseInput B() const { return Operand(tb ? Shape{n, k} : Shape{k, n}); }
  CaseInput Bias() const { return Random({n}); }
  CaseInput Result() const { return Operand({m, n}); }
  Attrs Transposes() const {
    Attrs attrs;
    if (ta) attrs.Set("transpose_a", true);
    if (tb) attrs.Set("transpose_b", true);
    return attrs;
  }
  std::string Name() const {
    return absl::StrCat(bf16 ? "bf16 " : "", m, "x", n, "x", k, ta ? " transpose_a" : "",
                        tb ? " transpose_b" : "");
  }
};

void AddProduct(std::vector<OpCase>* cases, const std::string& op, std::string name,
                std::vector<CaseInput> inputs, Attrs attrs) {
  OpCase c;
  c.op = op;
  c.name = std::move(name);
  c.inputs = std::move(inputs);
  c.attrs = std::move(attrs);
  // Few elements of sums over many elements are checked: a difference costs five references.
  for (const CaseInput& input : c.inputs) {
    if (input.type.num_elements() > 5000) c.checked_elements = 2;
  }
  cases->push_back(std::move(c));
}

void AddMatmul(std::vector<OpCase>* cases, const Sizes& s, bool bias, bool f32_out = false) {
  std::vector<CaseInput> inputs = {s.A(), s.B()};
  if (bias) inputs.push_back(s.Bias());
  Attrs attrs = s.Transposes();
  if (f32_out) attrs.Set("f32_out", true);
  AddProduct(cases, "matmul",
             absl::StrCat(s.Name(), bias ? " bias" : "", f32_out ? " f32_out" : ""),
             std::move(inputs), std::move(attrs));
}

void AddMatmuls(std::vector<OpCase>* cases) {
  // m, n, k: tiles of every height, remainders of every kind of vector, short and long sums, odd
  // sums, whose last pair of bf16 is half empty.
  const std::vector<std::array<int64_t, 3>> shapes = {
      {1, 1, 1},  {1, 16, 16}, {2, 3, 1},    {3, 7, 5},    {4, 17, 3},  {5, 31, 2},
      {6, 33, 4}, {7, 16, 16}, {7, 64, 16},  {7, 16, 64},  {7, 27, 16}, {8, 32, 27},
      {9, 65, 7}, {16, 1, 65}, {17, 48, 17}, {27, 27, 27}, {65, 65, 3}, {3, 65, 65}};
  for (const auto& [m, n, k] : shapes) {
    const bool bias = (m + n + k) % 2 == 0;
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        AddMatmul(cases, {m, n, k, ta, tb, false}, bias);
        AddMatmul(cases, {m, n, k, ta, tb, true}, bias);
        AddMatmul(cases, {m, n, k, ta, tb, true}, bias, /*f32_out=*/true);
      }
    }
  }
  // Large enough for blocks of rows and columns, for partial sums (of 768 terms, 1536 in bf16), and
  // for operands that are packed once for all.
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const bool bf16 : {false, true}) {
        AddMatmul(cases, {161, 65, 129, ta, tb, bf16}, true);
        AddMatmul(cases, {27, 331, 130, ta, tb, bf16}, false);
        AddMatmul(cases, {65, 37, 513, ta, tb, bf16}, true);
        AddMatmul(cases, {3, 700, 600, ta, tb, bf16}, true);
        AddMatmul(cases, {9, 35, 1100, ta, tb, bf16}, true);
        AddMatmul(cases, {150, 70, 1025, ta, tb, bf16}, true);
        AddMatmul(cases, {131, 290, 34, ta, tb, bf16}, true);
      }
      AddMatmul(cases, {150, 70, 1026, ta, tb, true}, true, /*f32_out=*/true);
      AddMatmul(cases, {35, 37, 2100, ta, tb, true}, false, /*f32_out=*/true);
    }
  }
  // A long k (many tokens), summed in one and in several KC blocks.
  for (const bool bf16 : {false, true}) {
    AddMatmul(cases, {130, 65, 515, true, false, bf16}, false, /*f32_out=*/true);
    AddMatmul(cases, {600, 33, 300, true, false, bf16}, false, /*f32_out=*/true);
    AddMatmul(cases, {35, 66, 3301, true, false, bf16}, false, /*f32_out=*/true);
    cases->back().tolerance = 5e-6;  // long sums
  }
  // Large results over many tokens: either operand wider, one KC block and two, an odd last pair
  // and an even one.
  for (const bool bf16 : {false, true}) {
    AddMatmul(cases, {258, 333, 131, true, false, bf16}, false, /*f32_out=*/true);
    AddMatmul(cases, {333, 258, 131, true, false, bf16}, false, /*f32_out=*/true);
    AddMatmul(cases, {259, 330, bf16 ? 1542 : 771, true, false, bf16}, false, /*f32_out=*/true);
    cases->back().tolerance = 5e-6;
    AddMatmul(cases, {330, 259, bf16 ? 1541 : 771, true, false, bf16}, false, /*f32_out=*/true);
    cases->back().tolerance = 5e-6;
  }
  // Blocks of rows and of columns over an operand that is packed once for all or, in f32, read in
  // place; the second with partial sums.
  for (const bool tb : {false, true}) {
    for (const bool bf16 : {false, true}) {
      AddMatmul(cases, {300, 700, 40, false, tb, bf16}, true);
      AddMatmul(cases, {440, 130, bf16 ? 1541 : 790, false, tb, bf16}, true);
      cases->back().tolerance = 5e-6;
    }
  }
  // Partitioned by columns, or with more threads also by rows: two MC blocks, one KC block and two,
  // rows that are read in place and (1024 floats, odd pairs) packed ones.
  for (const bool tb : {false, true}) {
    AddMatmul(cases, {150, 140, 130, false, tb, false}, true);
    AddMatmul(cases, {145, 130, 1024, false, tb, false}, true);
    cases->back().tolerance = 5e-6;
    AddMatmul(cases, {150, 140, 130, false, tb, true}, true);
    AddMatmul(cases, {145, 130, 1541, false, tb, true}, true);
    AddMatmul(cases, {145, 130, 1540, false, tb, true}, true, /*f32_out=*/true);
  }
  AddMatmul(cases, {8200, 17, 17, false, true, false}, true);
  AddMatmul(cases, {2100, 17, 18, false, true, true}, true);
  for (const bool bf16 : {false, true}) {
    const Sizes s = {14, 27, 16, false, true, bf16};
    CaseInput a = s.A();
    a.type.shape = {2, 7, 16};
    AddProduct(cases, "matmul", absl::StrCat(s.Name(), " batched rows"), {a, s.B(), s.Bias()},
               s.Transposes());
  }
  AddProduct(cases, "matmul", "batched rows", {Random({2, 3, 5}), Random({5, 7})}, {});
}

// Returns sizes for one thread and several, one partial sum and several, even and odd.
std::vector<Sizes> FusedSizes(bool transpose_a) {
  std::vector<Sizes> all;
  for (const bool bf16 : {false, true}) {
    for (const bool ta : {false, true}) {
      if (ta && !transpose_a) continue;
      for (const bool tb : {false, true}) {
        all.push_back({5, 19, 33, ta, tb, bf16});
        all.push_back({120, 70, 129, ta, tb, bf16});
        if (ta && tb) continue;
        all.push_back({36, 37, 1100, ta, tb, bf16});
        if (ta) continue;
        all.push_back({7, 16, 16, ta, tb, bf16});
        all.push_back({3, 200, 64, ta, tb, bf16});  // few rows
        all.push_back({12, 160, 1025, ta, tb, bf16});
      }
    }
  }
  return all;
}

void AddFused(std::vector<OpCase>* cases) {
  const char* const kinds[] = {"relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "softplus"};
  size_t next = 0;
  for (Sizes s : FusedSizes(/*transpose_a=*/true)) {
    const std::string kind = kinds[next++ % std::size(kinds)];
    for (const bool keep : {false, true}) {
      Attrs attrs = s.Transposes();
      attrs.Set("kind", kind);
      attrs.Set("keep", keep);
      const std::string name = absl::StrCat(s.Name(), " ", kind, keep ? " keep" : "");
      // With small sums, an activation differs from its argument, zero and one.
      CaseInput a = s.A();
      a.low = -0.05, a.high = 0.05;
      for (const bool bias : {false, true}) {
        std::vector<CaseInput> inputs = {a, s.B()};
        if (bias) inputs.push_back(s.Bias());
        AddProduct(cases, "matmul_act", name + (bias ? " bias" : ""), std::move(inputs), attrs);
        if (s.k > 1000) cases->back().tolerance = std::max(cases->back().tolerance, 5e-6);
      }
    }
    AddProduct(cases, "matmul_act_grad", s.Name(), {s.A(), s.B(), s.Result()}, s.Transposes());
    AddProduct(cases, "matmul_add", s.Name(), {s.A(), s.B(), Absent(), s.Result()}, s.Transposes());
    AddProduct(cases, "matmul_add", s.Name() + " bias", {s.A(), s.B(), s.Bias(), s.Result()},
               s.Transposes());
    if (s.bf16) {
      AddProduct(cases, "matmul_add", s.Name() + " f32 addend",
                 {s.A(), s.B(), Absent(), Random({s.m, s.n})}, s.Transposes());
    }
  }
  for (const bool bf16 : {false, true}) {
    for (const Sizes& s :
         {Sizes{130, 65, 515, true, false, bf16}, Sizes{65, 130, 515, true, false, bf16},
          Sizes{258, 333, 131, true, false, bf16}, Sizes{333, 258, 131, true, false, bf16}}) {
      AddProduct(cases, "matmul_add", s.Name() + " f32 addend",
                 {s.A(), s.B(), Absent(), Random({s.m, s.n})}, s.Transposes());
    }
  }
  for (const bool keep : {false, true}) {
    AddProduct(cases, "matmul_act", absl::StrCat("batched rows", keep ? " keep" : ""),
               {Random({2, 7, 16}, -0.05, 0.05), Random({27, 16}), Random({27})},
               Attrs({{"transpose_b", true}, {"kind", std::string("gelu_tanh")}, {"keep", keep}}));
  }
  AddProduct(cases, "matmul_add", "batched rows",
             {Random({2, 7, 16}), Random({27, 16}), Random({27}), Random({2, 7, 27})},
             Attrs({{"transpose_b", true}}));
}

void AddSeveral(std::vector<OpCase>* cases) {
  for (const Sizes& s : FusedSizes(/*transpose_a=*/false)) {
    Attrs attrs = s.Transposes();
    attrs.Set("count", int64_t{3});
    Sizes narrow = s;
    narrow.n = s.n / 2 + 1;
    AddProduct(cases, "matmul_shared", s.Name(), {s.A(), s.B(), narrow.B(), narrow.B()}, attrs);
    AddProduct(cases, "matmul_shared", s.Name() + " biases",
               {s.A(), s.B(), narrow.B(), narrow.B(), s.Bias(), Absent(), narrow.Bias()}, attrs);

    attrs.Set("count", int64_t{2});
    Sizes shorter = s;
    shorter.k = s.k / 2 + 1;
    AddProduct(cases, "matmul_sum", s.Name(), {Absent(), s.A(), s.B(), shorter.A(), shorter.B()},
               attrs);
    AddProduct(cases, "matmul_sum", s.Name() + " addend",
               {s.Result(), s.A(), s.B(), shorter.A(), shorter.B()}, attrs);
    // One chain over both products' terms has as many roundings.
    if (s.k > 1000) cases->back().tolerance = 5e-6;
  }
  const CaseInput a = Random({2, 7, 16}), b = Random({27, 16}), y = Random({2, 7, 27});
  const Attrs two({{"transpose_b", true}, {"count", int64_t{2}}});
  AddProduct(cases, "matmul_shared", "batched rows", {a, b, b, Random({27}), Absent()}, two);
  AddProduct(cases, "matmul_sum", "batched rows", {Absent(), a, b, a, b}, two);
  AddProduct(cases, "matmul_sum", "batched rows addend", {y, a, b, a, b}, two);
}

}  // namespace

std::vector<OpCase> MatmulOpCases() {
  std::vector<OpCase> cases;
  AddMatmuls(&cases);
  AddFused(&cases);
  AddSeveral(&cases);
  return cases;
}

}  // namespace plumb
