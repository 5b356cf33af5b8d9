/* SPDX-License-Identifier: Apache-2.0 */
/* none: the identity, y = x and dx = dy.
 *
 * With it a placement runs without its norms, or with an empty slot. Its flag PLUMB_NORM_IDENTITY
 * lets a host drop it from the graph. */
#include <string.h>

#include "plumb/norm_plugin.h"

PLUMB_NORM_NOTE("none");

/* Instance without a state; only its address is needed. */
struct plumb_norm_instance {
  char unused;
};
static struct plumb_norm_instance the_instance;

static size_t ElementSize(uint32_t dtype) {
  switch (dtype) {
    case PLUMB_DTYPE_F32:
      return sizeof(float);
    case PLUMB_DTYPE_BF16:
      return sizeof(plumb_bf16);
    case PLUMB_DTYPE_F64:
      return sizeof(double);
    default:
      return 0;
  }
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host, (void)dim, (void)values, (void)err, (void)cap;
  *out = &the_instance;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* instance) { (void)instance; }

static plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  (void)instance;
  out->tensor_stride = sizeof(plumb_tensor_def);
  return PLUMB_OK;
}

/* Computes dst[r] = src[r], with one copy if the rows are dense on both sides. */
static void CopyRows(void* dst, int64_t dst_pitch, const void* src, int64_t src_pitch,
                     size_t row_bytes, int64_t r0, int64_t r1) {
  char* to = (char*)dst + r0 * dst_pitch;
  const char* from = (const char*)src + r0 * src_pitch;
  if (to == from || r0 == r1) return;
  if (dst_pitch == src_pitch && dst_pitch == (int64_t)row_bytes) {
    memcpy(to, from, row_bytes * (size_t)(r1 - r0));
    return;
  }
  for (int64_t r = r0; r < r1; ++r, to += dst_pitch, from += src_pitch) memcpy(to, from, row_bytes);
}

static plumb_status Forward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  (void)instance;
  const size_t element = ElementSize(call->dtype);
  if (element == 0) return PLUMB_STATUS_UNIMPLEMENTED;
  CopyRows(call->y, call->y_pitch, call->x, call->x_pitch, element * call->dim, r0, r1);
  return PLUMB_OK;
}

/* Computes dx[r] += dy[r]; LOAD and STORE convert an element to a number and back. */
#define ADD_ROWS(NAME, T, LOAD, STORE)                                                 \
  static void NAME(const plumb_norm_call* call, int64_t r0, int64_t r1) {              \
    for (int64_t r = r0; r < r1; ++r) {                                                \
      T* dx = PLUMB_ROW(T, call->dx, call->dx_pitch, r);                               \
      const T* dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, r);                   \
      for (size_t i = 0; i < call->dim; ++i) dx[i] = STORE(LOAD(dx[i]) + LOAD(dy[i])); \
    }                                                                                  \
  }
#define AS_IT_IS(value) (value)
ADD_ROWS(AddRowsF32, float, AS_IT_IS, AS_IT_IS)
ADD_ROWS(AddRowsBF16, plumb_bf16, plumb_bf16_to_float, plumb_bf16_from_float)
ADD_ROWS(AddRowsF64, double, AS_IT_IS, AS_IT_IS)

static plumb_status Backward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  (void)instance;
  const size_t element = ElementSize(call->dtype);
  if (element == 0) return PLUMB_STATUS_UNIMPLEMENTED;
  if (!(call->flags & PLUMB_CALL_DX_ACCUMULATE)) {
    CopyRows(call->dx, call->dx_pitch, call->dy, call->dy_pitch, element * call->dim, r0, r1);
  } else if (call->dtype == PLUMB_DTYPE_F32) {
    AddRowsF32(call, r0, r1);
  } else if (call->dtype == PLUMB_DTYPE_BF16) {
    AddRowsBF16(call, r0, r1);
  } else {
    AddRowsF64(call, r0, r1);
  }
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .min_host_minor = 0,
    .id = "none",
    .name = "No norm",
    .version = "1.0.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc = "The identity, y = x.",
    .flags =
        PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED | PLUMB_NORM_IDENTITY,
    .dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64,
    .n_attrs = 0,
    .attr_stride = sizeof(plumb_attr_def),
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
    .backward = Backward,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}
