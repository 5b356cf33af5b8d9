// SPDX-License-Identifier: Apache-2.0
// Predictions of theory for a model at initialization, and whether they apply to it: decided from
// the model's equations, Jacobians and norms (DescribeModel), never from the name of a placement.
// docs/papers.md derives the predictions. Pure.
#ifndef PLUMB_CLI_THEORY_PREDICT_H_
#define PLUMB_CLI_THEORY_PREDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/theory/measure.h"
#include "runtime/client/model.h"

namespace plumb::cli {

// Relation of every sublayer of the stack to the residual stream.
enum class Route {
  kNormedInput,   // I + J_f J_norm: clean route, sublayers read a normalized copy
  kNormedOutput,  // I + J_norm J_f ..: clean route, the sublayers' outputs are normalized
  kThroughNorms,  // J_norm (I + J_f): the stream itself is normalized
  kNoNorm,        // I + J_f
  kOther,         // a mixture, scales, or further streams: nothing is predicted
};

struct Reading {
  Route route = Route::kOther;
  std::string text;      // "the stream passes a norm after every sublayer: J_norm (I + J_mlp) .."
  double additions = 0;  // sublayers per layer
  bool norm_before_head = false;
  std::vector<std::string> caveats;  // assumptions of the predictions that the model violates
};

// Classifies a model. `description`: from DescribeModel.
Reading ReadModel(const Json& description);

struct Bracket {
  double low = 0, high = 0;  // equal if a single value is predicted
};

// Predicts v_l from the measured v_0. Returns: nullopt for kOther, and for kNoNorm, whose growth
// has no closed form.
std::optional<Bracket> PredictStream(const Reading& reading, double v0, int64_t layer);

// Predicts the log-log slope over depth of the gradient norm of the last MLP's output weights.
std::optional<double> PredictDepthSlope(const Reading& reading);

// Predicts the gain of a passage from the measured v: sqrt(v_after / v_before). Returns: nullopt
// for kOther.
std::optional<double> PredictGain(const Reading& reading, const Passage& passage);

// Returns the source of the predictions, one line; "" for kOther.
std::string PredictionSource(const Reading& reading);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_THEORY_PREDICT_H_
