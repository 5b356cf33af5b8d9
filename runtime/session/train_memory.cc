// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/train_memory.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/divide.h"
#include "runtime/base/status.h"
#include "runtime/compile/executable.h"
#include "runtime/data/batches.h"
#include "runtime/session/batch_inputs.h"
#include "runtime/session/bucket_plan.h"
#include "runtime/session/gradient_exchange.h"
#include "runtime/session/gradient_sums.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/rank_step.h"
#include "runtime/session/weight_average.h"

namespace plumb {
namespace {

// Gradients of this many elements exceed an L2 cache.
constexpr int64_t kManyElements = int64_t{1} << 19;

// Returns the bytes of the micro-batches that contain `units`, or 2^60 if they are more, to avoid
// overflow.
int64_t BytesOfMicroBatches(const TrainSpec& spec, const UnitRange& units, int64_t seq) {
  constexpr int64_t kMax = int64_t{1} << 60;
  const int64_t count = GetMicroBatches(spec, units).size();
  const int64_t bytes = Batch::Bytes(spec.batch_size, seq);
  return bytes > kMax / count ? kMax : count * bytes;
}

}  // namespace

WeightFormat GetWeightFormat(const TrainSpec& spec) {
  return spec.dtype == DType::kBF16 ? WeightFormat::kBf16 : WeightFormat::kF32;
}

BuildOptions TrainProgram(const TrainSpec& spec, const std::vector<std::string>& frozen) {
  BuildOptions options;
  options.program = Program::kTrain;
  options.weights = GetWeightFormat(spec);
  options.batch = spec.unit_rows();
  options.label_smoothing = spec.label_smoothing;
  options.z_loss = spec.z_loss;
  options.weighs_loss = spec.num_units() > 1 && !spec.host_loss;
  options.host_loss_passes = spec.host_loss ? spec.num_units() : 0;
  options.counts_loads = spec.router_correction_rate > 0;
  options.frozen = frozen;
  return options;
}

UnitRange GetMicroBatches(const TrainSpec& spec, const UnitRange& units) {
  const int64_t parts = spec.units_per_micro_batch();
  return {units.begin / parts, CeilDiv(units.end, parts)};
}

bool SumsSquaresInProgram(const ModelContext& context) {
  return ParameterLayout(context.parameters).size >= kManyElements;
}

OptimizeOptions TrainPasses(const ModelContext& context, const TrainSpec& spec) {
  OptimizeOptions options = context.optimize;
  options.recompute_blocks = spec.recompute_blocks;
  options.gradient_norms = SumsSquaresInProgram(context);
  return options;
}

absl::StatusOr<TrainMemory> PlanTrainMemory(const ModelContext& context, const TrainSpec& spec,
                                            int64_t seq, int ranks) {
  PLUMB_RETURN_IF_ERROR(CheckRanks(context, spec, ranks));
  PLUMB_ASSIGN_OR_RETURN(const OptimizerPlan optimizer, PlanOptimizer(spec, context));
  BuildOptions options = TrainProgram(spec, optimizer.updates.frozen);
  options.seq = seq;
  PLUMB_ASSIGN_OR_RETURN(
      Graph graph, BuildProgram(context, options, /*gradients=*/true, TrainPasses(context, spec)));
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable,
                         Executable::Compile(std::move(graph)));
  TrainMemory max;
  for (int rank = 0; rank < ranks; ++rank) {
    const TrainMemory memory =
        PlanTrainMemory(context, spec, optimizer, seq, executable->workspace_bytes(), rank, ranks);
    if (rank == 0 || memory.total() > max.total()) max = memory;
  }
  return max;
}

TrainMemory PlanTrainMemory(const ModelContext& context, const TrainSpec& spec,
                            const OptimizerPlan& optimizer, int64_t seq, int64_t workspace,
                            int rank, int ranks) {
  const ParameterLayout layout(context.parameters, optimizer.updates.frozen);
  TrainMemory memory;
  memory.weights = ParameterStore::Bytes(context.parameters);
  const int64_t units = spec.num_units();
  memory.gradients = GradientSums::Bytes(layout.size, units, UnitsOfRank(units, rank, ranks));
  if (SumsSquaresInProgram(context)) {
    memory.gradients += static_cast<int64_t>(context.parameters.size()) * kAlignment;
  }
  memory.moments = optimizer.state_bytes;
  if (ranks > 1) {
    memory.exchange = GradientExchange::Bytes(BucketPlan::Of(layout, ranks), units, rank, ranks);
  }
  if (spec.ema_decay > 0) memory.average = WeightAverage::Bytes(context);
  memory.norm_states = 3 * StateLayout(context.states).size * SizeOf(DType::kF32);
  memory.inputs = BatchInputs::Bytes(context.model, spec.unit_rows(), seq) + 4 * kAlignment +
                  BytesOfMicroBatches(spec, UnitsOfRank(units, rank, ranks), seq);
  memory.workspace = workspace + optimizer.scratch_bytes;
  return memory;
}

absl::Status CheckFits(const TrainMemory& memory, const TrainSpec& spec, const MemoryLimit& limit) {
  if (memory.total() <= limit.available) return absl::OkStatus();
  const auto size = [](int64_t bytes) {
    constexpr double kMiB = 1 << 20;
    return absl::StrFormat("%.0f MiB", std::ceil(static_cast<double>(bytes) / kMiB));
  };
  std::vector<std::string> remedies;
  if (memory.workspace + memory.validation > memory.total() / 4) {
    if (spec.unit_rows() > 1) {
      remedies.push_back("a smaller train.batch_size (with train.gradient_accumulation_steps)");
    }
    if (!spec.recompute_blocks) remedies.push_back("train.recompute: BLOCK");
    if (spec.dtype == DType::kF32) remedies.push_back("train.dtype: BF16");
    remedies.push_back("a smaller context_length");
  }
  if (memory.inputs > memory.total() / 4) {
    remedies.push_back("a smaller train.gradient_accumulation_steps");
  }
  remedies.push_back("a smaller model");
  return absl::ResourceExhaustedError(absl::StrCat(
      "training takes ", size(memory.total()), " of memory (weights, gradients and moments ",
      size(memory.weights + memory.gradients + memory.moments), ", activations ",
      size(memory.workspace), ", token ids of a step ", size(memory.inputs), ") and ",
      size(limit.available), " are left of the ", size(limit.bytes), " that this process may use (",
      limit.by, "); to reduce it, use ", absl::StrJoin(remedies, ", ")));
}

}  // namespace plumb
