// SPDX-License-Identifier: Apache-2.0
// Instructions of programs: each applies one function to the registers of a tile of rows. A
// register is [rows, width] floats, row by row, or one row for all rows (a vector). Stateless.
#ifndef PLUMB_RUNTIME_OPS_PROGRAM_INSTRUCTIONS_H_
#define PLUMB_RUNTIME_OPS_PROGRAM_INSTRUCTIONS_H_

#include <cstdint>

#include "runtime/kernels/simd/activation_kind.h"
#include "runtime/ops/map_kind.h"

namespace plumb {

struct Instruction;
// Runs an instruction on the first `rows` rows of the registers.
using RunInstruction = void (*)(const Instruction& instruction, float* const* registers,
                                int64_t rows);
struct InstructionFn {
  RunInstruction run;
  // Variant for registers with kPaddedFloats more floats of memory, which computes whole vectors
  // only.
  RunInstruction run_padded;
};
inline constexpr int64_t kPaddedFloats = 16;

struct Instruction {
  RunInstruction run = nullptr;
  int32_t out = 0, a = 0, b = 0, c = 0;  // registers
  int32_t width = 1;                     // channels of out, or, for a reduction, of a
  int32_t other = 1;                     // channels of the other side
  int32_t offset = 0;                    // first channel in the other side
  float scale = 1, constant = 0;
};

// Shape of an operand b, relative to an operand of [rows, width].
enum class Operand {
  kSameShape,  // [rows, width]
  kPerRow,     // [rows, 1]
  kVector,     // [width], for all rows
  kScalar,     // [1], for all rows
};
inline constexpr int kOperands = 4;

// w: width, o: other.
struct InstructionFns {
  InstructionFn multiply[kOperands];      // out = scale a b
  InstructionFn multiply_add[kOperands];  // out = c + scale a b
  InstructionFn add[kOperands];           // out = c + scale b
  InstructionFn affine;                   // out = scale a + constant
  InstructionFn extremum[2];              // out = min(a, b), max(a, b)
  InstructionFn extremum_grad[2];         // out = dextremum / da * c
  InstructionFn fill;                     // out = constant
  InstructionFn expand[2];     // out[w] = a[o], each channel w / o times; [0] a row, [1] a vector
  InstructionFn slice;         // out[w] = a[offset .. offset + w) of o
  InstructionFn place;         // out[offset .. offset + w) of o = a[w]
  InstructionFn sum_channels;  // out[o] = a[w], groups of w / o summed
  InstructionFn dot[2];        // out[1] = sum of a[w] b[w]; [0] b a row, [1] a vector
  // The following sum over rows, and add to `out`, a vector.
  InstructionFn add_rows;         // out[w] += sum over rows of a
  InstructionFn add_products[2];  // out[w] += sum over rows of a b; [0] b like a, [1] b per row
  InstructionFn add_all;          // out[o] += sum over rows and groups of a[w]
  InstructionFn add_dot;          // out[1] += sum over rows of a[w] b[w]
  InstructionFn load_bf16;        // out = a, which is bf16
  InstructionFn store_bf16;       // out, which is bf16, = a
};
const InstructionFns& ProgramInstructions();

InstructionFn MapInstruction(MapKind kind);                    // out = f(a, constant)
InstructionFn MapGradInstruction(MapKind kind);                // out = f'(a, constant) b
InstructionFn ActivationInstruction(ActivationKind kind);      // out = f(a)
InstructionFn ActivationGradInstruction(ActivationKind kind);  // out = f'(a) b

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_PROGRAM_INSTRUCTIONS_H_
