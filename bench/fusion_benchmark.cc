// SPDX-License-Identifier: Apache-2.0
// Measures the gain of fusing residual sums with norms: a training step with the pass
// fuse-residual-norms and one without it, interleaved, for models of different widths. Also checks
// that their losses are bit-identical.
//
//   fusion_benchmark [ROUNDS] [THREADS]     default: 41 rounds, 1 thread
//
// Prints the median time of a step of each, and the median of the ratios within rounds with half of
// their interquartile range.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/data/data.h"
#include "runtime/ops/ops.h"
#include "runtime/plugin/registry.h"
#include "runtime/session/train_session.h"
#include "runtime/spec/model_spec.h"
#include "runtime/spec/resolve.h"

namespace plumb {
namespace {

struct Case {
  const char* placement;
  const char* norm;
  int64_t n_layer, d_model, context_length, batch_size;
};

constexpr Case kCases[] = {
    {"pre", "rms_norm", 8, 16, 16, 1},      {"pre", "layer_norm", 4, 128, 64, 12},
    {"post", "layer_norm", 4, 128, 64, 12}, {"double", "rms_norm", 4, 128, 64, 12},
    {"pre", "layer_norm", 4, 768, 64, 4},   {"post", "layer_norm", 4, 768, 64, 4},
};

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

template <class T>
T OrDie(absl::StatusOr<T> result) {
  if (!result.ok()) Die(result.status());
  return *std::move(result);
}

ResolvedModel ModelOf(const Case& c, PluginRegistry* plugins) {
  const std::string text =
      absl::StrCat("n_layer: ", c.n_layer, " n_head: 4 d_model: ", c.d_model,
                   " context_length: ", c.context_length, " vocab_size: 65 block { placement: \"",
                   c.placement, "\" norm: \"", c.norm, "\" }");
  ResolveOptions options;
  options.placement_directories = {PLUMB_SOURCE_DIR "/plugins/placements"};
  return OrDie(Resolve(OrDie(ModelSpec::FromText(text, "model")), plugins, options));
}

// Returns a text of 65 different characters.
std::string RandomText() {
  std::string text;
  unsigned state = 1;
  for (int i = 0; i < 100000; ++i) {
    state = state * 1664525u + 1013904223u;
    text += static_cast<char>(' ' + (state >> 16) % 65);
  }
  return text;
}

struct Timed {
  double seconds, loss;
};

Timed Step(TrainSession* session) {
  const auto begin = std::chrono::steady_clock::now();
  const StepResult result = OrDie(session->Step());
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  return {time.count(), result.loss};
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

void Run(const Case& c, const Dataset& data, const OpRegistry& ops, PluginRegistry* plugins,
         int rounds, int threads) {
  std::unique_ptr<ModelContext> contexts[2];
  std::unique_ptr<TrainSession> sessions[2];
  TrainSpec spec;
  spec.batch_size = c.batch_size;
  for (int fused = 0; fused < 2; ++fused) {
    contexts[fused] = std::make_unique<ModelContext>();
    contexts[fused]->model = ModelOf(c, plugins);
    ModelTensors tensors = OrDie(ListTensors(contexts[fused]->model));
    contexts[fused]->parameters = std::move(tensors.parameters);
    contexts[fused]->states = std::move(tensors.states);
    contexts[fused]->ops = &ops;
    if (fused == 0) contexts[fused]->optimize.disabled = {"fuse-residual-norms"};
    sessions[fused] = OrDie(TrainSession::Create(contexts[fused].get(), &data, spec, threads));
    for (int i = 0; i < 3; ++i) Step(sessions[fused].get());
  }
  std::vector<double> times[2], ratios;
  bool same = true;
  const int steps = c.d_model < 64 ? 100 : 1;  // long enough to be timed
  for (int round = 0; round < rounds; ++round) {
    double seconds[2] = {0, 0}, losses[2] = {0, 0};
    for (const int which : {round % 2, 1 - round % 2}) {
      for (int i = 0; i < steps; ++i) {
        const Timed step = Step(sessions[which].get());
        seconds[which] += step.seconds / steps;
        losses[which] += step.loss;
      }
    }
    same = same && losses[0] == losses[1];
    for (int which = 0; which < 2; ++which) times[which].push_back(seconds[which]);
    ratios.push_back(seconds[0] / seconds[1]);
  }
  std::printf("%-7s %-11s %2d x %4d  %3d x %3d  %10.1f  %10.1f   %.3f +- %.3f  %s\n", c.placement,
              c.norm, static_cast<int>(c.n_layer), static_cast<int>(c.d_model),
              static_cast<int>(c.batch_size), static_cast<int>(c.context_length),
              1e6 * Quantile(times[0], 0.5), 1e6 * Quantile(times[1], 0.5), Quantile(ratios, 0.5),
              (Quantile(ratios, 0.75) - Quantile(ratios, 0.25)) / 2, same ? "yes" : "NO");
}

}  // namespace
}  // namespace plumb

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 41;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  if (rounds < 1 || threads < 1) {
    std::fprintf(stderr, "usage: fusion_benchmark [ROUNDS] [THREADS]\n");
    return 2;
  }
  plumb::OpRegistry ops;
  plumb::RegisterOps(&ops);
  plumb::PluginRegistry plugins;
  plugins.AddDirectory(PLUMB_BENCH_PLUGIN_DIR);
  const plumb::Dataset data = plumb::OrDie(
      plumb::Dataset::FromContent(plumb::RandomText(), "text", plumb::DatasetOptions()));
  std::printf("%-7s %-11s %-9s %-10s %10s  %10s   %-15s %s\n", "place", "norm", "layers", "batch",
              "apart us", "fused us", "apart / fused", "same bits");
  for (const plumb::Case& c : plumb::kCases) {
    plumb::Run(c, data, ops, &plugins, rounds, threads);
  }
  return 0;
}
