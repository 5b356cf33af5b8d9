// SPDX-License-Identifier: Apache-2.0
// What theory says about a model at initialization, and whether it speaks about this model: that is
// read off the model's equations, Jacobians and norms (DescribeModel), never off the name of a
// placement. docs/theory.md derives the predictions. Pure.
#ifndef PLUMB_CLI_THEORY_PREDICT_H_
#define PLUMB_CLI_THEORY_PREDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/theory/measure.h"
#include "runtime/app/model.h"

namespace plumb::cli {

// How every sublayer of the stack stands to the residual stream.
enum class Route {
  kNormedInput,   // I + J_f J_norm: clean route, sublayers read a normalized copy
  kNormedOutput,  // I + J_norm J_f ..: clean route, what is added is normalized
  kThroughNorms,  // J_norm (I + J_f): the stream itself is normalized
  kNoNorm,        // I + J_f
  kOther,         // several of these, scaled, or with further streams: nothing is predicted
};

struct Reading {
  Route route = Route::kOther;
  std::string text;      // "the stream passes a norm after every sublayer: J_norm (I + J_mlp) .."
  double additions = 0;  // sublayers a layer
  bool norm_before_head = false;
  std::vector<std::string> caveats;  // how the model differs from the predictions' assumptions
};

// `description`: DescribeModel.
Reading ReadModel(const Json& description);

struct Bracket {
  double low = 0, high = 0;  // equal where a single value is predicted
};

// v_l, given the measured v_0. Nothing for kOther and for kNoNorm, whose growth has no closed form.
std::optional<Bracket> PredictStream(const Reading& reading, double v0, int64_t layer);

// The log-log slope, over depth, of the gradient norm of the last MLP's output weights.
std::optional<double> PredictDepthSlope(const Reading& reading);

// The gain of a passage: sqrt(v_after / v_before), given the measured v. Nothing for kOther.
std::optional<double> PredictGain(const Reading& reading, const Passage& passage);

// Where the predictions are from, one line; "" for kOther.
std::string PredictionSource(const Reading& reading);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_THEORY_PREDICT_H_
