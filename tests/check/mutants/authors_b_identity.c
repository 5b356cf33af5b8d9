/* SPDX-License-Identifier: Apache-2.0 */
/* Claims that are nearly true: a norm that declares PLUMB_NORM_IDENTITY, y = x and dx = dy,
 * without parameters. A host may elide it, so that any change would depend on the host. It is
 * correct without MUTANT's line. Each line is: condition: bug (all violate "y = x for any
 * attributes"). */
#include "many.h"
#include <math.h>
#include <string.h>

#include "plumb/norm_plugin.h"

#define ID "org.example.authors_b_identity"
PLUMB_NORM_NOTE(ID);

/* clang-format off */
/* 284. |x| above 65504: y is clipped to the range of IEEE half.
 * 285. a NaN in x: y is 0 there.
 * 286. |x| below 1e-30, and not 0: y is 0 there.
 * 287. negative x in f64: y was converted to float and has lost digits.
 * 288. |dy| above 1e4: dx is clipped (dx = dy).
 * 289. backward in bf16 while accumulating: dx is also added to the gradient of the previous
 *      row. */
/* clang-format on */

struct plumb_norm_instance {
  char nothing;
};
static struct plumb_norm_instance the_instance;

static double Y(double x, int f64) {
  if (IS(284) && fabs(x) > 65504) return x > 0 ? 65504 : -65504;
  if (IS(285) && x != x) return 0;
  if (IS(286) && fabs(x) < 1e-30) return 0;
  if (IS(287) && f64 && x < 0) return (double)(float)x;
  return x;
}

static double Dx(double dy) {
  if (IS(288) && fabs(dy) > 1e4) return dy > 0 ? 1e4 : -1e4;
  return dy;
}

#define KERNELS(NAME, T, LOAD, STORE)                                                  \
  static void Forward##NAME(const plumb_norm_call* c, int64_t r0, int64_t r1) {        \
    for (int64_t row = r0; row < r1; ++row) {                                          \
      const T* x = PLUMB_CONST_ROW(T, c->x, c->x_pitch, row);                          \
      T* y = PLUMB_ROW(T, c->y, c->y_pitch, row);                                      \
      for (uint32_t i = 0; i < c->dim; ++i) {                                          \
        const double before = (double)LOAD(x[i]), after = Y(before, sizeof(T) == 8);   \
        if (after != before && !(after != after && before != before))                  \
          y[i] = STORE(after);                                                         \
        else                                                                           \
          y[i] = x[i];                                                                 \
      }                                                                                \
    }                                                                                  \
  }                                                                                    \
  static void Backward##NAME(const plumb_norm_call* c, int64_t r0, int64_t r1) {       \
    const int add = (c->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                        \
    for (int64_t row = r0; row < r1; ++row) {                                          \
      const T* dy = PLUMB_CONST_ROW(T, c->dy, c->dy_pitch, row);                       \
      T* dx = PLUMB_ROW(T, c->dx, c->dx_pitch, row);                                   \
      for (uint32_t i = 0; i < c->dim; ++i) {                                          \
        double more = add ? (double)LOAD(dx[i]) : 0;                                   \
        if (IS(289) && add && sizeof(T) == 2 && row > r0)                              \
          more += (double)LOAD(PLUMB_CONST_ROW(T, c->dx, c->dx_pitch, row - 1)[i]);    \
        dx[i] = STORE(add ? Dx((double)LOAD(dy[i])) + more : Dx((double)LOAD(dy[i]))); \
      }                                                                                \
    }                                                                                  \
  }
#define AS_IS(v) (v)
#define TO_FLOAT(v) ((float)(v))
#define TO_BF16(v) plumb_bf16_from_float((float)(v))
KERNELS(F32, float, AS_IS, TO_FLOAT)
KERNELS(Bf16, plumb_bf16, plumb_bf16_to_float, TO_BF16)
KERNELS(F64, double, AS_IS, AS_IS)

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  (void)norm;
  if (call->dtype == PLUMB_DTYPE_F32) return ForwardF32(call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_BF16) return ForwardBf16(call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_F64) return ForwardF64(call, r0, r1), PLUMB_OK;
  return PLUMB_STATUS_UNIMPLEMENTED;
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  (void)norm;
  if (call->dtype == PLUMB_DTYPE_F32) return BackwardF32(call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_BF16) return BackwardBf16(call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_F64) return BackwardF64(call, r0, r1), PLUMB_OK;
  return PLUMB_STATUS_UNIMPLEMENTED;
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host, (void)dim, (void)values, (void)err, (void)cap;
  *out = &the_instance;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { (void)norm; }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  (void)norm;
  out->tensor_stride = sizeof(plumb_tensor_def);
  return PLUMB_OK;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = ID,
    .name = "Identity",
    .version = "1.0.0",
    .vendor = "Example",
    .license = "Apache-2.0",
    .doc = "y = x.",
    .flags =
        PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED | PLUMB_NORM_IDENTITY,
    .dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64,
    .attr_stride = sizeof(plumb_attr_def),
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
    .backward = Backward,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) { return index == 0 ? &kNorm : NULL; }

#define LIST(X) X(0, none) X(284, N2) X(285, N13) X(286, N13) X(287, N2) X(288, N2) \
  X(289, N3)
MANY(LIST)
