// SPDX-License-Identifier: Apache-2.0
// Measures decoding and prompts of GPT-2 124M with random weights relative to the limits of the
// machine in the same run: bytes of weights read per second compared with a plain read, and prompts
// compared with a matrix product. Both sides are interleaved, since memory bandwidth drifts from
// one second to the next; ratios are medians over the rounds.
//
//   decode_benchmark [--seconds S] [--threads N] [--weights f32,bf16,int8] [--batch 1,4,8]
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "runtime/base/check.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/compile/node_cost.h"
#include "runtime/kernels/gemv/read_speed.h"
#include "runtime/onednn/gemm_speed.h"
#include "runtime/session/decode_session.h"
#include "runtime/spec/model_spec.h"

namespace plumb {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kModel[] = PLUMB_SOURCE_DIR "/bench/models/gpt2.pbtxt";
constexpr int64_t kPrompt = 512;

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  std::exit(1);
}
void DieUnlessOk(const absl::Status& status) {
  if (!status.ok()) Die(status);
}

double Seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Options {
  double seconds = 4;  // time for each row of the table
  int threads = 0;
  std::vector<std::string> weights = {"f32", "bf16", "int8"};
  std::vector<std::string> batches = {"1", "4", "8"};
};

Options ReadOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    bool ok = true;
    if (name == "--seconds") {
      ok = absl::SimpleAtod(value, &options.seconds);
    } else if (name == "--threads") {
      ok = absl::SimpleAtoi(value, &options.threads);
    } else if (name == "--weights") {
      options.weights = absl::StrSplit(value, ',');
    } else if (name == "--batch") {
      options.batches = absl::StrSplit(value, ',', absl::SkipEmpty());
    } else {
      ok = false;
    }
    if (!ok) Die(absl::InvalidArgumentError(name + " " + value));
  }
  return options;
}

WeightFormat FormatOf(const std::string& name) {
  if (name == "bf16") return WeightFormat::kBf16;
  if (name == "int8") return WeightFormat::kInt8;
  return WeightFormat::kF32;
}

// Prints tokens per second, bytes of weights per second, and these relative to a plain read.
void TimeDecoding(const ModelContext& context, const ParameterStore& parameters,
                  const PackedWeights& weights, const std::string& name, int64_t batch,
                  const Options& options) {
  DecodeSession session(&context, &weights, batch, options.threads);
  const std::vector<int32_t> prompt(64, 17), tokens(static_cast<size_t>(batch), 17);
  // The position table, and the token table if it is not also the head, are not counted, since only
  // some of their rows are read.
  const double bytes =
      static_cast<double>(weights.matrix_bytes()) *
      static_cast<double>(parameters.layout().num_parameters() -
                          context.model.dims.context_length * context.model.dims.d_model) /
      static_cast<double>(parameters.layout().num_parameters());
  std::vector<double> speeds, reads, shares;
  const Clock::time_point start = Clock::now();
  while (Seconds(start) < options.seconds || speeds.size() < 5) {
    if (speeds.size() % 200 == 0) {
      session.Reset();
      for (int64_t b = 0; b < batch; ++b) DieUnlessOk(session.Feed(b, prompt));
      DieUnlessOk(session.FeedBatch(tokens));
    }
    const double read = MeasureReadSpeed(
        absl::MakeConstSpan(parameters.data(), static_cast<size_t>(parameters.layout().size)),
        options.threads);
    const Clock::time_point step = Clock::now();
    DieUnlessOk(session.FeedBatch(tokens));
    speeds.push_back(bytes / Seconds(step));
    reads.push_back(read);
    shares.push_back(speeds.back() / read);
  }
  std::sort(shares.begin(), shares.end());
  const double speed = Median(speeds);
  std::printf(
      "decode %-4s x %-2lld  %8.1f tokens/s  %5.1f GB/s of weights, read %5.1f: %5.1f %% "
      "(quartiles %.1f..%.1f)\n",
      name.c_str(), static_cast<long long>(batch), speed / bytes * static_cast<double>(batch),
      speed / 1e9, Median(reads) / 1e9, 100 * Median(shares), 100 * shares[shares.size() / 4],
      100 * shares[shares.size() * 3 / 4]);
  std::fflush(stdout);
}

void TimePrompt(const ModelContext& context, const PackedWeights& weights, const std::string& name,
                const Options& options) {
  BuildOptions build;
  build.program = Program::kCached;
  build.weights = weights.format();
  build.seq = kPrompt;
  const auto graph = BuildProgram(context, build, /*gradients=*/false);
  if (!graph.ok()) Die(graph.status());
  double flops = 0;
  for (const NodeTime& node : NodeCosts(*graph)) flops += node.flops;
  const DType dtype = weights.format() == WeightFormat::kBf16 ? DType::kBF16 : DType::kF32;
  GemmSpeed gemm;
  DecodeSession session(&context, &weights, 1, options.threads);
  const std::vector<int32_t> prompt(kPrompt, 17);
  DieUnlessOk(session.Feed(prompt));
  std::vector<double> speeds, shares;
  const Clock::time_point start = Clock::now();
  while (Seconds(start) < options.seconds || speeds.size() < 5) {
    const auto peak = gemm.Measure(dtype, options.threads);
    if (!peak.ok()) Die(peak.status());
    session.Reset();
    const Clock::time_point step = Clock::now();
    DieUnlessOk(session.Feed(prompt));
    speeds.push_back(flops / Seconds(step));
    shares.push_back(speeds.back() / *peak);
  }
  const double speed = Median(speeds);
  std::printf("prompt %-4s %lld   %8.1f tokens/s  %5.0f GF/s, %5.1f %% of the product's\n",
              name.c_str(), static_cast<long long>(kPrompt),
              speed / flops * static_cast<double>(kPrompt), speed / 1e9, 100 * Median(shares));
  std::fflush(stdout);
}

void Run(Options options) {
  RuntimeOptions runtime_options;
  runtime_options.threads = options.threads;
  auto runtime = Runtime::Create(runtime_options);
  if (!runtime.ok()) Die(runtime.status());
  options.threads = (*runtime)->threads();
  const auto spec = ModelSpec::FromFile(kModel);
  if (!spec.ok()) Die(spec.status());
  const auto context = (*runtime)->impl().MakeContext(*spec);
  if (!context.ok()) Die(context.status());
  const ParameterStore parameters((*context)->parameters, (*context)->states);
  PLUMB_CHECK(
      DrawParameters((*context)->parameters, (*context)->states, 1, options.threads, parameters)
          .ok(),
      "initial values");
  for (const std::string& name : options.weights) {
    const PackedWeights weights(**context, FormatOf(name), parameters, options.threads);
    for (const std::string& batch : options.batches) {
      TimeDecoding(**context, parameters, weights, name, std::atoll(batch.c_str()), options);
    }
    TimePrompt(**context, weights, name, options);
  }
}

}  // namespace
}  // namespace plumb

int main(int argc, char** argv) {
  plumb::Run(plumb::ReadOptions(argc, argv));
  return 0;
}
