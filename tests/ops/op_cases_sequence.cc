// SPDX-License-Identifier: Apache-2.0
// Cases of the ops that mix tokens, and of the loss: rotary embedding, attention, cross entropy.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/ops/host_loss.h"
#include "tests/ops/op_cases.h"

namespace plumb {
namespace {

// -- Rotary embedding

OpCase Rope(int64_t batch, int64_t tokens, int64_t heads, int64_t head_dim, int32_t first,
            bool inverse) {
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < batch * tokens; ++i) {
    positions.push_back(first + static_cast<int32_t>(i % tokens));
  }
  OpCase c;
  c.op = "rope";
  c.name = absl::StrCat(batch, "x", tokens, " ", heads, " heads of ", head_dim, " from ", first,
                        inverse ? " inverse" : "");
  c.inputs = {Random({batch, tokens, heads * head_dim}), Ints({batch, tokens}, positions)};
  c.attrs = {{"head_dim", head_dim}, {"theta", 10000.0}, {"inverse", inverse}};
  return c;
}

// Returns the case with additional attributes.
OpCase With(OpCase c, const std::string& what,
            const std::vector<std::pair<const char*, Attr>>& attrs) {
  absl::StrAppend(&c.name, " ", what);
  for (const auto& [name, value] : attrs) c.attrs.Set(name, value);
  return c;
}

// Adds layouts, rotated parts of a head around whole vectors, and other frequencies.
void AddRopeVariants(std::vector<OpCase>* cases) {
  const auto text = [](const char* value) { return std::string(value); };
  for (const bool inverse : {false, true}) {
    for (const int64_t dims : {2, 6, 16, 18, 32, 34}) {
      const OpCase partial =
          With(Rope(2, 5, 3, 36, 7, inverse), absl::StrCat("dims ", dims), {{"dims", dims}});
      cases->push_back(partial);
      cases->push_back(With(partial, "interleaved", {{"interleaved", true}}));
    }
    cases->push_back(With(Rope(4, 64, 4, 64, 0, inverse), "interleaved", {{"interleaved", true}}));
    const OpCase one = Rope(1, 9, 2, 20, 100, inverse);
    cases->push_back(With(one, "linear", {{"scaling", text("linear")}, {"factor", 4.0}}));
    cases->push_back(With(one, "llama3",
                          {{"scaling", text("llama3")},
                           {"factor", 8.0},
                           {"original_context", int64_t{4000}},
                           {"low_freq_factor", 1.0},
                           {"high_freq_factor", 4.0}}));
    const OpCase yarn = With(one, "yarn",
                             {{"scaling", text("yarn")},
                              {"factor", 8.0},
                              {"original_context", int64_t{4000}},
                              {"beta_fast", 32.0},
                              {"beta_slow", 1.0},
                              {"magnitude", 1.2}});
    cases->push_back(yarn);
    cases->push_back(With(one, "longrope",
                          {{"scaling", text("longrope")},
                           {"factors", std::vector<double>{1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6.5, 8}},
                           {"magnitude", 1.1}}));
    cases->push_back(With(yarn, "fractional",
                          {{"fractional", true}, {"interleaved", true}, {"dims", int64_t{12}}}));
  }
}

void AddRopes(std::vector<OpCase>* cases) {
  cases->push_back(Rope(1, 7, 4, 4, 0, false));
  cases->push_back(Rope(1, 3, 2, 2, 0, true));
  cases->push_back(Rope(2, 5, 1, 6, 1000, false));
  cases->push_back(Rope(1, 1, 3, 20, 100000, false));
  cases->push_back(Rope(1, 4, 2, 34, 17, true));
  cases->push_back(Rope(4, 64, 4, 64, 0, false));  // several tasks
  AddRopeVariants(cases);
  const size_t count = cases->size();
  for (size_t i = 0; i < count; ++i) cases->push_back(InBf16((*cases)[i], {0}));
}

// -- Attention

struct Heads {
  int64_t q, kv;
};

Attrs AttentionAttrs(Heads heads, int64_t head_dim) {
  return {{"n_head", heads.q},
          {"n_kv_head", heads.kv},
          {"scale", 1 / std::sqrt(static_cast<double>(head_dim))}};
}

std::string AttentionName(int64_t batch, int64_t tokens, Heads heads, int64_t head_dim) {
  return absl::StrCat("batch ", batch, " tokens ", tokens, " heads ", heads.q, "/", heads.kv,
                      " width ", head_dim);
}

// Variations of the plain softmax.
struct Variant {
  double cap = 0;
  int64_t window = 0;
  bool sinks = false;
  double alibi = 0;
  bool key_bias = false;
};

std::string VariantName(const Variant& variant) {
  return absl::StrCat(variant.cap > 0 ? absl::StrCat(" cap ", variant.cap) : "",
                      variant.window > 0 ? absl::StrCat(" window ", variant.window) : "",
                      variant.sinks ? " sinks" : "",
                      variant.alibi > 0 ? absl::StrCat(" alibi ", variant.alibi) : "",
                      variant.key_bias ? " key bias" : "");
}

// Returns the case with that variant for queries [batch, tokens, heads]; sinks or biases of keys
// are its last inputs. Sinks are large and small compared with the scores.
OpCase WithVariant(OpCase c, const Variant& variant, const Shape& queries) {
  const int64_t heads = queries.last();
  absl::StrAppend(&c.name, VariantName(variant));
  if (variant.cap > 0) c.attrs.Set("cap", variant.cap);
  if (variant.window > 0) c.attrs.Set("window", variant.window);
  if (variant.alibi > 0) c.attrs.Set("alibi", variant.alibi);
  if (variant.sinks && c.op != "attention_grad") c.inputs.push_back(Random({heads}, -8, 8));
  if (variant.key_bias) {
    c.inputs.resize(c.op == "attention" ? 5 : 7, Absent());
    c.inputs.push_back(Random(queries, -3, 3));
  }
  return c;
}

// Draws f32 or bf16 operands.
using Draw = CaseInput (*)(Shape shape, double low, double high);

// Probabilities and their gradients may be rounded to bf16 for the matrix products, by half of the
// last of eight bits, in sums of many.
constexpr double kBf16Tolerance = 4e-3;

void AddAttentionCases(int64_t batch, int64_t tokens, Heads heads, int64_t head_dim, Draw draw,
                       std::vector<OpCase>* cases, const Variant& variant = {}) {
  const Shape q = {batch, tokens, heads.q * head_dim}, kv = {batch, tokens, heads.kv * head_dim};
  const bool bf16 = draw == RandomBf16;
  const auto random = [draw](const Shape& shape) { return draw(shape, -2, 2); };
  OpCase forward;
  forward.op = "attention";
  forward.name = AttentionName(batch, tokens, heads, head_dim) + (bf16 ? " bf16" : "");
  forward.inputs = {random(q), random(kv), random(kv)};
  forward.attrs = AttentionAttrs(heads, head_dim);
  forward.tolerance = bf16 ? kBf16Tolerance : 4e-6;
  // A difference of the naive reference is expensive for long sequences.
  forward.checked_elements = tokens * head_dim > 1000 ? 3 : 24;
  cases->push_back(WithVariant(forward, variant, {batch, tokens, heads.q}));

  OpCase grad;
  grad.op = "attention_grad";
  grad.name = forward.name;
  grad.inputs = {
      random(q), random(kv), random(kv), random(q), Random({batch, heads.q, tokens}, 2, 3),
      random(q)};
  grad.attrs = forward.attrs;
  grad.tolerance = bf16 ? kBf16Tolerance : 1e-5;
  cases->push_back(WithVariant(grad, variant, {batch, tokens, heads.q}));
}

// Adds a case with `queries` queries, for the last tokens; 0: for all.
void AddCachedAttentionCase(std::vector<int32_t> first, int64_t tokens, Heads heads,
                            int64_t head_dim, int64_t capacity, Draw draw,
                            std::vector<OpCase>* cases, int64_t queries = 0,
                            const Variant& variant = {}) {
  const bool bf16 = draw == RandomBf16;
  const auto random = [draw](const Shape& shape) { return draw(shape, -2, 2); };
  const int64_t batch = static_cast<int64_t>(first.size());
  std::vector<int32_t> positions;
  for (const int32_t start : first) {
    for (int64_t t = 0; t < tokens; ++t) positions.push_back(start + static_cast<int32_t>(t));
  }
  OpCase c;
  c.op = "attention_cached";
  c.name = absl::StrCat(AttentionName(batch, tokens, heads, head_dim), " from ", first[0], " of ",
                        capacity, queries > 0 ? absl::StrCat(" queries ", queries) : "",
                        bf16 ? " bf16" : "");
  const Shape kv = {batch, tokens, heads.kv * head_dim};
  const Shape cache = {batch, heads.kv, capacity, head_dim};
  c.inputs = {random({batch, queries > 0 ? queries : tokens, heads.q * head_dim}),
              random(kv),
              random(kv),
              random(cache),
              random(cache),
              Ints({batch, tokens}, positions)};
  c.attrs = AttentionAttrs(heads, head_dim);
  c.tolerance = bf16 ? kBf16Tolerance : 4e-6;
  const Shape of_heads = {batch, tokens, heads.q};
  cases->push_back(WithVariant(c, variant, of_heads));
  if (variant.key_bias) {
    cases->back().op = "attention_cached_bias";
    cases->back().inputs.push_back(Random({batch, 1, capacity, heads.q}, -3, 3));
    return;
  }
  if (capacity > 300) return;
  c.op = "attention_cached_keys";
  c.inputs = {c.inputs[0], c.inputs[1], c.inputs[3], c.inputs[5]};
  cases->push_back(WithVariant(c, variant, of_heads));
}

void AddSinkGrad(int64_t batch, int64_t tokens, int64_t heads, int64_t head_dim, Draw draw,
                 std::vector<OpCase>* cases) {
  const Shape context = {batch, tokens, heads * head_dim};
  OpCase c;
  c.op = "attention_sink_grad";
  c.name = AttentionName(batch, tokens, {heads, heads}, head_dim);
  c.inputs = {Random({heads}), draw(context, -2, 2), Random({batch, heads, tokens}, 2, 3),
              draw(context, -2, 2)};
  c.tolerance = 1e-5;
  cases->push_back(c);
}

// Adds attention to all keys of sequences of those lengths, padded to `tokens`.
void AddBidirectionalCases(std::vector<int32_t> lengths, int64_t tokens, Heads heads,
                           int64_t head_dim, Draw draw, std::vector<OpCase>* cases,
                           const Variant& variant = {}) {
  const int64_t batch = static_cast<int64_t>(lengths.size());
  const size_t first = cases->size();
  AddAttentionCases(batch, tokens, heads, head_dim, draw, cases, variant);
  for (size_t i = first; i < cases->size(); ++i) {
    OpCase& c = (*cases)[i];
    absl::StrAppend(&c.name, " lengths ", absl::StrJoin(lengths, ","));
    if (c.op == "attention" && !variant.sinks) c.inputs.push_back(Absent());
    c.inputs.push_back(Ints({batch}, lengths));
  }
}

void AddBidirectional(Draw draw, std::vector<OpCase>* cases) {
  const Variant cap = {3, 0, false}, sinks = {0, 0, true}, both = {1.5, 0, true};
  AddBidirectionalCases({1}, 1, {1, 1}, 4, draw, cases);
  AddBidirectionalCases({5, 1, 3}, 5, {2, 1}, 20, draw, cases);
  for (const Variant& variant : {Variant{}, cap, sinks, both}) {
    AddBidirectionalCases({17, 16, 9, 1}, 17, {2, 2}, 7, draw, cases, variant);
    AddBidirectionalCases({64, 63}, 64, {2, 2}, 8, draw, cases, variant);
    AddBidirectionalCases({129, 64, 65}, 129, {4, 2}, 8, draw, cases, variant);
    AddBidirectionalCases({300, 257, 2}, 300, {2, 1}, 5, draw, cases, variant);
  }
  AddBidirectionalCases({64}, 64, {1, 1}, 64, draw, cases);
  // Windows on both sides: around the sizes of tiles and blocks, and wider than a sequence.
  for (const int64_t window : {1, 3, 8, 61, 64, 66, 200}) {
    const Variant plain = {0, window, false}, all = {1.5, window, true};
    AddBidirectionalCases({5, 1, 3}, 5, {2, 1}, 20, draw, cases, plain);
    AddBidirectionalCases({64, 63}, 64, {2, 2}, 8, draw, cases, all);
    AddBidirectionalCases({129, 64, 65}, 129, {4, 2}, 8, draw, cases, plain);
    AddBidirectionalCases({300, 257, 2}, 300, {2, 1}, 5, draw, cases, all);
    AddBidirectionalCases({530}, 530, {1, 1}, 4, draw, cases, plain);
  }
}

// Adds windows around the sizes of tiles, vectors and blocks, and all pairs of variants.
void AddAttentionVariants(Draw draw, std::vector<OpCase>* cases) {
  const Variant cap = {3, 0, false}, sinks = {0, 0, true};
  for (const int64_t tokens : {1, 5, 17, 70}) {
    for (const Variant& variant : {cap, sinks, Variant{1.5, 4, true}}) {
      AddAttentionCases(2, tokens, {4, 2}, 20, draw, cases, variant);
    }
  }
  for (const int64_t window : {1, 3, 8, 16, 17, 63, 64, 65, 100}) {
    AddAttentionCases(1, 129, {2, 1}, 8, draw, cases, {0, window, false});
    AddAttentionCases(1, 520, {1, 1}, 4, draw, cases, {0, window, true});
    AddCachedAttentionCase({100, 37}, 1, {4, 2}, 7, 130, draw, cases, 0, {0, window, false});
    AddCachedAttentionCase({61, 94}, 36, {2, 1}, 8, 130, draw, cases, 0, {2, window, true});
  }
  AddAttentionCases(1, 301, {4, 2}, 20, draw, cases, {2, 90, true});
  AddAttentionCases(1, 301, {2, 2}, 5, draw, cases, cap);
  AddAttentionCases(1, 129, {2, 2}, 5, draw, cases, {2, 1000, false});  // wider than the sequence
  AddCachedAttentionCase({3}, 270, {2, 1}, 12, 280, draw, cases, 0, {0, 70, false});
  AddCachedAttentionCase({3}, 270, {2, 1}, 12, 280, draw, cases, 9, {0, 70, true});
  for (const int64_t head_dim : {1, 7, 20}) {
    AddCachedAttentionCase({13, 2}, 1, {4, 2}, head_dim, 16, draw, cases, 0, cap);
    AddCachedAttentionCase({15, 3}, 1, {4, 2}, head_dim, 16, draw, cases, 0, sinks);
    AddCachedAttentionCase({0, 5}, 9, {4, 2}, head_dim, 16, draw, cases, 0, {2, 5, true});
  }
  AddSinkGrad(2, 5, 3, 7, draw, cases);
  AddSinkGrad(1, 1, 1, 1, draw, cases);
  AddSinkGrad(2, 70, 8, 64, draw, cases);  // several tasks
}

// Adds caches of the window's size or slightly more, before and after they are full: one new token,
// fewer and more than the window, and fewer and more than a kernel packs.
void AddRings(Draw draw, std::vector<OpCase>* cases) {
  for (const int64_t window : {1, 4, 16, 70}) {
    for (const int64_t capacity : {window, window + 5}) {
      const Variant variant = {0, window, false}, all = {2, window, true, 0.5};
      for (const int32_t first : {0, 3, 69, 70, 200}) {
        AddCachedAttentionCase({first, 100}, 1, {4, 2}, 7, capacity, draw, cases, 0, variant);
        AddCachedAttentionCase({first}, 5, {2, 1}, 20, capacity, draw, cases, 0, all);
        AddCachedAttentionCase({first, 9}, 36, {2, 1}, 8, capacity, draw, cases, 0, variant);
        AddCachedAttentionCase({first}, 36, {4, 2}, 8, capacity, draw, cases, 1, all);
        AddCachedAttentionCase({first}, 40, {4, 2}, 8, capacity, draw, cases, 9, variant);
      }
    }
  }
  AddCachedAttentionCase({77}, 300, {2, 1}, 12, 90, draw, cases, 0, {0, 90, true});
  AddCachedAttentionCase({5000}, 1, {8, 8}, 64, 1000, draw, cases, 0, {0, 1000, false});
}

// Adds few heads, a number that is no power of 2, and keys far beyond the first block.
void AddAlibi(Draw draw, std::vector<OpCase>* cases) {
  const Variant alibi = {0, 0, false, 1};
  for (const int64_t tokens : {1, 5, 17, 70, 301}) {
    AddAttentionCases(1, tokens, {2, 1}, 20, draw, cases, alibi);
    AddAttentionCases(2, tokens, {6, 3}, 5, draw, cases, {1.5, tokens / 2, true, 0.3});
  }
  AddAttentionCases(1, 520, {1, 1}, 4, draw, cases, alibi);
  AddAttentionCases(1, 130, {12, 12}, 8, draw, cases, alibi);
  AddCachedAttentionCase({700}, 1, {8, 8}, 64, 1024, draw, cases, 0, alibi);
  AddCachedAttentionCase({3}, 270, {3, 1}, 12, 280, draw, cases, 0, alibi);
  AddCachedAttentionCase({61, 94}, 36, {2, 1}, 7, 130, draw, cases, 3, {0, 33, true, 2});
  for (const int64_t head_dim : {1, 7, 20}) {
    AddCachedAttentionCase({13, 2}, 1, {4, 2}, head_dim, 16, draw, cases, 0, alibi);
    AddCachedAttentionCase({0, 5}, 9, {4, 2}, head_dim, 16, draw, cases, 0, {2, 5, true, 0.5});
  }
}

// Adds biases of keys: around the sizes of tiles and blocks, several blocks of queries, groups of
// heads, and caches.
void AddKeyBiases(Draw draw, std::vector<OpCase>* cases) {
  const Variant biased = {0, 0, false, 0, true};
  for (const int64_t tokens : {1, 5, 17, 63, 64, 65, 130, 301}) {
    AddAttentionCases(1, tokens, {2, 2}, 8, draw, cases, biased);
    AddAttentionCases(2, tokens, {6, 3}, 5, draw, cases, biased);
  }
  AddAttentionCases(1, 64, {1, 1}, 20, draw, cases, biased);
  AddAttentionCases(1, 520, {1, 1}, 4, draw, cases, biased);
  AddCachedAttentionCase({700}, 1, {8, 8}, 64, 1024, draw, cases, 0, biased);
  AddCachedAttentionCase({3}, 270, {3, 1}, 12, 280, draw, cases, 0, biased);
  AddCachedAttentionCase({61, 94}, 36, {2, 1}, 7, 130, draw, cases, 3, biased);
  for (const int64_t head_dim : {1, 7, 20}) {
    AddCachedAttentionCase({13, 2}, 1, {4, 2}, head_dim, 16, draw, cases, 0, biased);
    AddCachedAttentionCase({0, 5}, 9, {4, 2}, head_dim, 16, draw, cases, 0, biased);
  }
}

void AddAttentions(Draw draw, std::vector<OpCase>* cases) {
  // Tile, block and vector sizes and their neighbours, in tokens and in channels.
  for (const int64_t tokens : {1, 2, 5, 16, 17, 64, 70, 129}) {
    for (const int64_t head_dim : {1, 4, 7, 8, 20, 32, 64}) {
      AddAttentionCases(tokens < 20 ? 2 : 1, tokens, {4, 4}, head_dim, draw, cases);
    }
    AddAttentionCases(1, tokens, {4, 2}, 8, draw, cases);
    AddAttentionCases(2, tokens, {4, 1}, 20, draw, cases);
  }
  // Several heads in a vector, and several vectors; few tokens, and slightly more.
  for (const int64_t tokens : {1, 7, 64, 65}) {
    AddAttentionCases(2, tokens, {16, 16}, 1, draw, cases);
    AddAttentionCases(1, tokens, {8, 8}, 2, draw, cases);
    AddAttentionCases(2, tokens, {12, 12}, 4, draw, cases);
  }
  AddAttentionCases(1, 33, {1, 1}, 100, draw, cases);
  AddAttentionCases(1, 301, {2, 1}, 5, draw, cases);  // more than one block of queries
  AddAttentionCases(1, 520, {1, 1}, 16, draw, cases);

  for (const int64_t head_dim : {1, 4, 7, 8, 20, 64}) {
    AddCachedAttentionCase({0}, 1, {4, 4}, head_dim, 16, draw, cases);
    AddCachedAttentionCase({13, 2}, 1, {4, 2}, head_dim, 16, draw, cases);
    AddCachedAttentionCase({100, 37}, 3, {4, 1}, head_dim, 130, draw, cases);
    AddCachedAttentionCase({0, 5}, 9, {4, 2}, head_dim, 16, draw, cases);
    AddCachedAttentionCase({61, 94}, 36, {2, 1}, head_dim, 130, draw, cases);
  }
  AddCachedAttentionCase({700}, 1, {8, 8}, 64, 1024, draw, cases);  // several tasks
  AddCachedAttentionCase({3}, 270, {2, 1}, 12, 280, draw, cases);   // and blocks of queries

  AddCachedAttentionCase({0}, 2, {4, 4}, 8, 16, draw, cases, 1);
  AddCachedAttentionCase({61, 94}, 36, {2, 1}, 20, 130, draw, cases, 1);
  AddCachedAttentionCase({100, 37}, 9, {4, 2}, 7, 130, draw, cases, 3);
  AddCachedAttentionCase({5, 94}, 36, {4, 1}, 64, 130, draw, cases, 17);
  AddCachedAttentionCase({3}, 270, {2, 1}, 12, 280, draw, cases, 260);
  AddCachedAttentionCase({0}, 512, {8, 8}, 64, 1024, draw, cases, 1);
}

// -- Convolution over tokens

void AddConvCases(int64_t batch, int64_t tokens, int64_t channels, int64_t width, bool bias,
                  std::vector<OpCase>* cases) {
  const Shape x = {batch, tokens, channels};
  OpCase forward;
  forward.op = "causal_conv";
  forward.name = absl::StrCat(x.ToString(), " width ", width, bias ? " bias" : "");
  forward.inputs = {Random(x), Random({channels, width})};
  if (bias) forward.inputs.push_back(Random({channels}));
  cases->push_back(forward);
  cases->push_back(InBf16(forward, {0}));

  OpCase grad = forward;
  grad.op = "causal_conv_grad";
  grad.inputs = {Random(x), Random({channels, width})};
  cases->push_back(grad);
  cases->push_back(InBf16(grad, {0}));

  OpCase weight_grad = forward;
  weight_grad.op = "causal_conv_weight_grad";
  weight_grad.inputs = {Random(x), Random(x)};
  weight_grad.attrs = {{"width", width}};
  cases->push_back(weight_grad);
  cases->push_back(InBf16(weight_grad, {0, 1}));
}

void AddCachedConv(std::vector<int32_t> first, int64_t tokens, int64_t channels, int64_t width,
                   bool bias, std::vector<OpCase>* cases) {
  const int64_t batch = static_cast<int64_t>(first.size()), capacity = 20;
  std::vector<int32_t> positions;
  for (const int32_t start : first) {
    for (int64_t t = 0; t < tokens; ++t) positions.push_back(start + static_cast<int32_t>(t));
  }
  OpCase c;
  c.op = "causal_conv_cached";
  c.name = absl::StrCat(tokens, " tokens from ", first[0], " channels ", channels, " width ", width,
                        bias ? " bias" : "");
  c.inputs = {Random({batch, tokens, channels}), Random({channels, width}),
              Random({batch, 1, capacity, channels}), Ints({batch, tokens}, positions)};
  if (bias) c.inputs.push_back(Random({channels}));
  cases->push_back(c);
  cases->push_back(InBf16(c, {0, 2}));
  for (const int64_t rows : {width, width + 2}) {
    OpCase ring = c;
    ring.name = absl::StrCat(c.name, " ring of ", rows);
    ring.inputs[2] = Random({batch, 1, rows, channels});
    ring.attrs = {{"ring", true}};
    cases->push_back(ring);
    cases->push_back(InBf16(ring, {0, 2}));
  }
}

void AddConvs(std::vector<OpCase>* cases) {
  AddConvCases(1, 1, 1, 1, true, cases);
  AddConvCases(2, 5, 7, 4, false, cases);
  AddConvCases(2, 3, 8, 5, true, cases);  // wider than the sequence
  AddConvCases(3, 17, 20, 2, true, cases);
  AddConvCases(2, 150, 33, 9, false, cases);  // several chunks of rows
  AddConvCases(4, 64, 200, 4, true, cases);   // several tasks
  AddCachedConv({0}, 1, 7, 4, false, cases);
  AddCachedConv({13, 2}, 1, 20, 4, true, cases);
  AddCachedConv({3, 0, 11}, 6, 33, 3, true, cases);
  AddCachedConv({1}, 19, 500, 6, false, cases);  // several tasks
}

// -- Linear attention

struct Recurrence {
  int64_t batch, tokens, heads, key_heads, key_dim, value_dim;
  enum { kNone, kPerHead, kPerKey } decay;
  bool delta;
  double slowest = -0.01, fastest = -1;  // range of the log decays
};

void AddLinearAttentionCases(const Recurrence& r, std::vector<OpCase>* cases) {
  const Shape keys = {r.batch, r.tokens, r.key_heads * r.key_dim};
  const Shape values = {r.batch, r.tokens, r.heads * r.value_dim};
  const int64_t decays = r.heads * (r.decay == Recurrence::kPerKey ? r.key_dim : 1);
  // Keys of length 1 and beta in 0..2 are where the delta rule is stable.
  const double unit = 1.7 / std::sqrt(static_cast<double>(r.key_dim));
  OpCase forward;
  forward.op = "linear_attention";
  forward.name = absl::StrCat(keys.ToString(), " ", values.ToString(), " of ", r.heads, " and ",
                              r.key_heads, " decay ", static_cast<int>(r.decay),
                              r.delta ? " delta" : "", r.fastest < -9 ? " fast" : "");
  forward.attrs = {{"n_head", r.heads}, {"n_key_head", r.key_heads}, {"train", true}};
  forward.tolerance = 2e-5;
  // The reference of a large case takes long.
  if (keys.num_elements() * r.value_dim > 50000) forward.checked_elements = 4;
  forward.inputs = {Random(keys), Random(keys, -unit, unit), Random(values)};
  std::vector<CaseInput> others = {Absent(), Absent()};
  if (r.decay != Recurrence::kNone) {
    others[0] = Random({r.batch, r.tokens, decays}, r.fastest, r.slowest);
  }
  if (r.delta) others[1] = Random({r.batch, r.tokens, r.heads}, 0, 1.5);
  const auto with_others = [&others](OpCase c) {
    c.inputs.insert(c.inputs.end(), others.begin(), others.end());
    return c;
  };
  const auto add = [&](const OpCase& c, std::vector<size_t> bf16) {
    cases->push_back(c);
    OpCase narrow = InBf16(c, bf16);
    narrow.checked_elements = 4;
    cases->push_back(narrow);
  };
  add(with_others(forward), {0, 1, 2, 3, 4});

  OpCase grad = forward;
  grad.op = "linear_attention_grad";
  const int64_t chunks = (r.tokens + 63) / 64;
  grad.inputs.push_back(Random({r.batch, r.heads, chunks, r.key_dim * r.value_dim}, -1, 1));
  grad.inputs.push_back(Random(values));
  add(with_others(grad), {0, 1, 2, 4, 5, 6});

  OpCase cached = forward;
  cached.op = "linear_attention_cached";
  cached.attrs = {{"n_head", r.heads}, {"n_key_head", r.key_heads}};
  cached.inputs.push_back(Random({r.batch, r.heads, r.key_dim * r.value_dim}, -1, 1));
  std::vector<int32_t> positions;
  for (int64_t b = 0; b < r.batch; ++b) {
    for (int64_t t = 0; t < r.tokens; ++t) positions.push_back(static_cast<int32_t>(5 * b + t));
  }
  cached.inputs.push_back(Ints({r.batch, r.tokens}, positions));
  add(with_others(cached), {0, 1, 2, 5, 6});
}

void AddLinearAttention(std::vector<OpCase>* cases) {
  for (const auto decay : {Recurrence::kNone, Recurrence::kPerHead, Recurrence::kPerKey}) {
    for (const bool delta : {false, true}) {
      AddLinearAttentionCases({1, 1, 1, 1, 1, 1, decay, delta}, cases);
      AddLinearAttentionCases({2, 3, 4, 2, 5, 7, decay, delta}, cases);
      AddLinearAttentionCases({1, 63, 2, 2, 18, 33, decay, delta}, cases);
      AddLinearAttentionCases({2, 150, 2, 1, 8, 6, decay, delta}, cases);
      AddLinearAttentionCases({3, 17, 6, 2, 64, 32, decay, delta}, cases);
      // Products of decays over a chunk are about e^-1300.
      AddLinearAttentionCases({1, 64, 1, 1, 16, 16, decay, delta, -0.01, -40}, cases);
    }
  }
}

// -- Cross entropy

void AddCrossEntropyCases(Shape logits, std::vector<int32_t> targets, const std::string& what,
                          std::vector<OpCase>* cases) {
  const int64_t rows = logits.rows();
  OpCase forward;
  forward.op = "cross_entropy";
  forward.name = absl::StrCat(logits.ToString(), " ", what);
  forward.inputs = {Random(logits), Ints({rows}, targets)};
  cases->push_back(forward);
  cases->push_back(InBf16(forward, {0}));

  OpCase by_row = forward;
  by_row.name += " rows";
  by_row.attrs = {{"rows", true}};
  cases->push_back(by_row);
  cases->push_back(InBf16(by_row, {0}));
  by_row.name += " smoothed";
  by_row.attrs.Set("label_smoothing", 0.1);
  by_row.differentiated_outputs = {2};
  cases->push_back(by_row);

  OpCase grad;
  grad.op = "cross_entropy_grad";
  grad.name = forward.name;
  grad.inputs = {Random(logits), Ints({rows}, targets), Random({rows}, 3, 4), Random({1}, 0.5, 2)};
  cases->push_back(grad);
  cases->push_back(InBf16(grad, {0}));

  for (const auto& [smoothing, z_loss] : {std::pair(0.1, 0.0), {0.0, 0.3}, {0.25, 0.2}}) {
    OpCase objective = forward;
    objective.name = absl::StrCat(forward.name, " smoothed ", smoothing, " z ", z_loss);
    objective.attrs = {{"label_smoothing", smoothing}, {"z_loss", z_loss}};
    objective.differentiated_outputs = {2};
    cases->push_back(objective);
    cases->push_back(InBf16(objective, {0}));
    objective.name += " both";
    objective.differentiated_outputs = {0, 2};
    cases->push_back(objective);
    OpCase its_grad = grad;
    its_grad.name = absl::StrCat(grad.name, " smoothed ", smoothing, " z ", z_loss);
    its_grad.attrs = objective.attrs;
    cases->push_back(its_grad);
    cases->push_back(InBf16(its_grad, {0}));
  }
}

void AddCrossEntropies(std::vector<OpCase>* cases) {
  AddCrossEntropyCases({1, 7, 27}, {0, 26, 3, 3, 15, 16, 9}, "all targets", cases);
  AddCrossEntropyCases({2, 2, 5}, {-1, 4, -100, 0}, "some ignored", cases);
  AddCrossEntropyCases({3, 17}, {-1, -1, -1}, "all ignored", cases);
  AddCrossEntropyCases({2, 1}, {0, 0}, "one word", cases);
  std::vector<int32_t> targets;
  for (int32_t r = 0; r < 70; ++r) targets.push_back(r % 9 == 8 ? -1 : r * 37 % 301);
  AddCrossEntropyCases({2, 35, 301}, targets, "several tasks", cases);

  // Several blocks of a row, the largest logit in the first, in the last, and all of them small.
  OpCase blocks;
  blocks.op = "cross_entropy";
  blocks.name = "blocks of a row";
  blocks.inputs = {Random({3, 8200}), Ints({3}, {0, 8199, 4096})};
  blocks.inputs[0].values.resize(3 * 8200);
  for (size_t e = 0; e < blocks.inputs[0].values.size(); ++e) {
    blocks.inputs[0].values[e] = static_cast<double>(e * 31 % 257) / 64 - 90;
  }
  blocks.inputs[0].values[0] = 20;
  blocks.inputs[0].values[2 * 8200 - 1] = 30;
  blocks.checked_elements = 2;
  cases->push_back(blocks);
  cases->push_back(InBf16(blocks, {0}));
  blocks.name = "blocks of a row, smoothed";
  blocks.attrs = {{"label_smoothing", 0.5}, {"z_loss", 1e-3}};
  blocks.differentiated_outputs = {2};
  cases->push_back(blocks);
}

// The function works in f32, which is too coarse for differences (tests/capi/host_loss_test.cc has
// those of a whole model).
void AddHostLoss(std::vector<OpCase>* cases) {
  static const HostLoss kHalfSquares = [](const float* logits, float* gradient) {
    double sum = 0;
    for (int i = 0; i < 3 * 7; ++i) {
      if (i % 3 == 0) continue;  // gradient[i] stays 0
      sum += static_cast<double>(logits[i]) * static_cast<double>(logits[i]) / 2;
      gradient[i] = logits[i];
    }
    return sum;
  };
  std::vector<int32_t> function(kHostLossWords);
  SetHostLoss(&kHalfSquares, function.data());
  OpCase c;
  c.op = "host_loss";
  c.name = "half of the squares";
  c.inputs = {Random({1, 3, 7}), Ints({kHostLossWords}, function)};
  c.differentiated_outputs = {};
  cases->push_back(c);
}

}  // namespace

std::vector<OpCase> SequenceOpCases() {
  std::vector<OpCase> cases;
  AddRopes(&cases);
  AddAttentions(Random, &cases);
  AddAttentions(RandomBf16, &cases);
  AddAttentionVariants(Random, &cases);
  AddAlibi(Random, &cases);
  AddKeyBiases(Random, &cases);
  AddRings(Random, &cases);
  AddAttentionVariants(RandomBf16, &cases);
  AddAlibi(RandomBf16, &cases);
  AddKeyBiases(RandomBf16, &cases);
  AddBidirectional(Random, &cases);
  AddBidirectional(RandomBf16, &cases);
  AddRings(RandomBf16, &cases);
  AddConvs(&cases);
  AddLinearAttention(&cases);
  AddCrossEntropies(&cases);
  AddHostLoss(&cases);
  return cases;
}

}  // namespace plumb
