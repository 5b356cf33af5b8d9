/* SPDX-License-Identifier: Apache-2.0 */
/* plumb/ext/residual.h: the extension "plumb.norm.residual/1", the sum before a norm,
 * fused with it. Optional for norms and hosts; final like every extension. */
#ifndef PLUMB_EXT_RESIDUAL_H
#define PLUMB_EXT_RESIDUAL_H

#include "plumb/norm_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sum before a norm, fused with it: s = x + res, y = norm(s). get_extension(PLUMB_EXT_RESIDUAL)
 * returns a plumb_norm_residual. The norm is that of s as stored, in the element type. In backward,
 * call->x is s if PLUMB_BACKWARD_READS_X is set, and dx is the gradient of s (and so of both x and
 * res), to which dsum is added if it is given; PLUMB_CALL_DX_ACCUMULATE is not set. For
 * PLUMB_DTYPE_F32 and PLUMB_DTYPE_F64 the results are those of an addition followed by a norm, bit
 * for bit: gradient and dsum are each rounded before they are added. Row-wise norms of one input
 * only. */
#define PLUMB_EXT_RESIDUAL "plumb.norm.residual/1"
typedef struct plumb_residual_call {
  uint32_t struct_size;
  uint32_t reserved;
  const void* res; /* forward: [rows, dim], read */
  int64_t res_pitch;
  void* sum; /* forward: [rows, dim], written; may be x or res */
  int64_t sum_pitch;
  /* backward: [rows, dim], the gradient of s that bypasses the norm; may be NULL, and may be dx
   * (same base and pitch). */
  const void* dsum;
  int64_t dsum_pitch;
} plumb_residual_call;

typedef struct plumb_norm_residual {
  uint32_t struct_size;
  uint32_t reserved;
  /* [hot] Like plumb_norm_plugin.forward. */
  plumb_status (*forward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                          const plumb_residual_call* residual, int64_t r0, int64_t r1);
  /* [hot] Like plumb_norm_plugin.backward. */
  plumb_status (*backward)(const plumb_norm_instance* instance, const plumb_norm_call* call,
                           const plumb_residual_call* residual, int64_t r0, int64_t r1);
} plumb_norm_residual;

#if UINTPTR_MAX == 0xffffffffffffffffu
PLUMB_STATIC_ASSERT(sizeof(plumb_residual_call) == 56, "plumb_residual_call");
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_residual) == 24, "plumb_norm_residual");
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMB_EXT_RESIDUAL_H */
