// Cases of the ops that mix tokens, and of the loss: rotary embedding, attention, cross entropy.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

void AddRopes(std::vector<OpCase>* cases) {
  cases->push_back(Rope(1, 7, 4, 4, 0, false));
  cases->push_back(Rope(1, 3, 2, 2, 0, true));
  cases->push_back(Rope(2, 5, 1, 6, 1000, false));
  cases->push_back(Rope(1, 1, 3, 20, 100000, false));
  cases->push_back(Rope(1, 4, 2, 34, 17, true));
  cases->push_back(Rope(4, 64, 4, 64, 0, false));  // several tasks
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

// Draws f32 or bf16 operands.
using Draw = CaseInput (*)(Shape shape, double low, double high);

// Probabilities and their gradients may be rounded to bf16 for the matrix products: by half of the
// last of eight bits, in sums of many.
constexpr double kBf16Tolerance = 4e-3;

void AddAttentionCases(int64_t batch, int64_t tokens, Heads heads, int64_t head_dim, Draw draw,
                       std::vector<OpCase>* cases) {
  const Shape q = {batch, tokens, heads.q * head_dim}, kv = {batch, tokens, heads.kv * head_dim};
  const bool bf16 = draw == RandomBf16;
  const auto random = [draw](const Shape& shape) { return draw(shape, -2, 2); };
  OpCase forward;
  forward.op = "attention";
  forward.name = AttentionName(batch, tokens, heads, head_dim) + (bf16 ? " bf16" : "");
  forward.inputs = {random(q), random(kv), random(kv)};
  forward.attrs = AttentionAttrs(heads, head_dim);
  forward.tolerance = bf16 ? kBf16Tolerance : 4e-6;
  // A difference of the naive reference is expensive where it is long.
  forward.checked_elements = tokens * head_dim > 1000 ? 3 : 24;
  cases->push_back(forward);

  OpCase grad;
  grad.op = "attention_grad";
  grad.name = forward.name;
  grad.inputs = {
      random(q), random(kv), random(kv), random(q), Random({batch, heads.q, tokens}, 2, 3),
      random(q)};
  grad.attrs = forward.attrs;
  grad.tolerance = bf16 ? kBf16Tolerance : 1e-5;
  cases->push_back(grad);
}

// With `queries` for the last of the tokens; 0: for all.
void AddCachedAttentionCase(std::vector<int32_t> first, int64_t tokens, Heads heads,
                            int64_t head_dim, int64_t capacity, Draw draw,
                            std::vector<OpCase>* cases, int64_t queries = 0) {
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
  cases->push_back(c);
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

}  // namespace

std::vector<OpCase> SequenceOpCases() {
  std::vector<OpCase> cases;
  AddRopes(&cases);
  AddAttentions(Random, &cases);
  AddAttentions(RandomBf16, &cases);
  AddCrossEntropies(&cases);
  return cases;
}

}  // namespace plumb
