// SPDX-License-Identifier: Apache-2.0
// What theory of initialization is about, measured: how large the residual stream and the gradients
// of a model with freshly drawn weights are, layer by layer. Stateless; over the public headers.
#ifndef PLUMB_CLI_THEORY_MEASURE_H_
#define PLUMB_CLI_THEORY_MEASURE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/app/model.h"

namespace plumb::cli {

// Seeds 1..seeds draw the weights and, apart from them, the tokens: one sequence of `seq` tokens,
// no two alike, in random order. A token's target is the next one, so it is random too and nothing
// that the model has seen; the last token has none.
struct MeasureOptions {
  int64_t seeds = 10;
  int64_t seq = 16;
  // Asked before every pass; true ends the measurement with kCancelled. May be empty.
  std::function<bool()> stop;
};

// Mean and standard deviation over seeds. NaN where a seed had a number that is not finite.
struct OverSeeds {
  double mean = 0;
  double sd = 0;  // of one seed; 0 for a single one
};

// A ratio of gradients, which differs between seeds by factors where a stack is deep: a few large
// ones would make the mean. NaN where a seed had no such ratio.
struct RatioOverSeeds {
  double geometric_mean = 0;
  double low = 0, median = 0, high = 0;  // quantiles 0.1, 0.5, 0.9
};
// Quantiles lie between the two nearest values, linearly. REQUIRES: not empty.
RatioOverSeeds SummarizeRatios(std::vector<double> ratios);

struct NamedOverSeeds {
  std::string name;
  OverSeeds value;
};

// One passage of the stream: through a sublayer and what the placement does around it; through more
// where the program keeps no value between them.
struct Passage {
  std::string name;  // of the point after it, without ".residual": "layers.3.attention"
  // RMS of the loss's gradient by the stream before, over that by the stream after. The mean is
  // geometric, so that the gains of successive passages multiply.
  double gain = 0;
  // v after and v before.
  double stream_before = 0, stream_after = 0;
};

struct Measurement {
  int64_t n_layer = 0;
  // v_0 .. v_L: mean over tokens of ||x_l||^2 / d, with x_0 the stream as it enters the layers and
  // x_l that after layer l.
  std::vector<OverSeeds> stream;
  // Frobenius norms of the loss's gradient by the output weights of every MLP, from the first to
  // the last: "layers.0.mlp.down.weight". Empty without MLPs.
  std::vector<NamedOverSeeds> gradients;
  std::vector<Passage> passages;   // from the first to the last
  RatioOverSeeds first_over_last;  // of those gradients, first over last; NaN without MLPs
  RatioOverSeeds total_gain;       // RMS gradient at x_0 over that at x_L
};

// Draws the model's weights anew: it is left with those of the last seed. Errors: kInvalidArgument
// when it has too short a context or too few tokens for `options.seq`.
absl::StatusOr<Measurement> Measure(api::Model* model, const MeasureOptions& options);

// The stream's mean of squares, ||x||^2 / d averaged over tokens, at any point that can be probed;
// mean over the seeds.
absl::StatusOr<double> MeanSquareAt(api::Model* model, const std::string& point,
                                    const MeasureOptions& options);

// Least squares through (log x, log y); NaN for fewer than two different x, or a value that has no
// logarithm.
double LogLogSlope(const std::vector<double>& x, const std::vector<double>& y);

// The factor per layer of geometric growth: exp of the slope of log v_l against l, likewise.
double GrowthPerLayer(const Measurement& measurement);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_THEORY_MEASURE_H_
