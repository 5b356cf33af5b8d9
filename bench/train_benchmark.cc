// SPDX-License-Identifier: Apache-2.0
// Measures training steps per second of the models of the why-normalise study (one name per step)
// and of the Shakespeare recipe (12 x 64 characters), on one thread and on all.
//
// Only the steps are timed, as in metrics.jsonl; the first steps, which compile an executable for
// each length of the data, are excluded. Data: the shipped names, and generated text with 65
// different characters (which characters does not change the work).
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "runtime/app/host_runtime.h"
#include "runtime/app/train/train.h"

namespace {

const char kExamples[] = PLUMB_SOURCE_DIR "/examples/";

// A file that is removed when the program ends.
class TemporaryText {
 public:
  TemporaryText() : path_("/tmp/plumb_train_benchmark." + std::to_string(getpid()) + ".txt") {
    std::ofstream out(path_);
    unsigned state = 1;
    for (int i = 0; i < 200000; ++i) {
      state = state * 1664525u + 1013904223u;
      out << static_cast<char>(' ' + (state >> 16) % 65);
    }
  }
  ~TemporaryText() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const TemporaryText& Text() {
  static const TemporaryText text;
  return text;
}

void TrainSteps(benchmark::State& state, const plumb::TrainRequest& request, int warm_up_steps) {
  plumb::api::RuntimeOptions options;
  options.threads = static_cast<int>(state.range(0));
  auto runtime = plumb::HostRuntime::Create(options);
  if (!runtime.ok()) return state.SkipWithError(runtime.status().ToString().c_str());
  auto run = plumb::TrainRun::Open(runtime->get(), request);
  if (!run.ok()) return state.SkipWithError(run.status().ToString().c_str());
  for (int i = 0; i < warm_up_steps; ++i) {
    if (auto report = (*run)->Step(); !report.ok()) {
      return state.SkipWithError(report.status().ToString().c_str());
    }
  }
  int64_t tokens = 0;
  for (auto _ : state) {
    auto report = (*run)->Step();
    if (!report.ok()) return state.SkipWithError(report.status().ToString().c_str());
    state.SetIterationTime(report->seconds);
    tokens += report->tokens;
  }
  state.counters["steps/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}

void Study(benchmark::State& state, const char* placement) {
  plumb::TrainRequest request;
  request.model_path = std::string(kExamples) + "why_normalise/" + placement + ".pbtxt";
  request.train_path = std::string(kExamples) + "why_normalise/train.pbtxt";
  request.data_path = std::string(kExamples) + "data/names.txt";
  request.train_overrides = {{"max_steps", "100000000"}};
  TrainSteps(state, request, /*warm_up_steps=*/500);
}

void Shakespeare(benchmark::State& state) {
  plumb::TrainRequest request;
  request.model_path = std::string(kExamples) + "shakespeare/model.pbtxt";
  request.train_path = std::string(kExamples) + "shakespeare/train.pbtxt";
  request.data_path = Text().path();
  request.train_overrides = {{"max_steps", "100000000"}, {"eval_interval", "0"}};
  TrainSteps(state, request, /*warm_up_steps=*/3);
}

void Threads(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->ArgName("threads")->Arg(1);
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  if (processors > 1) benchmark->Arg(processors);
}

BENCHMARK_CAPTURE(Study, pre, "pre")->Apply(Threads)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Study, post, "post")->Apply(Threads)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Study, none, "none")->Apply(Threads)->Unit(benchmark::kMicrosecond);
BENCHMARK(Shakespeare)->Apply(Threads)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
