// SPDX-License-Identifier: Apache-2.0
// plumb::TrainBench and plumb::DecodeBench measure the speed of a model with random weights on this
// machine; plumb::MachineSpeed measures the machine's limits. They measure single steps, so that
// callers can interleave what they compare, since a machine's speed drifts. All classes are
// thread-compatible.
#ifndef PLUMB_CLI_BENCH_BENCH_H_
#define PLUMB_CLI_BENCH_BENCH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"
#include "runtime/client/profile.h"
#include "runtime/train/train_run.h"

namespace plumb {

// Speed of the machine itself, with the runtime's number of threads.
class MachineSpeed {
 public:
  explicit MachineSpeed(const HostRuntime& runtime) : threads_(runtime.threads()) {}

  // Measures as plumb_runtime_measure_speed. Errors: kUnimplemented if there is no such product.
  absl::StatusOr<double> Measure(api::Speed speed);

 private:
  const int threads_;
  std::optional<api::Runtime> runtime_;  // created by the first call; keeps buffers
};

struct TrainBenchRequest {
  int64_t batch = 0;  // 0: that of train_path, else 1
  int64_t seq = 0;    // replaces the model's context_length; 0: keep it
  std::string dtype;  // "f32" or "bf16"; "": that of train_path, else f32
  uint64_t seed = 1;
  // Text or documents to take batches from, in the format of train_path. "": random tokens from the
  // whole vocabulary, which requires that the model sets vocab_size.
  std::string data_path;
  std::string train_path;     // "": defaults with a small learning rate
  Overrides train_overrides;  // applied on top of train_path; the fields above take precedence
};

struct BenchStep {
  double seconds = 0;
  int64_t tokens = 0;
  double loss = 0;
  // Floating-point operations of the model's matrix products: 6 per weight and token, and 12 * d *
  // seq per layer and token for attention, without subtracting what a causal mask hides (PaLM,
  // arXiv:2204.02311, appendix B).
  double flops = 0;
};

class TrainBench {
 public:
  static absl::StatusOr<std::unique_ptr<TrainBench>> Open(HostRuntime* runtime,
                                                          const ModelSource& model,
                                                          const TrainBenchRequest& request);
  ~TrainBench();
  TrainBench(const TrainBench&) = delete;
  TrainBench& operator=(const TrainBench&) = delete;

  int64_t parameters() const;
  int64_t batch() const;
  int64_t seq() const;        // the model's context_length
  std::string dtype() const;  // "f32" or "bf16"
  // Takes one whole step: batch, passes, clipping, optimizer. The first step with a new sequence
  // length compiles it.
  absl::StatusOr<BenchStep> Step();
  // Takes a step that is timed op by op.
  absl::StatusOr<BenchStep> ProfiledStep();
  // Returns the sum of all profiled steps since the last call.
  absl::StatusOr<Profile> TakeProfile();

 private:
  TrainBench();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct DecodeBenchRequest {
  int64_t batch = 1;            // number of sequences in parallel
  std::string weights = "f32";  // storage format: "f32", "bf16" or "int8"
  uint64_t seed = 1;
};

class DecodeBench {
 public:
  // Requires: the model sets vocab_size.
  static absl::StatusOr<std::unique_ptr<DecodeBench>> Open(HostRuntime* runtime,
                                                           const ModelSource& model,
                                                           const DecodeBenchRequest& request);
  ~DecodeBench();
  DecodeBench(const DecodeBench&) = delete;
  DecodeBench& operator=(const DecodeBench&) = delete;

  int64_t batch() const;
  int64_t context_length() const;
  // Returns the bytes of weights that one decoding step reads.
  int64_t weight_bytes() const;

  // Clears all sequences.
  absl::Status Reset();
  // Appends `n` tokens to each sequence. Returns the seconds, the tokens of all sequences, and the
  // flops of the forward passes. Errors: kOutOfRange if the context is full.
  absl::StatusOr<BenchStep> Feed(int64_t n);
  // Does the same, timed op by op.
  absl::StatusOr<BenchStep> ProfiledFeed(int64_t n);
  // Returns the sum of all profiled feeds since the last call.
  absl::StatusOr<Profile> TakeProfile();

 private:
  DecodeBench();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the peak resident memory of the process in bytes since its start or the last
// ResetPeakMemory, or 0 if the system does not report it.
int64_t PeakMemoryBytes();
// Resets the peak. Returns false if the system does not support that.
bool ResetPeakMemory();

}  // namespace plumb

#endif  // PLUMB_CLI_BENCH_BENCH_H_
