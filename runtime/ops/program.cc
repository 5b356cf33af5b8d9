// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/program.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/program_lowering.h"
#include "runtime/ops/sum_rows.h"

namespace plumb {
namespace {

using Place = ProgramRegister::Place;

constexpr int64_t kTileFloats = 8192;  // in the L1 cache
constexpr int64_t kMaxRows = 256;
// Min elements of a tile's register, so that an instruction is worth its call; kMinRows rows are
// always enough.
constexpr int64_t kMinElements = 256, kMinRows = 16;

int64_t TileRows(const LoweredProgram& program) {
  int64_t width = 1;
  for (const int64_t each : program.slot_widths) width += each;
  const int64_t instructions = std::max<int64_t>(1, static_cast<int64_t>(program.tile.size()));
  const int64_t channels = std::max<int64_t>(1, program.work_per_row / instructions);
  const int64_t min = std::min(kMinRows, CeilDiv(kMinElements, channels));
  // There must be at least as many tiles as tasks.
  const int64_t tasks = TaskCount(program.rows, program.rows * program.work_per_row);
  const int64_t rows = std::min({kMaxRows, kTileFloats / width, CeilDiv(program.rows, tasks)});
  return std::min(program.rows, std::max(rows, min));
}

class ProgramKernel : public Kernel {
 public:
  explicit ProgramKernel(std::shared_ptr<const LoweredProgram> program)
      : shared_(std::move(program)),
        program_(*shared_),
        tile_rows_(TileRows(program_)),
        tiles_(CeilDiv(program_.rows, tile_rows_)),
        tasks_(TaskCount(tiles_, program_.rows * program_.work_per_row)),
        sum_rows_(SelectSumRows(DType::kF32).sum) {
    for (const int64_t width : program_.slot_widths) {
      slot_offsets_.push_back(arena_floats_);
      arena_floats_ += CeilDiv(width * tile_rows_, kPaddedFloats) * kPaddedFloats;
    }
    const int64_t registers = static_cast<int64_t>(program_.registers.size());
    table_bytes_ =
        CeilDiv(registers * static_cast<int64_t>(sizeof(float*)), kAlignment) * kAlignment;
  }

  // Vectors, the sums of all tasks, and the addresses and memory of each thread's registers.
  int64_t scratch_bytes() const override {
    return 4 * (program_.vector_floats + tasks_ * program_.sum_floats) +
           PlannedSlots(tasks_) * (table_bytes_ + 4 * arena_floats_);
  }

  absl::Status Run(const KernelArgs& args) const override {
    float* const vectors = static_cast<float*>(args.scratch);
    float* const sums = vectors + program_.vector_floats;
    std::byte* const slots = reinterpret_cast<std::byte*>(sums + tasks_ * program_.sum_floats);
    const int threads = std::min(args.threads, PlannedSlots(tasks_));
    const auto table_of = [&](int slot) {
      return reinterpret_cast<float**>(slots + slot * (table_bytes_ + 4 * arena_floats_));
    };
    const auto arena_of = [&](int slot) {
      return reinterpret_cast<float*>(slots + slot * (table_bytes_ + 4 * arena_floats_) +
                                      table_bytes_);
    };
    SetRegisters(args, vectors, sums, arena_of(0), table_of(0));
    for (const Instruction& each : program_.before) each.run(each, table_of(0), 1);
    if (!program_.tile.empty()) {
      ParallelFor(tasks_, threads, [&](int64_t task, int slot) {
        float* const own = sums + task * program_.sum_floats;
        std::memset(own, 0, static_cast<size_t>(program_.sum_floats) * sizeof(float));
        float** const table = table_of(slot);
        if (tasks_ > 1) SetRegisters(args, vectors, own, arena_of(slot), table);
        const Range tiles = TaskRange(tiles_, tasks_, task);
        for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
          const int64_t row = tile * tile_rows_, rows = std::min(tile_rows_, program_.rows - row);
          if (row > 0) SetRows(args, row, table);
          for (const Instruction& each : program_.tile) each.run(each, table, rows);
        }
      });
    }
    if (program_.after.empty()) return absl::OkStatus();
    // In the order of the tasks; the first task's sums become the total.
    if (tasks_ > 1) {
      if (program_.sum_floats > 0) {
        sum_rows_(sums, tasks_, program_.sum_floats, program_.sum_floats, sums);
      }
      SetRegisters(args, vectors, sums, arena_of(0), table_of(0));
    }
    for (const Instruction& each : program_.after) each.run(each, table_of(0), 1);
    return absl::OkStatus();
  }

  std::string ToString() const override {
    return absl::StrCat(program_.before.size(), " + ", program_.tile.size(), " + ",
                        program_.after.size(), " instructions, ", program_.slot_widths.size(),
                        " registers, tiles of ", tile_rows_, " rows");
  }

 private:
  void SetRegisters(const KernelArgs& args, float* vectors, float* sums, float* arena,
                    float** table) const {
    for (size_t i = 0; i < program_.registers.size(); ++i) {
      const ProgramRegister& each = program_.registers[i];
      const size_t index = static_cast<size_t>(each.index);
      switch (each.place) {
        case Place::kInput:
          // Instructions do not write to inputs.
          table[i] = static_cast<float*>(const_cast<void*>(args.in[index])) + each.offset;
          break;
        case Place::kOutput:
          table[i] = static_cast<float*>(args.out[index]);
          break;
        case Place::kVector:
          table[i] = vectors + each.offset;
          break;
        case Place::kSums:
          table[i] = sums + each.offset;
          break;
        case Place::kTile:
          table[i] = arena + slot_offsets_[index];
          break;
      }
    }
  }

  // Moves the registers that are the caller's memory to another row.
  void SetRows(const KernelArgs& args, int64_t row, float** table) const {
    for (size_t i = 0; i < program_.registers.size(); ++i) {
      const ProgramRegister& each = program_.registers[i];
      if (!each.has_rows || (each.place != Place::kInput && each.place != Place::kOutput)) continue;
      const size_t index = static_cast<size_t>(each.index);
      void* const memory =
          each.place == Place::kInput ? const_cast<void*>(args.in[index]) : args.out[index];
      const int64_t bytes = row * each.width * (each.is_bf16 ? 2 : 4);
      table[i] = reinterpret_cast<float*>(static_cast<std::byte*>(memory) + bytes);
    }
  }

  const std::shared_ptr<const LoweredProgram> shared_;
  const LoweredProgram& program_;
  const int64_t tile_rows_, tiles_, tasks_;
  std::vector<int64_t> slot_offsets_;  // in floats
  int64_t arena_floats_ = 0;
  int64_t table_bytes_ = 0;
  decltype(SumRowsFns::sum) sum_rows_;
};

absl::StatusOr<std::vector<TensorType>> Infer(const OpTypes& types) {
  const ProgramAttr& program = GetProgram(types.attrs);
  PLUMB_ASSIGN_OR_RETURN(const std::vector<TensorType> values, InferProgram(program, types.inputs));
  std::vector<TensorType> outputs;
  for (const GraphOutput& output : program.graph().outputs) {
    outputs.push_back(values[Index(output.value)]);
  }
  return outputs;
}

// The lowered programs of existing kernels. The layers of a model have equal programs, and so do
// the runs of a study: they share one copy, which stays in the cache. Thread-safe.
class LoweredPrograms {
 public:
  absl::StatusOr<std::shared_ptr<const LoweredProgram>> Of(const OpTypes& types) {
    const ProgramAttr& program = GetProgram(types.attrs);
    std::string key;
    for (const TensorType* input : types.inputs) absl::StrAppend(&key, input->ToString());
    absl::StrAppend(&key, program.ToString());
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto at = programs_.find(key); at != programs_.end()) {
      if (std::shared_ptr<const LoweredProgram> known = at->second.lock()) return known;
    }
    PLUMB_ASSIGN_OR_RETURN(LoweredProgram lowered, LoweredProgram::Of(program, types.inputs));
    absl::erase_if(programs_, [](const auto& each) { return each.second.expired(); });
    auto made = std::make_shared<const LoweredProgram>(std::move(lowered));
    programs_[std::move(key)] = made;
    return std::shared_ptr<const LoweredProgram>(made);
  }

 private:
  std::mutex mutex_;
  absl::flat_hash_map<std::string, std::weak_ptr<const LoweredProgram>> programs_;
};

// Runs the graph with the references of its ops.
absl::Status Reference(const ReferenceArgs& args) {
  const ProgramAttr& program = GetProgram(args.attrs);
  const Graph& graph = program.graph();
  PLUMB_ASSIGN_OR_RETURN(const std::vector<TensorType> values,
                         InferProgram(program, GetTypes(args)));
  std::vector<ReferenceTensor> tensors(values.size());
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    tensors[Index(program.leaves()[i])] = *args.inputs[i];
  }
  for (const Node& node : graph.nodes) {
    std::vector<const ReferenceTensor*> inputs;
    std::vector<ReferenceTensor*> outputs;
    for (const ValueId id : node.inputs) {
      inputs.push_back(id == kNoValue ? nullptr : &tensors[Index(id)]);
    }
    for (const ValueId id : node.outputs) {
      tensors[Index(id)].type = values[Index(id)];
      tensors[Index(id)].f.assign(static_cast<size_t>(values[Index(id)].num_elements()), 0);
      outputs.push_back(&tensors[Index(id)]);
    }
    PLUMB_RETURN_IF_ERROR(node.op->reference({inputs, outputs, node.attrs}));
  }
  for (size_t k = 0; k < graph.outputs.size(); ++k) {
    args.out(k) = tensors[Index(graph.outputs[k].value)].f;
  }
  return absl::OkStatus();
}

}  // namespace

std::function<absl::StatusOr<std::unique_ptr<Kernel>>(const OpTypes&)> ProgramKernelFactory(
    std::string name) {
  const auto op = std::make_shared<OpDef>();
  op->name = std::move(name);
  return [op](const OpTypes& types) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    Graph graph;
    Node node{op.get(), {}, {}, types.attrs};
    std::vector<const TensorType*> inputs;
    std::vector<int64_t> operands;  // indices of the leaves
    for (size_t i = 0; i < types.inputs.size(); ++i) {
      node.inputs.push_back(types.has(i) ? static_cast<ValueId>(graph.values.size()) : kNoValue);
      if (!types.has(i)) continue;
      graph.values.push_back({"", types.in(i), ValueKind::kInput, -1});
      inputs.push_back(&types.in(i));
      operands.push_back(static_cast<int64_t>(i));
    }
    for (const TensorType* output : types.outputs) {
      node.outputs.push_back(static_cast<ValueId>(graph.values.size()));
      graph.outputs.push_back({"", node.outputs.back()});
      graph.values.push_back({"", *output, ValueKind::kComputed, 0});
    }
    graph.nodes.push_back(std::move(node));
    PLUMB_ASSIGN_OR_RETURN(LoweredProgram program,
                           LoweredProgram::Of(ProgramAttr(std::move(graph)), inputs));
    for (ProgramRegister& each : program.registers) {
      if (each.place == Place::kInput) each.index = operands[static_cast<size_t>(each.index)];
    }
    return std::make_unique<ProgramKernel>(
        std::make_shared<const LoweredProgram>(std::move(program)));
  };
}

void RegisterProgram(OpRegistry* registry) {
  OpDef op;
  op.name = "program";
  op.max_inputs = OpDef::kVariadic;
  op.infer = Infer;
  op.vjp = AddProgramGradient;
  const auto programs = std::make_shared<LoweredPrograms>();
  op.make_kernel = [programs](const OpTypes& types) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    PLUMB_ASSIGN_OR_RETURN(std::shared_ptr<const LoweredProgram> program, programs->Of(types));
    return std::make_unique<ProgramKernel>(std::move(program));
  };
  op.reference = Reference;
  op.token_wise = [](const OpTypes& types) {
    const ProgramAttr& program = GetProgram(types.attrs);
    std::vector<size_t> inputs;
    for (const Node& node : program.graph().nodes) {
      if (node.op->name == "mul_reduce") return inputs;  // it sums over all tokens
    }
    for (size_t i = 0; i < types.inputs.size(); ++i) {
      if (program.LeafHasRows(i)) inputs.push_back(i);
    }
    return inputs;
  };
  registry->Add(std::move(op));
}

}  // namespace plumb
