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

void AddAttentionCases(int64_t batch, int64_t tokens, Heads heads, int64_t head_dim,
                       std::vector<OpCase>* cases) {
  const Shape q = {batch, tokens, heads.q * head_dim}, kv = {batch, tokens, heads.kv * head_dim};
  OpCase forward;
  forward.op = "attention";
  forward.name = AttentionName(batch, tokens, heads, head_dim);
  forward.inputs = {Random(q), Random(kv), Random(kv)};
  forward.attrs = AttentionAttrs(heads, head_dim);
  forward.tolerance = 4e-6;
  // A difference of the naive reference is expensive where it is long.
  forward.checked_elements = tokens * head_dim > 1000 ? 3 : 24;
  cases->push_back(forward);

  OpCase grad;
  grad.op = "attention_grad";
  grad.name = forward.name;
  grad.inputs = {
      Random(q), Random(kv), Random(kv), Random(q), Random({batch, heads.q, tokens}, 2, 3),
      Random(q)};
  grad.attrs = forward.attrs;
  grad.tolerance = 1e-5;
  cases->push_back(grad);
}

void AddCachedAttentionCase(std::vector<int32_t> first, int64_t tokens, Heads heads,
                            int64_t head_dim, int64_t capacity, std::vector<OpCase>* cases) {
  const int64_t batch = static_cast<int64_t>(first.size());
  std::vector<int32_t> positions;
  for (const int32_t start : first) {
    for (int64_t t = 0; t < tokens; ++t) positions.push_back(start + static_cast<int32_t>(t));
  }
  OpCase c;
  c.op = "attention_cached";
  c.name = absl::StrCat(AttentionName(batch, tokens, heads, head_dim), " from ", first[0], " of ",
                        capacity);
  const Shape kv = {batch, tokens, heads.kv * head_dim};
  const Shape cache = {batch, capacity, heads.kv * head_dim};
  c.inputs = {Random({batch, tokens, heads.q * head_dim}),
              Random(kv),
              Random(kv),
              Random(cache),
              Random(cache),
              Ints({batch, tokens}, positions)};
  c.attrs = AttentionAttrs(heads, head_dim);
  c.tolerance = 4e-6;
  cases->push_back(c);
}

void AddAttentions(std::vector<OpCase>* cases) {
  // Tile, block and vector sizes and their neighbours, in tokens and in channels.
  for (const int64_t tokens : {1, 2, 5, 16, 17, 64, 130}) {
    for (const int64_t head_dim : {1, 4, 8, 20, 64}) {
      AddAttentionCases(tokens < 20 ? 2 : 1, tokens, {4, 4}, head_dim, cases);
    }
    AddAttentionCases(1, tokens, {4, 2}, 8, cases);
    AddAttentionCases(2, tokens, {4, 1}, 20, cases);
  }
  AddAttentionCases(1, 33, {1, 1}, 100, cases);

  for (const int64_t head_dim : {1, 4, 7, 8, 20, 64}) {
    AddCachedAttentionCase({0}, 1, {4, 4}, head_dim, 16, cases);
    AddCachedAttentionCase({13, 2}, 1, {4, 2}, head_dim, 16, cases);
    AddCachedAttentionCase({100, 37}, 3, {4, 1}, head_dim, 130, cases);
    AddCachedAttentionCase({0, 5}, 9, {4, 2}, head_dim, 16, cases);
    AddCachedAttentionCase({61, 94}, 36, {2, 1}, head_dim, 130, cases);
  }
  AddCachedAttentionCase({700}, 1, {8, 8}, 64, 1024, cases);  // several tasks
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

  OpCase grad;
  grad.op = "cross_entropy_grad";
  grad.name = forward.name;
  grad.inputs = {Random(logits), Ints({rows}, targets), Random({rows}, 3, 4), Random({1}, 0.5, 2)};
  cases->push_back(grad);
}

void AddCrossEntropies(std::vector<OpCase>* cases) {
  AddCrossEntropyCases({1, 7, 27}, {0, 26, 3, 3, 15, 16, 9}, "all targets", cases);
  AddCrossEntropyCases({2, 2, 5}, {-1, 4, -100, 0}, "some ignored", cases);
  AddCrossEntropyCases({3, 17}, {-1, -1, -1}, "all ignored", cases);
  AddCrossEntropyCases({2, 1}, {0, 0}, "one word", cases);
  std::vector<int32_t> targets;
  for (int32_t r = 0; r < 70; ++r) targets.push_back(r % 9 == 8 ? -1 : r * 37 % 301);
  AddCrossEntropyCases({2, 35, 301}, targets, "several tasks", cases);
}

}  // namespace

std::vector<OpCase> SequenceOpCases() {
  std::vector<OpCase> cases;
  AddRopes(&cases);
  AddAttentions(&cases);
  AddCrossEntropies(&cases);
  return cases;
}

}  // namespace plumb
