// SPDX-License-Identifier: Apache-2.0
// Training step of the study's model (examples/why_normalise/pre.pbtxt), written by hand for this
// model only: a peer of plumb for compare_peers.py, which calls it through loop_steps.py. One
// sequence, one thread.
//
//   c++ -O3 -march=native -ffast-math -shared -fPIC peer_loop.cc -o libpeer_loop.so
//
// Activations are stored feature by feature, eight tokens in a vector, so that every pass but the
// gradients of weights computes eight tokens at once and never sums across a vector. All weights
// are rows of 16. A gradient is not stored: AdamW takes each row of it while it is in registers,
// after the last use of the weight.
#include <cmath>
#include <cstddef>
#include <cstring>

namespace {

constexpr int kLayers = 8, kHeads = 4, kWidth = 16, kHidden = 64, kContext = 16, kVocab = 27;
constexpr int kHead = kWidth / kHeads, kLanes = 8, kBlocks = kContext / kLanes;
constexpr float kEpsilon = 1e-5f;  // in the norms
constexpr float kScale = 0.5f;     // 1 / sqrt(kHead)
constexpr float kBeta1 = 0.9f, kAdamEpsilon = 1e-8f;

using Lanes =
    float __attribute__((vector_size(4 * kLanes)));  // values of eight tokens, or of half a row
using Ints = int __attribute__((vector_size(4 * kLanes)));
using Row = float[kWidth];

struct Layer {
  Row norm1, qkv[3 * kWidth], o[kWidth], norm2, up[kHidden];
  Row down[kHidden];  // transposed
};

struct Parameters {
  Row tokens[kVocab], positions[kContext];
  Layer layers[kLayers];
  Row norm, head[kVocab];
};
constexpr size_t kParameters = sizeof(Parameters) / sizeof(float);
static_assert(kParameters == 25968, "the study's model");

// Normalized values before the weight, and 1 / rms.
struct Norm {
  Lanes hat[kWidth], inverse;
};

// Activations of eight tokens in a layer, which its backward pass needs.
struct Block {
  Norm norm1, norm2;
  Lanes qkv[3 * kWidth], context[kWidth], hidden[kHidden];
  Lanes max[kHeads],
      inverse[kHeads];  // of a row of scores: its maximum, and 1 / the sum of exponentials
  Lanes softmax[kHeads][kContext];  // by key; lanes are queries
};

struct Loop {
  alignas(64) float state[3][kParameters];  // weights, first moments, second moments
  Block blocks[kLayers][kBlocks];
  float learning_rate, beta2, weight_decay;
  double power1 = 1, power2 = 1;  // beta1 and beta2 to the number of steps
  float rate, root, keep;         // factors of this step's update
};

// Returns e^x of x <= 0, with a relative error of about 2e-7.
inline Lanes Exp(Lanes x) {
  x = x > -87.0f ? x : x * 0 - 87.0f;
  const Ints n = __builtin_convertvector(x * 1.44269504f - 0.5f, Ints);
  const Lanes r = x - __builtin_convertvector(n, Lanes) * 0.693147181f;
  const Lanes series =
      1 +
      r * (1 + r * (0.5f + r * (0.166666667f +
                                r * (0.0416666667f + r * (8.33333333e-3f + r * 1.38888889e-3f)))));
  return series * (Lanes)((n + 127) << 23);
}

inline Lanes Max(Lanes a, Lanes b) { return a > b ? a : b; }

inline Lanes Sqrt(Lanes x) {
  for (int t = 0; t < kLanes; ++t) x[t] = std::sqrt(x[t]);
  return x;
}

inline float Sum(Lanes x) {
  float sum = 0;
  for (int t = 0; t < kLanes; ++t) sum += x[t];
  return sum;
}

// Returns a vector whose lane t is true if token t of a block, counted from `begin`, is in [from,
// to).
inline Ints Between(int from, int to, int begin) {
  const Ints token = Ints{0, 1, 2, 3, 4, 5, 6, 7} + begin;
  return (token >= from) & (token < to);
}

// y[n] = sum over i of w[n][i] x[i]
template <int N>
inline void Multiply(const Row* w, const Lanes* x, Lanes* y) {
  constexpr int kTogether = N % 4 == 0 ? 4 : 3;
  for (int n = 0; n < N; n += kTogether) {
    Lanes sum[kTogether];
#pragma GCC unroll 4
    for (int k = 0; k < kTogether; ++k) sum[k] = w[n + k][0] * x[0];
#pragma GCC unroll 16
    for (int i = 1; i < kWidth; ++i) {
#pragma GCC unroll 4
      for (int k = 0; k < kTogether; ++k) sum[k] += w[n + k][i] * x[i];
    }
    for (int k = 0; k < kTogether; ++k) y[n + k] = sum[k];
  }
}

// y[i] = sum over n of w[n][i] x[n]
template <int N>
inline void MultiplyTransposed(const Row* w, const Lanes* x, Lanes* y) {
  for (int half = 0; half < kWidth; half += 8) {
    Lanes sum[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) sum[i] = Lanes{};
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) sum[i] += w[n][half + i] * x[n];
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) y[half + i] = sum[i];
  }
}

// Updates eight weights by AdamW.
inline void Update(const Loop& loop, Lanes* w, Lanes gradient) {
  constexpr size_t kStep = kParameters / kLanes;
  const Lanes first = kBeta1 * w[kStep] + (1 - kBeta1) * gradient;
  const Lanes second = loop.beta2 * w[2 * kStep] + (1 - loop.beta2) * gradient * gradient;
  w[kStep] = first;
  w[2 * kStep] = second;
  w[0] = loop.keep * w[0] - loop.rate * first / (Sqrt(second) * loop.root + kAdamEpsilon);
}

// Updates a row of weights.
inline void Update(const Loop& loop, Row& w, Lanes low, Lanes high) {
  Update(loop, reinterpret_cast<Lanes*>(w), low);
  Update(loop, reinterpret_cast<Lanes*>(w) + 1, high);
}

inline void Update(const Loop& loop, Row& w, const Row& gradient) {
  const Lanes* halves = reinterpret_cast<const Lanes*>(gradient);
  Update(loop, w, halves[0], halves[1]);
}

// Writes the values of each token as a row.
inline void Transpose(const Lanes* x, float (*rows)[kWidth]) {
  for (int t = 0; t < kLanes; ++t) {
    for (int i = 0; i < kWidth; ++i) rows[t][i] = x[i][t];
  }
}

// Updates w by the gradient sum over t of dy[n][t] rows[t]; blocks of dy are `stride` vectors
// apart.
template <int N>
inline void UpdateMatrix(const Loop& loop, Row* w, const Lanes* dy, size_t stride, const Row* rows,
                         int count) {
  constexpr int kTogether = N % 4 == 0 ? 4 : 3;
  for (int n = 0; n < N; n += kTogether) {
    Lanes low[kTogether], high[kTogether];
#pragma GCC unroll 4
    for (int k = 0; k < kTogether; ++k) low[k] = high[k] = Lanes{};
    for (int b = 0; b * kLanes < count; ++b) {
      const float* d = reinterpret_cast<const float*>(dy + b * stride + n);
      const Lanes* row = reinterpret_cast<const Lanes*>(rows + b * kLanes);
      for (int t = b * kLanes; t < count && t < (b + 1) * kLanes; ++t, ++d, row += 2) {
#pragma GCC unroll 4
        for (int k = 0; k < kTogether; ++k) {
          low[k] += d[k * kLanes] * row[0];
          high[k] += d[k * kLanes] * row[1];
        }
      }
    }
#pragma GCC unroll 4
    for (int k = 0; k < kTogether; ++k) Update(loop, w[n + k], low[k], high[k]);
  }
}

// y = x / rms(x) * w
inline void Normalize(const Lanes* x, const Row& w, Norm* norm, Lanes* y) {
  Lanes squares = {};
  for (int i = 0; i < kWidth; ++i) squares += x[i] * x[i];
  norm->inverse = 1 / Sqrt(squares / kWidth + kEpsilon);
  for (int i = 0; i < kWidth; ++i) {
    norm->hat[i] = x[i] * norm->inverse;
    y[i] = norm->hat[i] * w[i];
  }
}

// Adds the gradient of a norm's input to dx, and that of its weight, in lanes, to dw.
inline void NormalizeBackward(const Norm& norm, const Row& w, const Lanes* dy, Lanes* dx,
                              Lanes* dw) {
  Lanes product = {};
  for (int i = 0; i < kWidth; ++i) {
    const Lanes d = dy[i] * norm.hat[i];
    dw[i] += d;
    product += d * w[i];
  }
  product /= kWidth;
  for (int i = 0; i < kWidth; ++i) dx[i] += norm.inverse * (dy[i] * w[i] - norm.hat[i] * product);
}

// Updates a norm's weight.
inline void UpdateNorm(const Loop& loop, Row& w, const Lanes* dw) {
  alignas(Lanes) Row gradient;
  for (int i = 0; i < kWidth; ++i) gradient[i] = Sum(dw[i]);
  Update(loop, w, gradient);
}

// Attention of the queries of block b, to the keys up to its last token.
inline void Attend(Block* blocks, int b, int count) {
  Block& block = blocks[b];
  const int keys = count < (b + 1) * kLanes ? count : (b + 1) * kLanes;
  for (int h = 0; h < kHeads; ++h) {
    const int q = h * kHead, k = kWidth + q, v = 2 * kWidth + q;
    Lanes query[kHead], context[kHead], scores[kContext], max = Lanes{} - 1e30f, sum = {};
    for (int d = 0; d < kHead; ++d) {
      query[d] = block.qkv[q + d] * kScale;
      context[d] = Lanes{};
    }
    for (int j = 0; j < keys; ++j) {
      const Lanes* key = blocks[j / kLanes].qkv + k;
      const int at = j % kLanes;
      const Lanes s = query[0] * key[0][at] + query[1] * key[1][at] + query[2] * key[2][at] +
                      query[3] * key[3][at];
      scores[j] = Between(j, kContext, b * kLanes) ? s : Lanes{} - 1e30f;
      max = Max(max, scores[j]);
    }
    for (int j = 0; j < keys; ++j) {
      const Lanes* value = blocks[j / kLanes].qkv + v;
      const Lanes e = Exp(scores[j] - max);
      block.softmax[h][j] = e;
      sum += e;
      for (int d = 0; d < kHead; ++d) context[d] += e * value[d][j % kLanes];
    }
    block.max[h] = max;
    block.inverse[h] = 1 / sum;
    for (int d = 0; d < kHead; ++d) block.context[q + d] = context[d] * block.inverse[h];
  }
}

// Gradients of queries, in lanes of queries, from the stored softmax.
inline void BackwardQueries(const Block* blocks, int b, int count, const Lanes* dcontext,
                            const Lanes* product, Lanes* dqkv) {
  const Block& block = blocks[b];
  const int keys = count < (b + 1) * kLanes ? count : (b + 1) * kLanes;
  for (int h = 0; h < kHeads; ++h) {
    const int q = h * kHead, k = kWidth + q, v = 2 * kWidth + q;
    const Lanes factor = block.inverse[h] * kScale;
    Lanes dq[kHead];
    for (int i = 0; i < kHead; ++i) dq[i] = Lanes{};
    for (int j = 0; j < keys; ++j) {
      const Lanes* qkv = blocks[j / kLanes].qkv;
      const int at = j % kLanes;
      Lanes d = -product[h];
      for (int i = 0; i < kHead; ++i) d += dcontext[q + i] * qkv[v + i][at];
      d *= block.softmax[h][j];
      for (int i = 0; i < kHead; ++i) dq[i] += d * qkv[k + i][at];
    }
    for (int i = 0; i < kHead; ++i) dqkv[q + i] = dq[i] * factor;
  }
}

// Gradients of the keys and values of block b, in lanes of keys, for which the softmax is computed
// again.
inline void BackwardKeys(const Block* blocks, int b, int count, const Lanes (*dcontext)[kWidth],
                         const Lanes (*product)[kHeads], Lanes* dqkv) {
  const Lanes* keys = blocks[b].qkv;
  for (int h = 0; h < kHeads; ++h) {
    const int q = h * kHead, k = kWidth + q, v = 2 * kWidth + q;
    Lanes dk[kHead], dv[kHead];
    for (int i = 0; i < kHead; ++i) dk[i] = dv[i] = Lanes{};
    for (int j = b * kLanes; j < count; ++j) {
      const Block& queries = blocks[j / kLanes];
      const Lanes* d_at = dcontext[j / kLanes] + q;
      const int at = j % kLanes;
      Lanes s = Lanes{} - queries.max[h][at], d = Lanes{} - product[j / kLanes][h][at];
      for (int i = 0; i < kHead; ++i) {
        s += queries.qkv[q + i][at] * kScale * keys[k + i];
        d += d_at[i][at] * keys[v + i];
      }
      s = Between(0, j + 1, b * kLanes) ? s : Lanes{} - 1e30f;
      const Lanes p = Exp(s) * queries.inverse[h][at];
      d *= p * kScale;
      for (int i = 0; i < kHead; ++i) {
        dv[i] += p * d_at[i][at];
        dk[i] += d * queries.qkv[q + i][at];
      }
    }
    for (int i = 0; i < kHead; ++i) {
      dqkv[k + i] = dk[i];
      dqkv[v + i] = dv[i];
    }
  }
}

// Replaces the stream x by that after the layer.
void LayerForward(const Layer& w, Block* blocks, int count, Lanes (*x)[kWidth]) {
  const int block_count = (count + kLanes - 1) / kLanes;
  Lanes y[kWidth];
  for (int b = 0; b < block_count; ++b) {
    Block& block = blocks[b];
    Normalize(x[b], w.norm1, &block.norm1, y);
    Multiply<3 * kWidth>(w.qkv, y, block.qkv);
    Attend(blocks, b, count);
    Multiply<kWidth>(w.o, block.context, y);
    for (int i = 0; i < kWidth; ++i) x[b][i] += y[i];
    Normalize(x[b], w.norm2, &block.norm2, y);
    Multiply<kHidden>(w.up, y, block.hidden);
    for (int i = 0; i < kHidden; ++i) block.hidden[i] = Max(block.hidden[i], Lanes{});
    MultiplyTransposed<kHidden>(w.down, block.hidden, y);
    for (int i = 0; i < kWidth; ++i) x[b][i] += y[i];
  }
}

// Propagates dx backward through a layer, and updates its weights.
void LayerBackward(const Loop& loop, Layer* w, const Block* blocks, int count,
                   Lanes (*dx)[kWidth]) {
  const int block_count = (count + kLanes - 1) / kLanes;
  alignas(64) Row stream_rows[kContext], input_rows[kContext];
  Lanes dhidden[kBlocks][kHidden], dqkv[kBlocks][3 * kWidth], dcontext[kBlocks][kWidth],
      product[kBlocks][kHeads];
  Lanes dy[kWidth], dw[kWidth] = {};
  for (int b = 0; b < block_count; ++b) {
    const Block& block = blocks[b];
    Lanes y[kWidth];
    Transpose(dx[b], stream_rows + b * kLanes);
    for (int i = 0; i < kWidth; ++i) y[i] = block.norm2.hat[i] * w->norm2[i];
    Transpose(y, input_rows + b * kLanes);
    Multiply<kHidden>(w->down, dx[b], dhidden[b]);
    for (int i = 0; i < kHidden; ++i) dhidden[b][i] = block.hidden[i] > 0 ? dhidden[b][i] : Lanes{};
    MultiplyTransposed<kHidden>(w->up, dhidden[b], dy);
    NormalizeBackward(block.norm2, w->norm2, dy, dx[b], dw);
  }
  UpdateMatrix<kHidden>(loop, w->down, blocks[0].hidden, sizeof(Block) / sizeof(Lanes), stream_rows,
                        count);
  UpdateMatrix<kHidden>(loop, w->up, dhidden[0], kHidden, input_rows, count);
  UpdateNorm(loop, w->norm2, dw);

  for (int b = 0; b < block_count; ++b) {
    const Block& block = blocks[b];
    Transpose(block.context, input_rows + b * kLanes);
    MultiplyTransposed<kWidth>(w->o, dx[b], dcontext[b]);
    for (int h = 0; h < kHeads; ++h) {
      product[b][h] = Lanes{};
      for (int i = h * kHead; i < (h + 1) * kHead; ++i)
        product[b][h] += dcontext[b][i] * block.context[i];
    }
    BackwardQueries(blocks, b, count, dcontext[b], product[b], dqkv[b]);
  }
  UpdateMatrix<kWidth>(loop, w->o, dx[0], kWidth, input_rows, count);
  for (int i = 0; i < kWidth; ++i) dw[i] = Lanes{};
  for (int b = 0; b < block_count; ++b) {
    Lanes y[kWidth];
    BackwardKeys(blocks, b, count, dcontext, product, dqkv[b]);
    for (int i = 0; i < kWidth; ++i) y[i] = blocks[b].norm1.hat[i] * w->norm1[i];
    Transpose(y, input_rows + b * kLanes);
    MultiplyTransposed<3 * kWidth>(w->qkv, dqkv[b], dy);
    NormalizeBackward(blocks[b].norm1, w->norm1, dy, dx[b], dw);
  }
  UpdateMatrix<3 * kWidth>(loop, w->qkv, dqkv[0], 3 * kWidth, input_rows, count);
  UpdateNorm(loop, w->norm1, dw);
}

// Returns the sum of the losses of a block's tokens; replaces logits by their gradients.
float CrossEntropy(Lanes* logits, const int* targets, int count, int begin, float scale) {
  Lanes max = logits[0], sum = {};
  for (int i = 1; i < kVocab; ++i) max = Max(max, logits[i]);
  float loss = 0;
  for (int t = 0; t < kLanes && begin + t < count; ++t)
    loss += max[t] - logits[targets[begin + t]][t];
  for (int i = 0; i < kVocab; ++i) sum += logits[i] = Exp(logits[i] - max);
  const Lanes factor = Between(0, count, begin) ? scale / sum : Lanes{};
  for (int i = 0; i < kVocab; ++i) logits[i] *= factor;
  for (int t = 0; t < kLanes && begin + t < count; ++t) {
    loss += std::log(sum[t]);
    logits[targets[begin + t]][t] -= scale;
  }
  return loss;
}

// Updates the weights; returns the mean loss before the update.
float Step(Loop* loop, const int* tokens, const int* targets, int count) {
  Parameters* w = reinterpret_cast<Parameters*>(loop->state[0]);
  const int block_count = (count + kLanes - 1) / kLanes;
  loop->power1 *= kBeta1;
  loop->power2 *= loop->beta2;
  loop->rate = static_cast<float>(loop->learning_rate / (1 - loop->power1));
  loop->root = static_cast<float>(1 / std::sqrt(1 - loop->power2));
  loop->keep = 1 - loop->learning_rate * loop->weight_decay;

  Lanes x[kBlocks][kWidth] = {}, logits[kBlocks][kVocab], y[kWidth], dw[kWidth] = {};
  Norm norm[kBlocks];
  alignas(64) Row rows[kContext];
  for (int t = 0; t < count; ++t) {
    for (int i = 0; i < kWidth; ++i) {
      x[t / kLanes][i][t % kLanes] = w->tokens[tokens[t]][i] + w->positions[t][i];
    }
  }
  for (int l = 0; l < kLayers; ++l) LayerForward(w->layers[l], loop->blocks[l], count, x);
  float loss = 0;
  for (int b = 0; b < block_count; ++b) {
    Normalize(x[b], w->norm, &norm[b], y);
    Transpose(y, rows + b * kLanes);
    Multiply<kVocab>(w->head, y, logits[b]);
    loss += CrossEntropy(logits[b], targets, count, b * kLanes, 1.0f / count);
  }

  for (int b = 0; b < block_count; ++b) {  // x is the gradient of the stream from here on
    MultiplyTransposed<kVocab>(w->head, logits[b], y);
    for (int i = 0; i < kWidth; ++i) x[b][i] = Lanes{};
    NormalizeBackward(norm[b], w->norm, y, x[b], dw);
  }
  UpdateMatrix<kVocab>(*loop, w->head, logits[0], kVocab, rows, count);
  UpdateNorm(*loop, w->norm, dw);
  for (int l = kLayers - 1; l >= 0; --l)
    LayerBackward(*loop, &w->layers[l], loop->blocks[l], count, x);
  alignas(Lanes) Row dtokens[kVocab] = {}, dpositions[kContext] = {};
  for (int b = 0; b < block_count; ++b) Transpose(x[b], dpositions + b * kLanes);
  for (int t = 0; t < count; ++t) {
    for (int i = 0; i < kWidth; ++i) dtokens[tokens[t]][i] += dpositions[t][i];
  }
  for (int n = 0; n < kVocab; ++n) Update(*loop, w->tokens[n], dtokens[n]);
  for (int n = 0; n < kContext; ++n) Update(*loop, w->positions[n], dpositions[n]);
  return loss / count;
}

}  // namespace

extern "C" {

// Returns a model with these weights, in the order of Parameters; it is never released.
Loop* loop_create(const float* weights, int count, float learning_rate, float beta2,
                  float weight_decay) {
  if (count != kParameters) return nullptr;
  Loop* loop = new Loop();
  std::memcpy(loop->state[0], weights, sizeof loop->state[0]);
  loop->learning_rate = learning_rate;
  loop->beta2 = beta2;
  loop->weight_decay = weight_decay;
  return loop;
}

// Does a training step on 1 to 16 tokens and returns its loss.
float loop_step(Loop* loop, const int* tokens, const int* targets, int count) {
  return Step(loop, tokens, targets, count);
}

}  // extern "C"
