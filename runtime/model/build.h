// SPDX-License-Identifier: Apache-2.0
// BuildForward: a resolved model to the graph of one of its programs: the one place that turns
// formulas into ops. Pure. One builder makes all programs, so training and decoding cannot
// disagree.
#ifndef PLUMB_RUNTIME_MODEL_BUILD_H_
#define PLUMB_RUNTIME_MODEL_BUILD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"
#include "runtime/model/parameters.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

enum class Program {
  kTrain,  // inputs tokens, positions, targets; output "loss"; norms save what their backward needs
  kEval,   // the same inputs and output, nothing saved for a backward pass
  kCached,  // inputs tokens, positions; states "<sublayer>.k_cache", ".v_cache" and, of
            // convolutions,
            // ".x_cache", [batch, heads, tokens, channels]; output "logits" of the last
            // token [batch, 1, vocab]. Prefill is a long seq, decoding a seq of 1.
};

// The storage of weight matrices, and the type that programs compute in: with bf16 weights
// everything is bf16 but statistics, log-sum-exps, the loss, logits that are an output, and
// gradients of parameters. Vectors (biases, norms' parameters, learned values) and weights of
// convolutions are always f32.
//
// kInt8, for kEval and kCached: a matrix is an i8 parameter of its name and an f32 parameter of its
// scales, in tiles (runtime/kernels/gemv/quantize.h); all that is computed is f32. A router of
// experts stays f32 there.
enum class WeightFormat { kF32, kBf16, kInt8 };

struct BuildOptions {
  Program program = Program::kTrain;
  WeightFormat weights = WeightFormat::kF32;
  int64_t batch = 1;
  int64_t seq = 1;
  bool output_logits = false;  // kTrain, kEval: output "logits" f32[batch, seq, vocab] too
  bool drop = true;            // kTrain: false: as p = 0 in all of drop() and drop_path()
  // kTrain: with either above 0, or with experts that have a balance loss, an output "objective"
  // too, whose gradient is to be taken then.
  double label_smoothing = 0, z_loss = 0;  // as op cross_entropy has them
  // kTrain: the program is one of several passes of a step, whose input kLossWeightInput says which
  // share of the step it is. Has an output "objective" too then: what is minimized, times that.
  bool weighs_loss = false;
};

// The element type of the parameter in a program.
DType StoredDType(const ParameterSpec& parameter, WeightFormat weights);

// The parameter that holds the scales of the int8 matrix `matrix`.
std::string ScalesName(const std::string& matrix);

// Inputs are i32[batch, seq]. Targets < 0 are not counted. Caches hold context_length tokens a
// sequence, or, of attention with a window, those of the window: a ring, in which position p has
// row p mod window. kFailedPrecondition for a kCached program of a model that is bidirectional.
absl::StatusOr<Graph> BuildForward(const ResolvedModel& model,
                                   const std::vector<ParameterSpec>& parameters,
                                   const OpRegistry& registry, const BuildOptions& options);

// The name of a residual stream at one place of the model, and its value in the graph: in post-norm
// the output of a norm, in pre-norm a sum.
struct StreamPoint {
  // "layers.3.attention.residual": x as the statements after that sublayer leave it;
  // "layers.3.residual": as the layer does; "embedding.residual", "begin.residual" and
  // "end.residual". Further streams have their name at the end: "layers.3.attention.residual.d".
  std::string name;
  std::string value;
};

// The streams of the graph that BuildForward makes of the same arguments, from embedding to head.
absl::StatusOr<std::vector<StreamPoint>> ListStreams(const ResolvedModel& model,
                                                     const std::vector<ParameterSpec>& parameters,
                                                     const OpRegistry& registry,
                                                     const BuildOptions& options);

// Inputs of programs of models that have them, besides "tokens", "positions" and "targets": types,
// i32[batch, seq], of token_types; lengths, i32[batch], 1..seq, of bidirectional ones: what lies
// beyond is padding, which no token sees.
inline constexpr char kTypesInput[] = "types";
inline constexpr char kLengthsInput[] = "lengths";

// Input of training programs with weighs_loss, f32[1]: the targets of this pass divided by those of
// the step.
inline constexpr char kLossWeightInput[] = "loss_weight";

// Input of training programs whose formulas drop something: the numbers that dropout draws from,
// i32[6], as op drop reads them: the run's seed and the step, 64 bits each, low word first; the row
// of the step that is the first of this pass; and the positions that every row counts as.
inline constexpr char kRandomInput[] = "random";
inline constexpr int64_t kRandomWords = 6;

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_BUILD_H_
