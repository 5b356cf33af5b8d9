// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/attention_figures.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/bf16.h"
#include "runtime/base/parallel.h"

namespace plumb {
namespace {

float FigureElement(float x) { return x; }
float FigureElement(uint16_t x) { return FloatFromBf16(x); }

// Sums in eight parts, which compilers turn into SIMD code.
template <class T>
float FigureDot(const T* a, const T* b, int64_t n) {
  constexpr int64_t kParts = 8;
  float parts[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= n; i += kParts) {
    for (int64_t j = 0; j < kParts; ++j) {
      parts[j] += FigureElement(a[i + j]) * FigureElement(b[i + j]);
    }
  }
  float sum = 0;
  for (; i < n; ++i) sum += FigureElement(a[i]) * FigureElement(b[i]);
  for (const float part : parts) sum += part;
  return sum;
}

// Computes the figures of all queries of a head. With p = exp(s - lse), the entropy is
// -sum p log p = sum p (lse - s).
template <class T>
void ComputeFiguresOfHead(const AttentionShape& shape, const AttentionOperands& operands,
                          int64_t row, int64_t head, float* entropy, float* max_logit) {
  const int64_t c = shape.head_dim, at = (row * shape.heads + head) * shape.tokens;
  const T* const q =
      static_cast<const T*>(operands.q) + row * shape.tokens * shape.q_stride() + head * c;
  const T* const k = static_cast<const T*>(operands.k) + row * shape.tokens * shape.kv_stride() +
                     head / shape.group() * c;
  const auto scale = static_cast<float>(shape.scale), cap = static_cast<float>(shape.cap),
             slope = static_cast<float>(shape.Slope(head));
  const float* biases = operands.key_bias;
  if (biases != nullptr) biases += row * shape.tokens * shape.heads + head;
  for (int64_t i = 0; i < shape.tokens; ++i) {
    const float lse = operands.lse[at + i];
    float top = 0;
    double sum = 0;
    const auto add = [&](float logit) {
      top = std::max(top, std::abs(logit));
      const float below = lse - logit;
      sum += static_cast<double>(std::exp(-below) * below);
    };
    const int64_t begin = shape.first_key(i);
    const int64_t end =
        operands.lengths == nullptr ? i + 1 : shape.end_key(i, operands.lengths[row]);
    for (int64_t j = begin; j < end; ++j) {
      float logit = scale * FigureDot(q + i * shape.q_stride(), k + j * shape.kv_stride(), c);
      if (cap != 0) logit = cap * std::tanh(logit / cap);
      if (biases != nullptr) logit += biases[j * shape.heads] - biases[i * shape.heads];
      add(logit - slope * static_cast<float>(std::abs(i - j)));
    }
    if (operands.sinks != nullptr) add(operands.sinks[head]);
    entropy[at + i] = static_cast<float>(sum);
    max_logit[at + i] = top;
  }
}

}  // namespace

void ComputeAttentionFigures(const AttentionShape& shape, const AttentionOperands& operands,
                             int threads, float* entropy, float* max_logit) {
  ParallelFor(shape.batch * shape.heads, threads, [&](int64_t item) {
    const int64_t row = item / shape.heads, head = item % shape.heads;
    if (operands.is_bf16) {
      ComputeFiguresOfHead<uint16_t>(shape, operands, row, head, entropy, max_logit);
    } else {
      ComputeFiguresOfHead<float>(shape, operands, row, head, entropy, max_logit);
    }
  });
}

}  // namespace plumb
