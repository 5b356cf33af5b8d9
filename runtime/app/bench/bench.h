// SPDX-License-Identifier: Apache-2.0
// plumb::TrainBench, plumb::DecodeBench: the speed of a model on this machine, with random weights;
// plumb::MachineSpeed: the machine's limits. They measure single steps, so that a caller can
// interleave the things that it compares: a machine's speed drifts.
//
// All classes are thread-compatible.
#ifndef PLUMB_RUNTIME_APP_BENCH_BENCH_H_
#define PLUMB_RUNTIME_APP_BENCH_BENCH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/model.h"
#include "runtime/app/profile.h"
#include "runtime/app/train/train.h"

namespace plumb {

// The machine's own speed, on the runtime's threads.
class MachineSpeed {
 public:
  explicit MachineSpeed(const HostRuntime& runtime) : threads_(runtime.threads()) {}

  // As plumb_machine_speed. kUnimplemented where there is no such product.
  absl::StatusOr<double> Measure(api::Speed speed);

 private:
  const int threads_;
  std::optional<api::Runtime> runtime_;  // of its own, which keeps the memory; none at first
};

struct TrainBenchRequest {
  int64_t batch = 0;  // 0: as train_path says, else 1
  int64_t seq = 0;    // the model's context_length is changed to that; 0: it stays
  std::string dtype;  // "f32" or "bf16"; "": as train_path says, else f32
  uint64_t seed = 1;
  // Text or documents to take batches from, as train_path says; "": tokens drawn at random from the
  // whole vocabulary, which the model must say then.
  std::string data_path;
  std::string train_path;     // "": defaults, and a learning rate that moves little
  Overrides train_overrides;  // over both; the fields above take precedence
  // The ranks that train together, each with a bench of the same request; it must outlive the
  // bench. null: this process alone.
  const plumb_communicator* ranks = nullptr;
};

struct BenchStep {
  double seconds = 0;
  int64_t tokens = 0;
  double loss = 0;
  // Of the model's matrix products: 6 a weight and token, and 12 * d * seq a layer and token for
  // attention, which does not leave out what a causal mask hides (PaLM, arXiv:2204.02311, appendix
  // B).
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
  int64_t seq() const;                           // of the longest batch
  std::string dtype() const;                     // "f32" or "bf16"
  int64_t units() const;                         // of a step: train.units
  std::string shard() const;                     // train.shard: "NONE", "OPTIMIZER", "GRADIENTS"
  std::string wire() const;                      // train.wire: "F32", "BF16"
  std::vector<int64_t> tensor_elements() const;  // of each weight, in the model's order
  // One whole step: batch, passes, clipping, optimizer. The first of a length compiles it.
  absl::StatusOr<BenchStep> Step();
  // The same, timed op by op.
  absl::StatusOr<BenchStep> ProfiledStep();
  // The sum of all such steps since the last call.
  absl::StatusOr<Profile> TakeProfile();

 private:
  TrainBench();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct DecodeBenchRequest {
  int64_t batch = 1;            // sequences side by side
  std::string weights = "f32";  // how they are stored: "f32", "bf16" or "int8"
  uint64_t seed = 1;
};

class DecodeBench {
 public:
  // The model must say its vocab_size.
  static absl::StatusOr<std::unique_ptr<DecodeBench>> Open(HostRuntime* runtime,
                                                           const ModelSource& model,
                                                           const DecodeBenchRequest& request);
  ~DecodeBench();
  DecodeBench(const DecodeBench&) = delete;
  DecodeBench& operator=(const DecodeBench&) = delete;

  int64_t batch() const;
  int64_t context_length() const;
  // Bytes of weights that one step of decoding reads.
  int64_t weight_bytes() const;

  // Forgets all sequences.
  absl::Status Reset();
  // Appends `n` tokens to each sequence; seconds, tokens of all sequences, and the flops of a
  // forward pass. kOutOfRange when the context is full.
  absl::StatusOr<BenchStep> Feed(int64_t n);
  // The same, timed op by op.
  absl::StatusOr<BenchStep> ProfiledFeed(int64_t n);
  // The sum of all such feeds since the last call.
  absl::StatusOr<Profile> TakeProfile();

 private:
  DecodeBench();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The most memory that the process had at once since it began, or since ResetPeakMemory: resident
// bytes, as the system counts them. 0 where it does not say.
int64_t PeakMemoryBytes();
// False where the system has no such reset.
bool ResetPeakMemory();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_BENCH_BENCH_H_
