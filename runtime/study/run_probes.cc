// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/run_probes.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/study/statistics.h"

namespace plumb {
namespace {

using Json = nlohmann::ordered_json;

// Combination of the figures of a layer's tensors.
enum class Pooling { kNorm, kMean, kGeometricMean, kMax };

// Rule that finds the figures of one kind in a line of probes.jsonl.
struct ProbeKind {
  const char* name;
  const char* section;  // "activations" or "parameters"
  const char* suffix;   // of the tensors' names; a tensor of the whole layer is "layers.3" + suffix
  const char* field;
  Pooling pooling;
  bool is_log;
  bool has_names;  // tensors with different last names are series of their own
};
constexpr ProbeKind kProbeKinds[] = {
    {"gradient norm", "parameters", "", "grad_norm", Pooling::kNorm, true, false},
    {"residual stream RMS", "activations", ".residual", "rms", Pooling::kMean, true, false},
    {"attention entropy", "activations", ".entropy", "mean", Pooling::kMean, false, false},
    {"largest attention logit", "activations", ".max_logit", "max", Pooling::kMax, true, false},
    {"attention output RMS", "activations", ".attention.o", "rms", Pooling::kMean, true, false},
    {"largest attention output", "activations", ".attention.o", "max", Pooling::kMax, true, false},
    {"MLP output RMS", "activations", ".mlp.down", "rms", Pooling::kMean, true, false},
    {"largest MLP output", "activations", ".mlp.down", "max", Pooling::kMax, true, false},
    {"update-to-weight ratio", "parameters", "", "update_ratio", Pooling::kGeometricMean, true,
     false},
    {"spectral norm", "parameters", "", "spectral_norm", Pooling::kMax, true, false},
    {"learned value", "parameters", "", "value_mean", Pooling::kMean, false, true},
};

// Sum of the figures that are pooled.
class Pool {
 public:
  void Add(Pooling pooling, double value) {
    if (!std::isfinite(value)) return;
    if (pooling == Pooling::kGeometricMean) {
      if (value <= 0) return;
      value = std::log(value);
    }
    if (pooling == Pooling::kNorm) value *= value;
    sum_ += value;
    max_ = n_ == 0 ? value : std::max(max_, value);
    ++n_;
  }
  double Figure(Pooling pooling) const {
    if (n_ == 0) return kNaN;
    switch (pooling) {
      case Pooling::kNorm:
        return std::sqrt(sum_);
      case Pooling::kMean:
        return sum_ / n_;
      case Pooling::kGeometricMean:
        return std::exp(sum_ / n_);
      case Pooling::kMax:
        break;
    }
    return max_;
  }

 private:
  double sum_ = 0, max_ = 0;
  int n_ = 0;
};

// Returns "layers.3" for "layers.3.mlp.up.weight"; "" for a tensor outside the layers.
absl::string_view GetLayer(absl::string_view name) {
  if (!absl::StartsWith(name, "layers.")) return "";
  const size_t dot = name.find('.', 7);
  int64_t index = 0;
  if (!absl::SimpleAtoi(name.substr(7, dot == absl::string_view::npos ? dot : dot - 7), &index)) {
    return "";
  }
  return name.substr(0, dot);
}

// Returns true if a kind is of the tensor `name`. The residual stream is that of the whole layer.
bool AppliesTo(const ProbeKind& kind, absl::string_view name, absl::string_view layer) {
  const absl::string_view suffix = kind.suffix;
  if (suffix == ".residual")
    return name.size() == layer.size() + suffix.size() && absl::EndsWith(name, suffix);
  return absl::EndsWith(name, suffix);
}

std::string SeriesName(const ProbeKind& kind, absl::string_view tensor) {
  if (!kind.has_names) return kind.name;
  return absl::StrCat(kind.name, " ", tensor.substr(tensor.rfind('.') + 1));
}

// Figures of one step, by kind, name of the series and layer.
using StepPools = std::map<std::pair<size_t, std::string>, std::map<std::string, Pool>>;

class ProbeParser {
 public:
  void Add(const Json& line, int64_t last_step) {
    const auto step = line.find("step");
    if (step == line.end() || !step->is_number()) return;
    const double number = step->get<double>();
    if (!(number >= 1) || number > static_cast<double>(last_step)) return;
    StepPools pools;
    for (const char* section : {"activations", "parameters"}) {
      const auto tensors = line.find(section);
      if (tensors == line.end() || !tensors->is_object()) continue;
      for (const auto& [name, figures] : tensors->items()) {
        AddTensor(section, name, figures, &pools);
      }
    }
    if (pools.empty()) return;
    // A repeated step replaces the first one, whose batch was dropped.
    if (!steps_.empty() && steps_.back().first == static_cast<int64_t>(number)) steps_.pop_back();
    steps_.emplace_back(static_cast<int64_t>(number), std::move(pools));
  }

  std::optional<RunProbes> Finish() const {
    if (steps_.empty()) return std::nullopt;
    RunProbes probes;
    probes.layers = layers_;
    std::set<std::pair<size_t, std::string>> names;
    for (const auto& [step, pools] : steps_) {
      probes.steps.push_back(step);
      for (const auto& [name, pool] : pools) names.insert(name);
    }
    for (const auto& name : names) probes.series.push_back(MakeSeries(name));
    return probes;
  }

 private:
  void AddTensor(absl::string_view section, const std::string& name, const Json& figures,
                 StepPools* pools) {
    const std::string layer(GetLayer(name));
    if (layer.empty() || !figures.is_object()) return;
    for (size_t kind = 0; kind < std::size(kProbeKinds); ++kind) {
      const ProbeKind& rule = kProbeKinds[kind];
      if (section != rule.section || !AppliesTo(rule, name, layer)) continue;
      const auto figure = figures.find(rule.field);
      if (figure == figures.end()) continue;
      // The layers keep the order of the file.
      if (std::count(layers_.begin(), layers_.end(), layer) == 0) layers_.push_back(layer);
      (*pools)[{kind, SeriesName(rule, name)}][layer].Add(
          rule.pooling, figure->is_number() ? figure->get<double>() : kNaN);
    }
  }

  ProbeSeries MakeSeries(const std::pair<size_t, std::string>& name) const {
    const ProbeKind& rule = kProbeKinds[name.first];
    ProbeSeries series;
    series.name = name.second;
    series.is_log = rule.is_log;
    series.is_largest = rule.pooling == Pooling::kMax;
    for (const auto& step : steps_) {
      std::vector<double> row(layers_.size(), kNaN);
      const auto pools = step.second.find(name);
      for (size_t i = 0; pools != step.second.end() && i < layers_.size(); ++i) {
        const auto pool = pools->second.find(layers_[i]);
        if (pool != pools->second.end()) row[i] = pool->second.Figure(rule.pooling);
      }
      series.values.push_back(std::move(row));
    }
    return series;
  }

  std::vector<std::string> layers_;
  std::vector<std::pair<int64_t, StepPools>> steps_;
};

// Returns the geometric mean of the positive values, or 0 if there are only zeros; NaN without any.
double GeometricMean(const std::vector<double>& values) {
  Pool pool;
  for (const double value : values) pool.Add(Pooling::kGeometricMean, value);
  const double mean = pool.Figure(Pooling::kGeometricMean);
  const bool has_any =
      std::any_of(values.begin(), values.end(), [](double value) { return !std::isnan(value); });
  return std::isnan(mean) && has_any ? 0 : mean;
}

double Mean(const std::vector<double>& values) {
  Pool pool;
  for (const double value : values) pool.Add(Pooling::kMean, value);
  return pool.Figure(Pooling::kMean);
}

// Returns the figures of the runs at a step and layer. Runs may have been probed at other layers.
std::vector<double> ValuesAt(const std::vector<const RunProbes*>& runs, absl::string_view name,
                             int64_t step, const std::string& layer) {
  std::vector<double> values;
  for (const RunProbes* run : runs) {
    const ProbeSeries* const series = run->Find(name);
    const auto at = std::lower_bound(run->steps.begin(), run->steps.end(), step);
    if (series == nullptr || at == run->steps.end() || *at != step) continue;
    const std::vector<double>& row = series->values[static_cast<size_t>(at - run->steps.begin())];
    const auto index = static_cast<size_t>(
        std::find(run->layers.begin(), run->layers.end(), layer) - run->layers.begin());
    if (index < row.size()) values.push_back(row[index]);
  }
  return values;
}

// Returns the first series of each kind. A run that diverged may lack some.
std::vector<const ProbeSeries*> CollectKinds(const std::vector<const RunProbes*>& probes) {
  std::vector<const ProbeSeries*> kinds;
  std::set<std::string> names;
  for (const RunProbes* one : probes) {
    for (const ProbeSeries& series : one->series) {
      if (names.insert(series.name).second) kinds.push_back(&series);
    }
  }
  return kinds;
}

}  // namespace

const ProbeSeries* RunProbes::Find(absl::string_view name) const {
  const auto found = std::find_if(series.begin(), series.end(),
                                  [name](const ProbeSeries& one) { return one.name == name; });
  return found == series.end() ? nullptr : &*found;
}

std::optional<RunProbes> ParseProbes(const std::string& text, int64_t last_step) {
  ProbeParser parser;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const Json object = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
    if (object.is_object()) parser.Add(object, last_step);
  }
  return parser.Finish();
}

RunProbes MeanProbes(const std::vector<const RunProbes*>& runs) {
  RunProbes mean;
  std::set<int64_t> steps;
  for (const RunProbes* run : runs) {
    steps.insert(run->steps.begin(), run->steps.end());
    for (const std::string& layer : run->layers) {
      if (std::count(mean.layers.begin(), mean.layers.end(), layer) == 0) {
        mean.layers.push_back(layer);
      }
    }
  }
  std::sort(mean.layers.begin(), mean.layers.end(), [](const std::string& a, const std::string& b) {
    return std::make_pair(a.size(), a) < std::make_pair(b.size(), b);  // layers.9 before layers.10
  });
  mean.steps.assign(steps.begin(), steps.end());
  for (const ProbeSeries* kind : CollectKinds(runs)) {
    ProbeSeries series = {kind->name, kind->is_log, kind->is_largest, {}};
    for (const int64_t step : mean.steps) {
      std::vector<double> row;
      for (const std::string& layer : mean.layers) {
        const std::vector<double> values = ValuesAt(runs, kind->name, step, layer);
        row.push_back(kind->is_log ? GeometricMean(values) : Mean(values));
      }
      series.values.push_back(std::move(row));
    }
    mean.series.push_back(std::move(series));
  }
  return mean;
}

}  // namespace plumb
