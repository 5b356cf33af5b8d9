// SPDX-License-Identifier: Apache-2.0
// Probes: figures of a model's tensors while it trains: activations, the gradients of the same
// values, parameters and their gradients.
//
// A point is a named tensor. Activations have the names of the graph ("layers.3.attention.q",
// "layers.3.mlp.norm.out", "logits"); the residual stream is "layers.3.attention.residual" after
// that sublayer, "layers.3.residual" after that layer, and "embedding.residual" before the first.
// "grad.NAME" is the gradient of the loss by an activation, "param.NAME" a parameter with its
// gradient. ProbePoints (model.h) lists the points of a model. Values.
#ifndef PLUMB_RUNTIME_APP_PROBE_H_
#define PLUMB_RUNTIME_APP_PROBE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace plumb {

struct ProbeOptions {
  // Step 1 and every `every`-th step are probed. 0: none, or the setting of the run that is
  // resumed. Negative: none, also in a resumed run.
  int64_t every = 0;
  // Names of points in which * stands for any text and ? for any character; about activations
  // unless they begin with "grad." or "param.". Empty: residual streams, norms' outputs, attention
  // contexts, logits, gradients of streams and logits, all parameters.
  std::vector<std::string> points;
};

// Costs less than 2 % of the time of training with the default points, down to models whose step
// takes 60 microseconds.
inline constexpr int64_t kDefaultProbeInterval = 100;

// Over all elements in a step, padding included, that are finite; 0 if none is.
struct TensorFigures {
  double rms = 0;
  double max = 0;  // of the magnitude
  double mean = 0;
  double norm = 0;        // L2
  int64_t nonfinite = 0;  // elements that are NaN or infinite
  int64_t elements = 0;   // in all
};

struct ProbedTensor {
  std::string name;  // without "grad."
  TensorFigures figures;
};

struct ProbedParameter {
  std::string name;               // without "param."
  TensorFigures value, gradient;  // before the step's update; before clipping
};

struct ProbeFigures {
  int64_t step = 0;                                  // from 1; 0: of no step
  bool diverged = false;                             // this step had a number that is not finite
  std::vector<ProbedTensor> activations, gradients;  // in the order of the data
  std::vector<ProbedParameter> parameters;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_PROBE_H_
