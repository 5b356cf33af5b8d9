// SPDX-License-Identifier: Apache-2.0
// Measures if training slows down as the moments of rare tokens decay, with a small model and a
// vocabulary of 50,000 whose frequencies follow Zipf's law. The moments of an embedding row without
// a gradient are multiplied by beta1 and beta2 in every step, so that within some hundred steps
// they would become denormal, and stay so: 0.9 times the smallest denormal rounds to itself.
//
// Two sessions are interleaved: one with denormals flushed to zero, as plumb trains, and one that
// keeps them. For each it prints: the median step of the first and of the last 100, and their
// ratio; the denormals among the moments; and "interleaved", the median ratio of the last 100 steps
// to the first 100 of a further session that runs interleaved with them, so that a machine that has
// become slower affects both. The cost of denormals depends on the processor: high on Intel, low on
// AMD.
//
//   zipf_benchmark [--steps N] [--threads N]      default: 2000; all processors
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "runtime/base/rng.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/session/train_session.h"
#include "runtime/spec/model_spec.h"

namespace plumb {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kVocabulary = 50000;
constexpr int kTokens = 400000;  // number of tokens of the text
constexpr int kCompared = 100;   // number of steps at either end

constexpr char kModel[] = R"pbtxt(
  n_layer: 2 n_head: 2 d_model: 64 context_length: 64 vocab_size: 50000
  block { placement: "pre" norm: "rms_norm" }
)pbtxt";

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  std::exit(1);
}

struct Options {
  int steps = 2000;
  int threads = 0;
};

Options ReadOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    int* const to = name == "--steps"     ? &options.steps
                    : name == "--threads" ? &options.threads
                                          : nullptr;
    if (to == nullptr || !absl::SimpleAtoi(value, to) || *to < 1) {
      Die(absl::InvalidArgumentError(name + " " + value));
    }
  }
  return options;
}

// Appends the character of a rank, from U+10000 on, which has four bytes.
void AppendCharacter(int rank, std::string* text) {
  const int code = 0x10000 + rank;
  text->push_back(static_cast<char>(0xf0 | code >> 18));
  for (const int shift : {12, 6, 0}) {
    text->push_back(static_cast<char>(0x80 | (code >> shift & 0x3f)));
  }
}

// Returns a text in which the token of rank k (from 0) has the probability 1 / (k + 1), normalized.
Dataset ZipfText() {
  std::vector<double> cumulative;
  double sum = 0;
  for (int rank = 0; rank < kVocabulary; ++rank) cumulative.push_back(sum += 1.0 / (rank + 1));
  const RngStream stream(1, "zipf");
  std::string text;
  for (int i = 0; i < kTokens; ++i) {
    const double at = stream.Uniform(static_cast<uint64_t>(i)) * sum;
    const auto token = std::upper_bound(cumulative.begin(), cumulative.end() - 1, at);
    AppendCharacter(static_cast<int>(token - cumulative.begin()), &text);
  }
  DatasetOptions options;
  options.val_fraction = 0;
  auto dataset = Dataset::FromContent(text, "zipf", options);
  if (!dataset.ok()) Die(dataset.status());
  return *std::move(dataset);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Run {
  const char* name;
  std::unique_ptr<TrainSession> session;
  std::vector<double> seconds;  // seconds of each step
  double loss = 0;

  void Step() {
    const Clock::time_point start = Clock::now();
    const auto result = session->Step();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    if (!result.ok()) Die(result.status());
    loss = result->loss;
  }
};

std::string Shares(const char* name, const float* moments, const ParameterLayout& layout) {
  int64_t zeros = 0, denormals = 0;
  for (const ParameterLayout::Entry& entry : layout.entries) {
    for (int64_t i = entry.begin; i < entry.end; ++i) {
      const int kind = std::fpclassify(moments[i]);
      if (kind == FP_ZERO) ++zeros;
      if (kind == FP_SUBNORMAL) ++denormals;
    }
  }
  const double percent = 100 / static_cast<double>(layout.num_parameters());
  char text[100];
  std::snprintf(text, sizeof(text), "%s %.1f %% zero, %.1f %% denormal", name,
                percent * static_cast<double>(zeros), percent * static_cast<double>(denormals));
  return text;
}

void Print(const Run& run, const Run& young) {
  const auto n = static_cast<std::ptrdiff_t>(young.seconds.size());
  const std::vector<double> first(run.seconds.begin(), run.seconds.begin() + n);
  const std::vector<double> last(run.seconds.end() - n, run.seconds.end());
  std::vector<double> ratios;
  for (size_t i = 0; i < last.size(); ++i) ratios.push_back(last[i] / young.seconds[i]);
  const ParameterLayout& layout = run.session->parameters().layout();
  std::printf(
      "denormals %-8s first %td steps %.2f ms, last %td %.2f ms, ratio %.3f, interleaved %.3f; %s; "
      "%s; "
      "loss %.6f\n",
      run.name, n, 1e3 * Median(first), n, 1e3 * Median(last), Median(last) / Median(first),
      Median(ratios), Shares("m", run.session->first_moments(), layout).c_str(),
      Shares("v", run.session->second_moments(), layout).c_str(), run.loss);
}

void Train(const Options& options) {
  RuntimeOptions runtime_options;
  runtime_options.threads = options.threads;
  const auto runtime = Runtime::Create(runtime_options);
  if (!runtime.ok()) Die(runtime.status());
  const auto spec = ModelSpec::FromText(kModel, "zipf.pbtxt");
  if (!spec.ok()) Die(spec.status());
  const auto context = (*runtime)->impl().MakeContext(*spec);
  if (!context.ok()) Die(context.status());
  const Dataset data = ZipfText();
  TrainSpec train;
  train.batch_size = 2;
  train.beta1 = 0.9;
  train.beta2 = 0.95;
  const auto begin = [&](const char* name) {
    auto session = TrainSession::Create(context->get(), &data, train, (*runtime)->threads());
    if (!session.ok()) Die(session.status());
    return Run{name, *std::move(session), {}, 0};
  };
  Run flushed = begin("flushed"), kept = begin("kept"), young = begin("flushed");
  kept.session->KeepDenormals();
  std::printf("%lld parameters, vocabulary %d, %d steps, %d threads\n",
              static_cast<long long>(flushed.session->parameters().layout().num_parameters()),
              kVocabulary, options.steps, (*runtime)->threads());
  std::fflush(stdout);
  for (int step = 0; step < options.steps; ++step) {
    std::vector<Run*> runs = {&flushed, &kept};
    if (step >= options.steps - kCompared) runs.push_back(&young);
    std::rotate(runs.begin(), runs.begin() + step % static_cast<int>(runs.size()), runs.end());
    for (Run* const run : runs) run->Step();
  }
  for (const Run* const run : {&flushed, &kept}) Print(*run, young);
}

}  // namespace
}  // namespace plumb

int main(int argc, char** argv) {
  plumb::Train(plumb::ReadOptions(argc, argv));
  return 0;
}
