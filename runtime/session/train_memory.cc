#include "runtime/session/train_memory.h"

#include <memory>
#include <utility>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/status.h"
#include "runtime/compile/executable.h"
#include "runtime/session/parameter_store.h"

namespace plumb {
namespace {

// Gradients larger than an L2 cache.
constexpr int64_t kManyElements = int64_t{1} << 19;

}  // namespace

WeightFormat WeightFormatOf(const TrainSpec& spec) {
  return spec.dtype == DType::kBF16 ? WeightFormat::kBf16 : WeightFormat::kF32;
}

BuildOptions TrainProgram(const TrainSpec& spec) {
  BuildOptions options;
  options.program = Program::kTrain;
  options.weights = WeightFormatOf(spec);
  options.batch = spec.batch_size;
  return options;
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
                                            int64_t seq) {
  BuildOptions options = TrainProgram(spec);
  options.seq = seq;
  PLUMB_ASSIGN_OR_RETURN(
      Graph graph, BuildProgram(context, options, /*gradients=*/true, TrainPasses(context, spec)));
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<Executable> executable,
                         Executable::Compile(std::move(graph)));
  const int64_t flat = ParameterLayout(context.parameters).size * SizeOf(DType::kF32);
  TrainMemory memory;
  memory.weights = flat;
  memory.gradients = spec.gradient_accumulation_steps > 1 ? 2 * flat : flat;
  if (SumsSquaresInProgram(context)) {
    memory.gradients += static_cast<int64_t>(context.parameters.size()) * kAlignment;
  }
  memory.moments = 2 * flat;
  memory.norm_states = 3 * StateLayout(context.states).size * SizeOf(DType::kF32);
  memory.inputs = 3 * spec.batch_size * seq * SizeOf(DType::kI32) + kAlignment;
  memory.workspace = executable->workspace_bytes();
  return memory;
}

}  // namespace plumb
