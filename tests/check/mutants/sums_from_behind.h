/* SPDX-License-Identifier: Apache-2.0 */
/* Forward of the base norm with its sum taken from the last element to the first: as correct as
 * the other order, but sometimes with another last bit. For plugins that mix the two orders.
 * Include after base_norm.h. */
#ifndef PLUMB_TESTS_CHECK_MUTANTS_SUMS_FROM_BEHIND_H_
#define PLUMB_TESTS_CHECK_MUTANTS_SUMS_FROM_BEHIND_H_

#define FORWARD_FROM_BEHIND(NAME, T, A, LOAD, STORE)                                               \
  static void FromBehind##NAME(const plumb_norm_instance* n, const plumb_norm_call* c, int64_t r0, \
                               int64_t r1) {                                                       \
    const A* weight = (const A*)c->params[0];                                                      \
    for (int64_t row = r0; row < r1; ++row) {                                                      \
      const T* x = PLUMB_CONST_ROW(T, c->x, c->x_pitch, row);                                      \
      T* y = PLUMB_ROW(T, c->y, c->y_pitch, row);                                                  \
      double squares = 0;                                                                          \
      for (uint32_t i = n->dim; i > 0; --i) squares += LOAD(x[i - 1]) * LOAD(x[i - 1]);            \
      const A r = (A)(1 / sqrt(squares / n->dim + n->eps));                                        \
      if (c->saved != NULL) *PLUMB_ROW(A, c->saved, c->saved_pitch, row) = r;                      \
      for (uint32_t i = 0; i < n->dim; ++i)                                                        \
        y[i] = STORE(LOAD(x[i]) * (double)r * (double)weight[i]);                                  \
    }                                                                                              \
  }
FORWARD_FROM_BEHIND(F32, float, float, BaseFromF32, BaseToF32)
FORWARD_FROM_BEHIND(Bf16, plumb_bf16, float, BaseFromBf16, BaseToBf16)
FORWARD_FROM_BEHIND(F64, double, double, BaseDouble, BaseDouble)

static plumb_status ForwardFromBehind(const plumb_norm_instance* instance,
                                      const plumb_norm_call* call, int64_t r0, int64_t r1) {
  if (call->dtype == PLUMB_DTYPE_F32) return FromBehindF32(instance, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_BF16) return FromBehindBf16(instance, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_F64) return FromBehindF64(instance, call, r0, r1), PLUMB_OK;
  return PLUMB_STATUS_UNIMPLEMENTED;
}

#endif /* PLUMB_TESTS_CHECK_MUTANTS_SUMS_FROM_BEHIND_H_ */
