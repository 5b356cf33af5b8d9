// SPDX-License-Identifier: Apache-2.0
#include "cli/theory/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/series.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/client/model_pass.h"

namespace plumb::cli {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr char kStream[] = ".residual";
constexpr char kOutputWeight[] = ".down.weight";

// Returns `seq` distinct tokens of 0..vocab_size-1: the start of a shuffle by SplitMix64 (Steele,
// Lea & Flood 2014).
std::vector<int32_t> DistinctTokens(int64_t seq, int64_t vocab_size, uint64_t seed) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  std::vector<int32_t> ids(static_cast<size_t>(vocab_size));
  std::iota(ids.begin(), ids.end(), 0);
  for (size_t i = 0; i < static_cast<size_t>(seq); ++i) {
    std::swap(ids[i], ids[i + MixBits(seed + i * kStep) % (ids.size() - i)]);
  }
  ids.resize(static_cast<size_t>(seq));
  return ids;
}

// Points of a model that are probed, in the order of the data.
struct Plan {
  std::string entry;                    // stream that enters the layers
  std::vector<std::string> layers;      // streams after layers
  std::vector<std::string> passages;    // streams after passages
  std::vector<std::string> parameters;  // output weights of MLPs
  std::vector<std::string> globs;
};

// Returns the number of name parts: 3 for "layers.3.residual", 4 for "layers.3.mlp.residual".
size_t Parts(const std::string& point) {
  return static_cast<size_t>(std::count(point.begin(), point.end(), '.')) + 1;
}

absl::StatusOr<Plan> MakePlan(const api::Model& model) {
  PLUMB_ASSIGN_OR_RETURN(std::vector<std::string> points, ProbePoints(model));
  const std::set<std::string> known(points.begin(), points.end());
  Plan plan;
  for (const std::string& point : points) {
    if (absl::StartsWith(point, "param.layers.") && absl::EndsWith(point, kOutputWeight)) {
      plan.parameters.push_back(point.substr(6));
    }
    if (!absl::EndsWith(point, kStream) || known.count("grad." + point) == 0) continue;
    if (point == "embedding.residual" || point == "begin.residual") plan.entry = point;
    if (!absl::StartsWith(point, "layers.")) continue;
    if (Parts(point) == 3) {
      plan.layers.push_back(point);
      // A layer whose sublayers have no streams of their own is one passage.
      const std::string layer = point.substr(0, point.size() - sizeof(kStream) + 2);
      if (plan.passages.empty() || !absl::StartsWith(plan.passages.back(), layer)) {
        plan.passages.push_back(point);
      }
    } else {
      plan.passages.push_back(point);
    }
  }
  if (plan.entry.empty() || plan.layers.empty()) {
    return absl::InvalidArgumentError(
        "the model's program keeps no residual stream whose gradient can be probed");
  }
  for (const char* glob : {"layers.*.residual", "grad.layers.*.residual"})
    plan.globs.push_back(glob);
  // A glob that matches nothing would be an error.
  if (!plan.parameters.empty()) plan.globs.push_back("param.layers.*.down.weight");
  plan.globs.push_back(plan.entry);
  plan.globs.push_back("grad." + plan.entry);
  return plan;
}

absl::Status CheckTokens(const api::ModelInfo& model, int64_t seq) {
  const std::pair<const char*, int64_t> dims[] = {{"vocab_size", model.vocab_size},
                                                  {"context_length", model.context_length}};
  for (const auto& [name, value] : dims) {
    if (value >= seq) continue;
    return absl::InvalidArgumentError(absl::StrCat(seq, " different tokens need a ", name, " of ",
                                                   seq, ", but it is ", value, "; use --seq ",
                                                   value, " or --set model.", name, "=", seq));
  }
  return absl::OkStatus();
}

// Returns the batch with the next tokens as targets. This also suits bidirectional models, because
// at initialization they predict no target better than others.
TokenBatch NextTokens(const std::vector<int32_t>& tokens) {
  std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(-1);
  return {{tokens}, {std::move(targets)}, {}};
}

double Rms(const TensorFigures& figures) { return figures.nonfinite > 0 ? kNan : figures.rms; }
double MeanSquare(const TensorFigures& figures) { return Rms(figures) * Rms(figures); }
double FrobeniusNorm(const TensorFigures& figures) {
  return Rms(figures) * std::sqrt(static_cast<double>(figures.elements));
}

OverSeeds Summarize(const std::vector<double>& values) {
  const double n = static_cast<double>(values.size());
  OverSeeds result;
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double square = 0;
  for (const double value : values) square += (value - result.mean) * (value - result.mean);
  result.sd = values.size() < 2 ? 0 : std::sqrt(square / (n - 1));
  return result;
}

double GeometricMean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

// Summarizes the ratios a / b per seed.
RatioOverSeeds SummarizeRatios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return cli::SummarizeRatios(std::move(ratios));
}

// Values of all seeds by point; gradients of activations begin with "grad.", of parameters with
// "param.".
using ValuesByName = std::map<std::string, std::vector<double>>;

Measurement Assemble(const Plan& plan, const ValuesByName& squares, const ValuesByName& norms) {
  Measurement result;
  result.n_layer = static_cast<int64_t>(plan.layers.size());
  result.stream.push_back(Summarize(squares.at(plan.entry)));
  for (const std::string& point : plan.layers)
    result.stream.push_back(Summarize(squares.at(point)));
  for (const std::string& name : plan.parameters) {
    result.gradients.push_back({name, Summarize(norms.at(name))});
  }
  const auto& names = plan.parameters;
  result.first_over_last = names.empty()
                               ? cli::SummarizeRatios({kNan})
                               : SummarizeRatios(norms.at(names.front()), norms.at(names.back()));
  std::string before = plan.entry;
  for (const std::string& after : plan.passages) {
    const std::vector<double>& above = squares.at("grad." + after);
    std::vector<double> gains = squares.at("grad." + before);
    for (size_t i = 0; i < gains.size(); ++i) gains[i] = std::sqrt(gains[i] / above[i]);
    Passage passage;
    passage.name = std::string(absl::StripSuffix(after, kStream));
    passage.gain = GeometricMean(gains);
    passage.stream_before = Summarize(squares.at(before)).mean;
    passage.stream_after = Summarize(squares.at(after)).mean;
    result.passages.push_back(std::move(passage));
    before = after;
  }
  std::vector<double> gains = squares.at("grad." + plan.entry);
  const std::vector<double>& last = squares.at("grad." + plan.layers.back());
  for (size_t i = 0; i < gains.size(); ++i) gains[i] = std::sqrt(gains[i] / last[i]);
  result.total_gain = cli::SummarizeRatios(std::move(gains));
  return result;
}

double Slope(const std::vector<double>& x, const std::vector<double>& y) {
  const double n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xy = 0, xx = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
  }
  return xx > 0 && std::isfinite(xy) ? xy / xx : kNan;
}

std::vector<double> Logarithms(std::vector<double> values) {
  for (double& value : values) value = value > 0 ? std::log(value) : kNan;
  return values;
}

}  // namespace

RatioOverSeeds SummarizeRatios(std::vector<double> ratios) {
  const bool is_whole =
      std::none_of(ratios.begin(), ratios.end(), [](double ratio) { return std::isnan(ratio); });
  if (!is_whole) return {kNan, kNan, kNan, kNan};
  const double mean = GeometricMean(ratios);
  const Series series(std::move(ratios));
  return {mean, series.Quantile(0.1), series.Median(), series.Quantile(0.9)};
}

absl::StatusOr<Measurement> Measure(api::Model* model, const MeasureOptions& options) {
  PLUMB_ASSIGN_OR_RETURN(const Plan plan, MakePlan(*model));
  const api::ModelInfo info = model->Info();
  PLUMB_RETURN_IF_ERROR(CheckTokens(info, options.seq));
  ValuesByName squares, norms;
  for (int64_t seed = 1; seed <= options.seeds; ++seed) {
    if (options.stop && options.stop()) return absl::CancelledError("interrupted");
    PLUMB_RETURN_IF_ERROR(
        OrOutOfMemory("the parameters", [&] { return model->Init(static_cast<uint64_t>(seed)); }));
    const std::vector<int32_t> tokens =
        DistinctTokens(options.seq, info.vocab_size, static_cast<uint64_t>(seed));
    PLUMB_ASSIGN_OR_RETURN(const ProbeFigures figures,
                           ProbeTokens(model, NextTokens(tokens), plan.globs));
    for (const ProbedTensor& tensor : figures.activations) {
      squares[tensor.name].push_back(MeanSquare(tensor.figures));
    }
    for (const ProbedTensor& tensor : figures.gradients) {
      squares["grad." + tensor.name].push_back(MeanSquare(tensor.figures));
    }
    for (const ProbedParameter& parameter : figures.parameters) {
      norms[parameter.name].push_back(FrobeniusNorm(parameter.gradient));
    }
  }
  return Assemble(plan, squares, norms);
}

double LogLogSlope(const std::vector<double>& x, const std::vector<double>& y) {
  return Slope(Logarithms(x), Logarithms(y));
}

double GrowthPerLayer(const Measurement& measurement) {
  std::vector<double> layers, streams;
  for (const OverSeeds& stream : measurement.stream) {
    layers.push_back(static_cast<double>(layers.size()));
    streams.push_back(stream.mean);
  }
  return std::exp(Slope(layers, Logarithms(streams)));
}

}  // namespace plumb::cli
