// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/ops/op_cases.h"

namespace plumb {
namespace {

void AddEmbedding(std::vector<OpCase>* cases) {
  const std::vector<int32_t> ids = {3, 0, 26, 3, 3, 7};
  AddCase(cases, "embedding", "repeated tokens", {Random({27, 16}), Ints({2, 3}, ids)});
  AddCase(cases, "embedding", "odd width", {Random({27, 7}), Ints({6}, ids)});
  std::vector<int32_t> many;
  for (int32_t t = 0; t < 2500; ++t) many.push_back(t * 31 % 65);
  AddCase(cases, "embedding", "many", {Random({65, 65}), Ints({25, 100}, many)});

  AddCase(cases, "embedding", "f32 from f32", {Random({27, 7}), Ints({6}, ids)},
          {{"f32_out", true}});
  AddCase(cases, "embedding", "f32 from bf16", {RandomBf16({27, 37}), Ints({6}, ids)},
          {{"f32_out", true}});
  AddCase(cases, "embedding", "from a row on", {Random({29, 16}), Ints({2, 3}, ids)},
          {{"offset", int64_t{2}}});
  AddCase(cases, "embedding", "from a row on, f32 from bf16",
          {RandomBf16({29, 37}), Ints({6}, ids)}, {{"f32_out", true}, {"offset", int64_t{2}}});
  AddCase(cases, "embedding_grad", "from a row on",
          {Ints({6}, ids), Random({6, 17}), Random({30, 17})},
          Attrs({{"rows", int64_t{30}}, {"offset", int64_t{3}}}));
  AddCase(cases, "embedding_grad", "repeated tokens", {Ints({2, 3}, ids), Random({2, 3, 16})},
          Attrs({{"rows", int64_t{27}}}));
  AddCase(cases, "embedding_grad", "odd width", {Ints({6}, ids), Random({6, 17})},
          Attrs({{"rows", int64_t{27}}}));
  AddCase(cases, "embedding_grad", "many", {Ints({2500}, many), Random({2500, 65})},
          Attrs({{"rows", int64_t{3000}}}));
  AddCase(cases, "embedding_grad", "added", {Ints({6}, ids), Random({6, 17}), Random({27, 17})},
          Attrs({{"rows", int64_t{27}}}));
  AddCase(cases, "embedding_grad", "many added",
          {Ints({2500}, many), Random({2500, 65}), Random({3000, 65})},
          Attrs({{"rows", int64_t{3000}}}));
}

void AddSums(std::vector<OpCase>* cases) {
  for (const int64_t n : {1, 3, 16, 27, 65}) {
    AddCase(cases, "mul_reduce", absl::StrCat("rows of 7 x ", n), {Random({7, n})});
    AddCase(cases, "combine", absl::StrCat("two, ", n), {Random({7, n}), Random({7, n})},
            Attrs({{"coefs", std::vector<double>{1, 1}}}));
    AddCase(cases, "combine", absl::StrCat("three, ", n),
            {Random({7, n}), Random({7, n}), Random({7, n})},
            Attrs({{"coefs", std::vector<double>{1, 1, 1}}, {"constant", 0.0}}));
  }
  AddCase(cases, "mul_reduce", "blocks of rows", {Random({3, 700, 65})});
  for (const int64_t n : {1, 7, 32, 45, 1000}) {
    AddCase(cases, "sum_squares", absl::StrCat(n), {Random({n})});
  }
  AddCase(cases, "sum_squares", "a scalar", {Random({})});
  AddCase(cases, "sum_squares", "many elements", {Random({401, 3, 333})});

  AddCase(cases, "combine", "one term", {Random({3, 17})},
          Attrs({{"coefs", std::vector<double>{-0.5}}, {"constant", 2.0}}));
  AddCase(cases, "combine", "one term, as it is", {Random({3, 17})},
          Attrs({{"coefs", std::vector<double>{1}}}));
  AddCase(cases, "combine", "two scaled terms", {Random({3, 17}), Random({3, 17})},
          Attrs({{"coefs", std::vector<double>{2.5, 1}}}));
  AddCase(cases, "combine", "three scaled terms", {Random({65}), Random({65}), Random({65})},
          Attrs({{"coefs", std::vector<double>{1, -1, 0.25}}, {"constant", -1.0}}));
  AddCase(cases, "combine", "five terms",
          {Random({31}), Random({31}), Random({31}), Random({31}), Random({31})},
          Attrs({{"coefs", std::vector<double>{1, 1, 1, 1, 1}}}));
  AddCase(cases, "combine", "four scaled terms",
          {Random({7}), Random({7}), Random({7}), Random({7})},
          Attrs({{"coefs", std::vector<double>{1, 2, 3, 4}}, {"constant", 0.5}}));
  AddCase(cases, "combine", "of tokens",
          {Random({2, 5, 17}), Random({2, 5, 17}), Random({2, 5, 17})},
          Attrs({{"coefs", std::vector<double>{1, 0.5, -2}}, {"constant", 0.25}}));
  AddCase(cases, "combine", "many elements", {Random({401, 333}), Random({401, 333})},
          Attrs({{"coefs", std::vector<double>{0.5, 1}}}));
}

void AddMul(std::vector<OpCase>* cases) {
  AddCase(cases, "mul", "alike", {Random({7, 27}), Random({7, 27})});
  AddCase(cases, "mul", "alike, of tokens", {Random({2, 5, 17}), Random({2, 5, 17})});
  AddCase(cases, "mul", "alike vectors", {Random({17}), Random({17})});
  AddCase(cases, "mul", "alike, many", {Random({401, 333}), Random({401, 333})});
  AddCase(cases, "mul", "blocks of rows", {Random({401, 336}), Random({12})});
  AddCase(cases, "mul_reduce", "blocks of rows to vector", {Random({401, 336}), Random({401, 336})},
          Attrs({{"size", int64_t{336}}}));
  AddCase(cases, "mul_reduce", "blocks of rows to scalar", {Random({401, 336}), Random({401, 336})},
          Attrs({{"size", int64_t{1}}}));
  for (const int64_t d : {1, 7, 16, 27, 66}) {
    for (const int64_t size : {int64_t{1}, d, d % 3 == 0 ? d / 3 : d}) {
      const std::string name = absl::StrCat("[2, 7, ", d, "] and ", size);
      AddCase(cases, "mul", name, {Random({2, 7, d}), Random({size})});
      AddCase(cases, "mul_reduce", name, {Random({2, 7, d}), Random({2, 7, d})},
              Attrs({{"size", size}}));
    }
  }
  AddCase(cases, "mul", "heads", {Random({5, 128}), Random({2})});
  AddCase(cases, "mul_reduce", "heads", {Random({5, 136}), Random({5, 136})},
          Attrs({{"size", int64_t{2}}}));
}

void AddActivations(std::vector<OpCase>* cases) {
  for (const char* kind :
       {"relu", "gelu", "gelu_tanh", "silu", "softplus", "tanh", "sigmoid", "erf"}) {
    const Attrs attrs({{"kind", std::string(kind)}});
    for (const int64_t n : {1, 17, 64}) {
      const Shape shape = {3, n};
      const std::string name = absl::StrCat(kind, " ", n);
      AddCase(cases, "act", name, {Random(shape, -6, 6)}, attrs);
      AddCase(cases, "act_grad", name, {Random(shape, -6, 6), Random(shape)}, attrs);
      AddCase(cases, "gated", name, {Random(shape, -6, 6), Random(shape)}, attrs);
      AddCase(cases, "gated_grad", name, {Random(shape, -6, 6), Random(shape), Random(shape)},
              attrs);
    }
    const Shape of_tokens = {2, 5, 17};
    AddCase(cases, "act", absl::StrCat(kind, " of tokens"), {Random(of_tokens, -6, 6)}, attrs);
    AddCase(cases, "gated", absl::StrCat(kind, " of tokens"),
            {Random(of_tokens, -6, 6), Random(of_tokens)}, attrs);
    const Shape many = {129, 333};
    AddCase(cases, "act", absl::StrCat(kind, " many"), {Random(many, -20, 20)}, attrs);
    AddCase(cases, "act_grad", absl::StrCat(kind, " many"), {Random(many, -20, 20), Random(many)},
            attrs);
    AddCase(cases, "gated_grad", absl::StrCat(kind, " many"),
            {Random(many, -20, 20), Random(many), Random(many)}, attrs);
  }
}

// Adds the cases of ops on any element type in bf16: vectors, gradients of parameters and sums stay
// f32.
void AddBf16(std::vector<OpCase>* cases) {
  const std::map<std::string, std::vector<size_t>> in_bf16 = {
      {"embedding", {0}},        {"embedding_grad", {1}},
      {"mul_reduce", {0, 1}},    {"act", {0}},
      {"act_grad", {0, 1}},      {"gated", {0, 1}},
      {"gated_grad", {0, 1, 2}}, {"combine", {0, 1, 2, 3, 4}},
      {"last_token", {0}},
  };
  const size_t count = cases->size();
  for (size_t i = 0; i < count; ++i) {
    const OpCase c = (*cases)[i];
    if (c.op == "mul") {
      const bool alike = c.inputs[0].type == c.inputs[1].type;
      cases->push_back(InBf16(c, alike ? std::vector<size_t>{0, 1} : std::vector<size_t>{0}));
    } else if (const auto it = in_bf16.find(c.op); it != in_bf16.end()) {
      cases->push_back(InBf16(c, it->second));
    }
  }
  AddCase(cases, "mul", "bf16 vector by an f32 vector", {RandomBf16({17}), Random({17})});
  AddCase(cases, "fill", "bf16", {},
          Attrs({{"dims", std::vector<double>{3, 17}}, {"value", 0.25}, {"bf16", true}}));
}

}  // namespace

void AddCase(std::vector<OpCase>* cases, const std::string& op, std::string name,
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

std::vector<OpCase> DenseOpCases() {
  std::vector<OpCase> cases;
  AddEmbedding(&cases);
  AddSums(&cases);
  AddMul(&cases);
  AddActivations(&cases);
  AddCase(&cases, "fill", "zeros", {},
          Attrs({{"dims", std::vector<double>{3, 17}}, {"value", 0.0}}));
  AddCase(&cases, "fill", "many", {},
          Attrs({{"dims", std::vector<double>{401, 333}}, {"value", 0.25}}));
  AddCase(&cases, "convert", "f32", {Random({2, 7, 17})});
  AddCase(&cases, "convert", "to bf16", {Random({2, 7, 17})}, {{"bf16", true}});
  AddCase(&cases, "convert", "from bf16", {RandomBf16({3, 333, 129})});
  AddCase(&cases, "convert", "positions", {Ints({2, 3}, {4, 5, 6, 131071, 131072, 131073})});
  AddCase(&cases, "last_token", "two rows", {Random({2, 7, 17})});
  AddCase(&cases, "last_token", "one token", {Random({3, 1, 16})});
  AddBf16(&cases);
  AddCase(&cases, "last_token", "ids", {Ints({2, 3}, {4, 0, 7, 1, 5, 9})});
  return cases;
}

}  // namespace plumb
