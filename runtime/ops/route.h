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

// Finds the indices of the k largest of n logits, the largest first; of equal ones the lower index.
// `taken` is scratch of n bytes. A NaN may be chosen or not, but no index is chosen twice.
// Requires: k <= n.
template <class T>
void TopK(const T* logits, int64_t n, int64_t k, uint8_t* taken, int32_t* chosen) {
  std::fill_n(taken, n, uint8_t{0});
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = std::find(taken, taken + n, uint8_t{0}) - taken;
    for (int64_t e = best + 1; e < n; ++e) {
      if (taken[e] == 0 && logits[e] > logits[best]) best = e;
    }
    taken[best] = 1;
    chosen[j] = static_cast<int32_t>(best);
  }
}

// Computes p = softmax(logits) of n logits; p may be logits.
template <class T>
void SoftmaxOf(const T* logits, int64_t n, T* p) {
  const T highest = *std::max_element(logits, logits + n);
  T sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += p[e] = std::exp(logits[e] - highest);
  for (int64_t e = 0; e < n; ++e) p[e] /= sum;
}

// Computes the weights of the k chosen of n logits, before the scale. `p` is scratch of n elements;
// for kSoftmax it becomes the softmax over all, which the gradient needs.
template <class T>
void RouterWeights(RouterKind kind, const T* logits, int64_t n, const int32_t* chosen, int64_t k,
                   T* p, T* weights) {
  if (kind == RouterKind::kSoftmax) SoftmaxOf(logits, n, p);
  for (int64_t j = 0; j < k; ++j) {
    const T logit = logits[chosen[j]];
    weights[j] = kind == RouterKind::kSoftmax   ? p[chosen[j]]
                 : kind == RouterKind::kSigmoid ? 1 / (1 + std::exp(-logit))
                                                : logit;
  }
  if (kind == RouterKind::kSoftmaxOfTopK) SoftmaxOf(weights, k, weights);
}

// Fails unless `starts` of groups of `rows` rows is ascending, from 0 to rows.
absl::Status CheckStarts(const int32_t* starts, int64_t groups, int64_t rows);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_ROUTE_H_
