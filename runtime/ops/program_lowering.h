// SPDX-License-Identifier: Apache-2.0
// LoweredProgram: a program as instructions on registers. The instructions of `before` run once, on
// vectors; those of `tile` run for each tile of rows; those of `after` run once, on sums over all
// rows. A value.
#ifndef PLUMB_RUNTIME_OPS_PROGRAM_LOWERING_H_
#define PLUMB_RUNTIME_OPS_PROGRAM_LOWERING_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/graph/program.h"
#include "runtime/ops/program_instructions.h"

namespace plumb {

struct ProgramRegister {
  enum class Place {
    kInput,   // memory of the node's input `index`
    kOutput,  // memory of the node's output `index`
    kVector,  // memory shared by all rows, at `offset`
    kSums,    // sums over rows, at `offset`
    kTile     // memory of a tile, slot `index`
  };
  Place place;
  int64_t width;
  bool has_rows;
  bool is_late = false;  // a vector that is only known after all rows
  int64_t index = 0;
  int64_t offset = 0;  // in floats
  bool is_bf16 = false;
};

struct LoweredProgram {
  std::vector<ProgramRegister> registers;
  std::vector<Instruction> before, tile, after;
  std::vector<int64_t> slot_widths;  // slots of a tile's memory
  int64_t rows = 1;
  int64_t vector_floats = 0, sum_floats = 0;
  int64_t work_per_row = 0;  // elements that the instructions of a tile write

  // Lowers a program. Errors: kInternal for a program that cannot be computed in one pass over its
  // rows.
  static absl::StatusOr<LoweredProgram> Of(const ProgramAttr& program,
                                           absl::Span<const TensorType* const> inputs);
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_PROGRAM_LOWERING_H_
