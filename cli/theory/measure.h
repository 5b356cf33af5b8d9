// SPDX-License-Identifier: Apache-2.0
// Measurement of what theory of initialization predicts: the size, layer by layer, of the residual
// stream and of the gradients in a model with freshly drawn weights. Stateless; uses the public
// headers only.
#ifndef PLUMB_CLI_THEORY_MEASURE_H_
#define PLUMB_CLI_THEORY_MEASURE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/model.h"

namespace plumb::cli {

// Seeds 1..seeds draw the weights and, independently, the tokens: one sequence of `seq` distinct
// tokens in random order. The target of a token is the next one, so targets are random too and
// carry no information; the last token has none.
struct MeasureOptions {
  int64_t seeds = 10;
  int64_t seq = 16;
  // Called before every pass; true ends the measurement with kCancelled. May be empty.
  std::function<bool()> stop;
};

// Mean and standard deviation over seeds. NaN if a seed had a number that is not finite.
struct OverSeeds {
  double mean = 0;
  double sd = 0;  // sample deviation; 0 if there is one seed
};

// Ratio of gradients. In a deep stack it differs between seeds by factors, and a few large values
// would dominate the arithmetic mean. NaN if a seed had no such ratio.
struct RatioOverSeeds {
  double geometric_mean = 0;
  double low = 0, median = 0, high = 0;  // quantiles 0.1, 0.5, 0.9
};
// Computes quantiles by linear interpolation. Requires: ratios is not empty.
RatioOverSeeds SummarizeRatios(std::vector<double> ratios);

struct NamedOverSeeds {
  std::string name;
  OverSeeds value;
};

// One passage of the stream: through a sublayer and the placement's ops around it, or through
// several sublayers if the program keeps no value between them.
struct Passage {
  std::string name;  // point after it, without ".residual": "layers.3.attention"
  // RMS of the loss's gradient with respect to the stream before, divided by that after. The
  // geometric mean over seeds, so that gains of successive passages multiply.
  double gain = 0;
  // Values of v after and before the passage.
  double stream_before = 0, stream_after = 0;
};

struct Measurement {
  int64_t n_layer = 0;
  // v_0 .. v_L: mean over tokens of ||x_l||^2 / d, with x_0 the stream that enters the layers and
  // x_l the stream after layer l.
  std::vector<OverSeeds> stream;
  // Frobenius norms of the loss's gradient with respect to the output weights of each MLP, first to
  // last: "layers.0.mlp.down.weight". Empty without MLPs.
  std::vector<NamedOverSeeds> gradients;
  std::vector<Passage> passages;   // first to last
  RatioOverSeeds first_over_last;  // first of `gradients` over last; NaN without MLPs
  RatioOverSeeds total_gain;       // RMS gradient at x_0 over that at x_L
};

// Measures a model. Draws its weights again for each seed and leaves those of the last one. Errors:
// kInvalidArgument if its context or vocabulary is smaller than `options.seq`.
absl::StatusOr<Measurement> Measure(api::Model* model, const MeasureOptions& options);

// Returns the least-squares slope of log y over log x; NaN for fewer than two different x, or a
// value that has no logarithm.
double LogLogSlope(const std::vector<double>& x, const std::vector<double>& y);

// Returns the factor of geometric growth per layer: exp of the slope of log v_l over l. NaN
// likewise.
double GrowthPerLayer(const Measurement& measurement);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_THEORY_MEASURE_H_
