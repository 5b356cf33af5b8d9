// SPDX-License-Identifier: Apache-2.0
// BuildForward: turns a resolved model into the graph of one of its programs. It is the only place
// that turns formulas into ops, and one builder makes all programs, so that training and decoding
// agree. Stateless.
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
  kTrain,  // inputs tokens, positions, targets; output "loss"; norms save values for their backward
           // pass
  kEval,   // same inputs and output as kTrain; nothing is saved for a backward pass
  kCached,  // inputs tokens, positions; states "<sublayer>.k_cache", ".v_cache", for convolutions
            // and shifts ".x_cache", [batch, heads, tokens, channels], for decays of attention
            // ".decay_cache", f32[batch, 1, tokens, heads], and for these and linear attention
            // ".recurrent_state", f32[batch, heads, elements]; output "logits" of the last token,
            // [batch, 1, vocab]. A prefill has a long seq, decoding has seq 1.
};

struct BuildOptions {
  Program program = Program::kTrain;
  WeightFormat weights = WeightFormat::kF32;
  int64_t batch = 1;
  int64_t seq = 1;
  bool output_logits = false;  // kTrain, kEval: adds the output "logits", f32[batch, seq, vocab]
  bool output_losses = false;  // kTrain, kEval: adds the output "losses", f32[batch * seq], which
                               // is 0 where there is no target
  bool drop = true;            // kTrain: false sets p = 0 in every drop() and drop_path()
  // kTrain: attributes of op cross_entropy. If one is above 0, or experts have a balance loss, the
  // program has an output "objective", which is to be differentiated instead of "loss".
  double label_smoothing = 0, z_loss = 0;
  // kTrain: the program is one of several passes of a step. It has the input kLossWeightInput, the
  // pass's share of the step, and an output "objective": the minimized loss times that share.
  bool weighs_loss = false;
  // kTrain, above 0: a function of the host computes the loss from f32 logits (op host_loss), and a
  // step has this many passes, of whose balance losses it minimizes the mean. The program has the
  // input kHostLossInput and does not read "targets".
  int64_t host_loss_passes = 0;
  // kTrain: adds the choices that fall on each expert to the state of its router's correction.
  bool counts_loads = false;
  std::vector<std::string> frozen;  // kTrain: UpdatePlan::frozen, for the backward pass only
};

// Builds one program. Inputs are i32[batch, seq]; targets < 0 are ignored. Caches hold
// context_length tokens per sequence. With an attention window the cache is a ring of `window`
// rows, and position p is in row p mod window; so it is for shifts and for convolutions of linear
// attention, with their width. Errors: kFailedPrecondition for a kCached program of
// a bidirectional model.
absl::StatusOr<Graph> BuildForward(const ResolvedModel& model,
                                   const std::vector<ParameterSpec>& parameters,
                                   const OpRegistry& registry, const BuildOptions& options);

// Value of a residual stream at one place of the model: the output of a norm in post-norm, a sum in
// pre-norm.
struct StreamPoint {
  // Name of the place: "layers.3.attention.residual" after the statements of that sublayer,
  // "layers.3.residual" after the layer, "embedding.residual", "begin.residual" and "end.residual".
  // Streams other than x append their name: "layers.3.attention.residual.d".
  std::string name;
  // Name of the value in the graph.
  std::string value;
};

// Lists the streams, from embedding to head, of the graph that BuildForward makes of the same
// arguments.
absl::StatusOr<std::vector<StreamPoint>> ListStreams(const ResolvedModel& model,
                                                     const std::vector<ParameterSpec>& parameters,
                                                     const OpRegistry& registry,
                                                     const BuildOptions& options);

// Optional inputs, besides "tokens", "positions" and "targets": kTypesInput, i32[batch, seq], if
// the model has token types; kLengthsInput, i32[batch] in 1..seq, if it is bidirectional: later
// tokens are padding, which no token attends to.
inline constexpr char kTypesInput[] = "types";
inline constexpr char kLengthsInput[] = "lengths";

// Input of training programs with weighs_loss, f32[1]: the number of targets in this pass divided
// by the number in the step.
inline constexpr char kLossWeightInput[] = "loss_weight";

// Input of training programs with host_loss_passes, i32[kHostLossWords] (runtime/ops/host_loss.h).
inline constexpr char kHostLossInput[] = "host_loss";

// Input of training programs with dropout, i32[6], in the format of op drop: the run's seed and the
// step, 64 bits each, low word first; the index within the step of this pass's first row; the
// number of positions by which rows are spaced in the random stream.
inline constexpr char kRandomInput[] = "random";
inline constexpr int64_t kRandomWords = 6;

}  // namespace plumb

#endif  // PLUMB_RUNTIME_MODEL_BUILD_H_
