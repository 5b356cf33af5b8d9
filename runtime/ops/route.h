// SPDX-License-Identifier: Apache-2.0
// The choice of experts for a token, shared by the ops of routers and their references. Stateless.
#ifndef PLUMB_RUNTIME_OPS_ROUTE_H_
#define PLUMB_RUNTIME_OPS_ROUTE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Conversion of logits to the weights of the chosen experts.
enum class RouterKind {
  kSoftmaxOfTopK,  // softmax over the chosen
  kSoftmax,        // softmax over all, not renormalized
  kSigmoid,        // each logit separately
};
// Parses "softmax_of_top_k", "softmax" or "sigmoid"; returns false for other names.
bool ParseRouterKind(absl::string_view name, RouterKind* kind);

// Finds the indices of the k largest of n scores, the largest first; of equal ones the lower index.
// `taken` has n bytes: those with 1 are not chosen, and the chosen become 1. A NaN may be chosen or
// not, but no index is chosen twice. Requires: at least k are 0.
template <class T>
void TopK(const T* scores, int64_t n, int64_t k, uint8_t* taken, int32_t* chosen) {
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = std::find(taken, taken + n, uint8_t{0}) - taken;
    for (int64_t e = best + 1; e < n; ++e) {
      if (taken[e] == 0 && scores[e] > scores[best]) best = e;
    }
    taken[best] = 1;
    chosen[j] = static_cast<int32_t>(best);
  }
}

// Computes p = softmax(logits) of n logits; p may be logits.
template <class T>
void ComputeSoftmax(const T* logits, int64_t n, T* p) {
  const T highest = *std::max_element(logits, logits + n);
  T sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += p[e] = std::exp(logits[e] - highest);
  for (int64_t e = 0; e < n; ++e) p[e] /= sum;
}

// A router: how a row of n logits becomes the choice of k experts and their weights.
struct Router {
  RouterKind kind = RouterKind::kSoftmaxOfTopK;
  int64_t rows = 0, experts = 0, top_k = 0;
  int64_t groups = 1, top_groups = 1;
  bool renormalize = false;  // kSigmoid only
  double scale = 1;
};

// Memory for the choice of one row, with `experts` elements each.
template <class T>
struct RouterRow {
  T* p;          // scores: sigmoids, or the softmax over all; unused by kSoftmaxOfTopK otherwise
  T* weights;    // of the chosen, before the scale
  T* selection;  // sums that are compared
  int32_t* chosen;
  uint8_t* taken;
};

// Marks the experts outside of the best groups as taken. A group's score is that of its best
// expert, or with `pairs` the sum of its two best. `weights` and `chosen` are scratch.
template <class T>
void ExcludeGroups(const Router& r, const T* scores, bool pairs, const RouterRow<T>& row) {
  const int64_t size = r.experts / r.groups;
  for (int64_t g = 0; g < r.groups; ++g) {
    const T* group = scores + g * size;
    const T* best = std::max_element(group, group + size);
    row.weights[g] = *best;
    if (!pairs || size == 1) continue;
    const T before = best == group ? group[1] : *std::max_element(group, best);
    const T after = best + 1 == group + size ? before : *std::max_element(best + 1, group + size);
    row.weights[g] += std::max(before, after);
  }
  std::fill_n(row.taken, r.groups, uint8_t{0});
  TopK(row.weights, r.groups, r.top_groups, row.taken, row.chosen);
  std::fill_n(row.taken, r.experts, uint8_t{1});
  for (int64_t j = 0; j < r.top_groups; ++j) {
    std::fill_n(row.taken + row.chosen[j] * size, size, uint8_t{0});
  }
}

// Chooses the experts of a row and computes their weights before the scale. `correction`, added to
// the scores for the choice only, may be null.
template <class T, class C>
void ChooseExperts(const Router& r, const T* logits, const C* correction, const RouterRow<T>& row) {
  const int64_t n = r.experts, k = r.top_k;
  if (r.kind == RouterKind::kSigmoid) {
    for (int64_t e = 0; e < n; ++e) row.p[e] = 1 / (1 + std::exp(-logits[e]));
  } else if (r.kind == RouterKind::kSoftmax || correction != nullptr) {
    ComputeSoftmax(logits, n, row.p);
  }
  const T* scores = logits;  // in the order of the scores
  if (correction != nullptr) {
    for (int64_t e = 0; e < n; ++e) row.selection[e] = row.p[e] + static_cast<T>(correction[e]);
    scores = row.selection;
  }
  std::fill_n(row.taken, n, uint8_t{0});
  if (r.groups > r.top_groups) ExcludeGroups(r, scores, correction != nullptr, row);
  TopK(scores, n, k, row.taken, row.chosen);
  const T* weights = r.kind == RouterKind::kSoftmaxOfTopK ? logits : row.p;
  for (int64_t j = 0; j < k; ++j) row.weights[j] = weights[row.chosen[j]];
  if (r.kind == RouterKind::kSoftmaxOfTopK) ComputeSoftmax(row.weights, k, row.weights);
  if (!r.renormalize) return;
  T sum = static_cast<T>(1e-20);
  for (int64_t j = 0; j < k; ++j) sum += row.weights[j];
  for (int64_t j = 0; j < k; ++j) row.weights[j] /= sum;
}

// Fails unless `starts` of groups of `rows` rows is ascending, from 0 to rows.
absl::Status CheckStarts(const int32_t* starts, int64_t groups, int64_t rows);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_ROUTE_H_
