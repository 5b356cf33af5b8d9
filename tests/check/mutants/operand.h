/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of any element type, and copies of calls, for mutants. */
#ifndef PLUMB_TESTS_CHECK_MUTANTS_OPERAND_H_
#define PLUMB_TESTS_CHECK_MUTANTS_OPERAND_H_

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "plumb/norm_plugin.h"

typedef struct { /* operand of any type */
  uint32_t type;
  void* base;
  ptrdiff_t pitch;
} Operand;

static inline double Get(Operand o, int64_t row, uint32_t i) {
  const void* p = (const char*)o.base + row * o.pitch;
  if (o.type == PLUMB_DTYPE_F64) return ((const double*)p)[i];
  if (o.type == PLUMB_DTYPE_BF16) return plumb_bf16_to_float(((const plumb_bf16*)p)[i]);
  return ((const float*)p)[i];
}

static inline void Set(Operand o, int64_t row, uint32_t i, double value) {
  void* p = (char*)o.base + row * o.pitch;
  if (o.type == PLUMB_DTYPE_F64) ((double*)p)[i] = value;
  if (o.type == PLUMB_DTYPE_BF16) ((plumb_bf16*)p)[i] = plumb_bf16_from_float((float)value);
  if (o.type == PLUMB_DTYPE_F32) ((float*)p)[i] = (float)value;
}

static inline void Scale(Operand o, uint32_t dim, int64_t r0, int64_t r1, double by) {
  for (int64_t r = r0; r < r1; ++r)
    for (uint32_t i = 0; i < dim; ++i) Set(o, r, i, Get(o, r, i) * by);
}

static inline double Largest(Operand o, uint32_t dim, int64_t row) {
  double largest = 0;
  for (uint32_t i = 0; i < dim; ++i) largest = fmax(largest, fabs(Get(o, row, i)));
  return largest;
}

static inline double Mean(Operand o, uint32_t dim, int64_t row) {
  double sum = 0;
  for (uint32_t i = 0; i < dim; ++i) sum += Get(o, row, i);
  return sum / dim;
}

/* Copies a call, which is shorter if an older host passes it. */
static inline plumb_norm_call CopyOfCall(const plumb_norm_call* call) {
  plumb_norm_call copy;
  const size_t known = call->struct_size < sizeof(copy) ? call->struct_size : sizeof(copy);
  memset(&copy, 0, sizeof(copy));
  memcpy(&copy, call, known);
  copy.struct_size = (uint32_t)known;
  return copy;
}

static inline uint32_t SizeOf(uint32_t type) {
  return type == PLUMB_DTYPE_F64 ? 8 : type == PLUMB_DTYPE_BF16 ? 2 : 4;
}

#endif /* PLUMB_TESTS_CHECK_MUTANTS_OPERAND_H_ */
