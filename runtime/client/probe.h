// SPDX-License-Identifier: Apache-2.0
// Probes: statistics of a model's tensors during training: activations, their gradients, parameters
// and their gradients. Values.
//
// A point is a named tensor. Activations have their names in the graph ("layers.3.attention.q",
// "layers.3.mlp.norm.out", "logits"). The residual stream is "layers.3.attention.residual" after
// that sublayer, "layers.3.residual" after that layer, and "embedding.residual" before the first
// layer. "grad.NAME" is the gradient of the loss with respect to an activation, "param.NAME" a
// parameter with its gradient. ProbePoints (model.h) lists the points of a model. Groups of points
// have names: "default"; "attention" (the entropy of attention weights and the largest logit);
// "sublayers" (outputs of attention and MLPs); and, as further figures of parameters, "updates",
// "spectral" and "gates" (learned values).
#ifndef PLUMB_RUNTIME_CLIENT_PROBE_H_
#define PLUMB_RUNTIME_CLIENT_PROBE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/client/plumb_api.h"

namespace plumb {

struct ProbeOptions {
  // Step 1 and every `every`-th step are probed. 0: none, or the setting of the run being resumed.
  // Negative: none, even if the run being resumed has a setting.
  int64_t every = 0;
  // Names of groups and of points, in which * matches any text and ? any character; activations
  // unless they begin with "grad." or "param.". Empty: "default", which is residual streams,
  // outputs of norms, attention contexts, logits, gradients of streams and logits, all parameters.
  std::vector<std::string> points;
};

// Interval at which the default points take less than 2 % of the training time, even for models
// with a step of 60 microseconds.
inline constexpr int64_t kDefaultProbeInterval = 100;

// Statistics over all finite elements in a step, including padding; 0 if no element is finite.
struct TensorFigures {
  double rms = 0;
  double max = 0;  // max magnitude
  double mean = 0;
  double norm = 0;        // L2
  int64_t nonfinite = 0;  // number of elements that are NaN or infinite
  int64_t elements = 0;   // number of all elements
};

inline TensorFigures ToFigures(const api::ProbeInfo& probe) {
  TensorFigures figures;
  figures.rms = probe.rms;
  figures.max = probe.max;
  figures.mean = probe.mean;
  figures.norm = probe.norm;
  figures.nonfinite = probe.nonfinite;
  figures.elements = probe.elements;
  return figures;
}

struct ProbedTensor {
  std::string name;  // without the prefix "grad."
  TensorFigures figures;
};

// Mean, least and largest element.
struct LearnedRange {
  double mean = 0, min = 0, max = 0;
};

struct ProbedParameter {
  std::string name;               // without the prefix "param."
  TensorFigures value, gradient;  // value before the update; gradient before clipping
  // Figures of the groups "updates", "spectral" and "gates"; absent if the step diverged.
  std::optional<double> update_rms = {};     // of the change in this step
  std::optional<double> update_ratio = {};   // update_rms / value.rms; absent if that is 0
  std::optional<double> spectral_norm = {};  // before the update; of experts the largest
  std::optional<LearnedRange> learned = {};  // of a placement's learned value, before the update
};

struct ProbeFigures {
  int64_t step = 0;       // from 1; 0: not in a training step
  bool diverged = false;  // the step contained a number that is not finite
  std::vector<ProbedTensor> activations, gradients;  // in the order of the data
  std::vector<ProbedParameter> parameters;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CLIENT_PROBE_H_
