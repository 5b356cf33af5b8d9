/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants by authors who write their own loops, against plumb/norm_plugin.h alone. Without
 * MUTANT's line below the norm is correct: y = x s w + b, s = 1 / sqrt(<x^2> + eps). With u = dy
 * w, h = x s: dx = s (u - h <u h>), dw += dy h, db += dy. Each line is: condition: bug (the rule
 * that it violates). */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plumb/norm_plugin.h"

#ifndef MUTANT
#define MUTANT 0
#endif
#define IS(n) (MUTANT == (n))

#define ID "org.example.authors_b_loops"
PLUMB_NORM_NOTE(ID);

enum { kTile = 2048 };

struct plumb_norm_instance {
  double eps;
  plumb_tensor_def params[2];
};

/* clang-format off */
/* 221. dim above 2048: dw is collected in a single tile of 2048 numbers (dparams +=).
 * 222. x at 2 GiB and more after its base: row * pitch is computed in int32, and a negative
 *      offset becomes 0 (row r starts at base + r * pitch).
 * 223. dx at 4 GiB and more after its base: row * pitch is computed in uint32 (as 222).
 * 224. bf16, dim of 16 and more: y is truncated instead of rounded where whole vectors are
 *      written ("rounded to nearest").
 * 225. bf16, a NaN in the bias with all of its low bits set: rounding carries it to -0 ("a NaN
 *      stays a NaN").
 * 226. bf16, accumulating: dx is truncated instead of rounded ("rounded to nearest").
 * 227. bf16, exactly between two numbers: y is rounded up instead of to even ("ties to even").
 * 228. bf16, a result that rounds to infinity: the largest finite number is stored (rounding).
 * 229. range of an odd number of rows above 4, y in place: the last row is read again after it
 *      was written ("y may be x").
 * 230. dx is dy: u is stored in dx before dw and db are computed from dy ("dx may be dy").
 * 231. accumulating, range not at 0: its first row overwrites dx ("dx += gradient").
 * 232. accumulating, dim = 1 modulo 4: the remaining element adds the old value twice (the
 *      same).
 * 233. the bias is not in the 64 bytes after the weight: it is read from there anyway
 *      (params[1]).
 * 234. dim above 64: scratch is assumed to be zero, and dw gets its old content ("undefined
 *      content").
 * 235. range that begins after as many rows as it has, in f64 after the first: scratch is
 *      indexed by the row of the call ("scratch for this range only").
 * 236. evaluation, f32, dim a multiple of 16: s by the reciprocal root of Quake III, off by 1e-3
 *      (the equation; evaluation differs from training).
 * 237. empty range: flush-to-zero is set and not restored on this path ("leaves the mode as it
 *      is").
 * 238. a row of zeros: the rounding mode remains towards zero ("no change of floating-point
 *      state").
 * 239. dim no multiple of 8: the tail is read as a whole vector and its unused lanes are
 *      multiplied by 0, so that a NaN or infinity between rows poisons the row ("exactly dim
 *      elements").
 * 240. two rows at once, dim of at most 64: lanes of the other row are masked by multiplication
 *      with 0, so that a NaN reaches the neighbour (PLUMB_NORM_NAN_ISOLATED).
 * 241. ALIGNED64: four partial sums in float instead of one in double ("the same bits whatever
 *      PLUMB_CALL_ALIGNED64 says").
 * 242. bf16: s is saved after it was rounded to bf16, and backward uses that (saved: accumulate
 *      type; the derivative is off by 4e-3).
 * 243. more than 64 rows in the call: db is added once per call by the range that ends it, from
 *      its own rows alone (dparams +=).
 * 244. f32, |x| above 1.8e19: squares are computed in float and overflow (the equation; y = b).
 * 245. f32, a row whose dy is all zeros: it is skipped, and dx is not written ("dx: write"). */
/* clang-format on */

#if defined(__x86_64__)
#include <xmmintrin.h>
static void FlushDenormals(void) { _mm_setcsr(_mm_getcsr() | 0x8040u); }
static void RoundTowardsZero(void) { _mm_setcsr(_mm_getcsr() | 0x6000u); }
#else
#include <fenv.h>
static void FlushDenormals(void) { fesetround(FE_UPWARD); }
static void RoundTowardsZero(void) { fesetround(FE_TOWARDZERO); }
#endif

static uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

static float OfBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static float Quake(float v) {
  const float y = OfBits(0x5f3759dfu - (BitsOf(v) >> 1));
  return y * (1.5f - 0.5f * v * y * y);
}

/* Rounds y, element i of dim, to bf16 as each mutant does. */
static plumb_bf16 Round(float v, uint32_t i, uint32_t dim) {
  const uint32_t bits = BitsOf(v);
  if (IS(224) && i < dim / 16 * 16) return (plumb_bf16)(bits >> 16);
  if (IS(225)) return (plumb_bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  if (IS(227) && v == v) return (plumb_bf16)((bits + 0x8000u) >> 16);
  if (IS(228) && v - v == 0 && (bits & 0x7fffffffu) >= 0x7f7f8000u) {
    return (plumb_bf16)((bits >> 16 & 0x8000u) | 0x7f7fu);
  }
  return plumb_bf16_from_float(v);
}
#define SAME(v, i, dim) ((void)(i), (void)(dim), (v))
#define AS_IS(v) (v)

static int64_t Offset(int64_t row, int64_t pitch) {
  if (!IS(222)) return row * pitch;
  const int32_t offset = (int32_t)((uint32_t)row * (uint32_t)pitch);
  return offset < 0 ? 0 : offset;
}
static int64_t DxOffset(int64_t row, int64_t pitch) {
  return IS(223) ? (int64_t)(uint32_t)(row * pitch) : row * pitch;
}

#define KERNELS(NAME, T, A, LOAD, STORE)                                                          \
  static void Forward##NAME(const plumb_norm_instance* n, const plumb_norm_call* c, int64_t r0,   \
                            int64_t r1) {                                                         \
    const uint32_t dim = c->dim;                                                                  \
    const A* w = (const A*)c->params[0];                                                          \
    const A* b = (const A*)c->params[1];                                                          \
    if (IS(233)) b = w + (dim + 64 / sizeof(A) - 1) / (64 / sizeof(A)) * (64 / sizeof(A));        \
    for (int64_t row = r0; row < r1; ++row) {                                                     \
      const T* x = (const T*)(const void*)((const char*)c->x + Offset(row, c->x_pitch));          \
      T* y = PLUMB_ROW(T, c->y, c->y_pitch, row);                                                 \
      double squares = 0;                                                                         \
      for (uint32_t i = 0; i < dim; ++i) squares += (double)LOAD(x[i]) * (double)LOAD(x[i]);      \
      if (IS(244) && c->dtype == PLUMB_DTYPE_F32)                                                       \
        for (uint32_t i = 0; i < dim; ++i) {                                                      \
          const float square = (float)LOAD(x[i]) * (float)LOAD(x[i]);                             \
          if (square > FLT_MAX) squares = (double)square;                                         \
        }                                                                                         \
      if (IS(238) && squares == 0) RoundTowardsZero();                                            \
      if (IS(239)) { /* not past the pitch, and so not past the end */                            \
        for (uint32_t i = dim;                                                                    \
             i % 8 != 0 && (i + 1) * sizeof(T) <= (size_t)c->x_pitch && row + 1 < c->rows; ++i)   \
          squares += 0 * (double)LOAD(x[i]);                                                      \
      }                                                                                           \
      if (IS(240) && dim <= 64 && (row - r0) % 2 == 1) {                                          \
        const T* other = PLUMB_CONST_ROW(T, c->x, c->x_pitch, row - 1);                           \
        if (c->x != c->y)                                                                         \
          for (uint32_t i = 0; i < dim; ++i) squares += 0 * (double)LOAD(other[i]);               \
      }                                                                                           \
      if (IS(241) && (c->flags & PLUMB_CALL_ALIGNED64)) {                                         \
        float part[4] = {0, 0, 0, 0};                                                             \
        for (uint32_t i = 0; i < dim; ++i) part[i % 4] += (float)LOAD(x[i]) * (float)LOAD(x[i]);  \
        squares = (double)((part[0] + part[1]) + (part[2] + part[3]));                            \
      }                                                                                           \
      A s = (A)(1 / sqrt(squares / dim + n->eps));                                                \
      if (IS(236) && c->dtype == PLUMB_DTYPE_F32 && !(c->flags & PLUMB_CALL_TRAIN) && dim % 16 == 0 &&  \
          squares < (double)FLT_MAX)                                                              \
        s = (A)Quake((float)(squares / dim + n->eps));                                            \
      if (c->saved != NULL)                                                                       \
        *PLUMB_ROW(A, c->saved, c->saved_pitch, row) =                                            \
            IS(242) && sizeof(T) == 2 ? (A)plumb_bf16_to_float(plumb_bf16_from_float((float)s))   \
                                      : s;                                                        \
      for (uint32_t i = 0; i < dim; ++i) y[i] = STORE((A)LOAD(x[i]) * s * w[i] + b[i], i, dim);   \
      if (IS(229) && c->x == c->y && r1 - r0 > 4 && (r1 - r0) % 2 == 1 && row == r1 - 1)          \
        for (uint32_t i = 0; i < dim; ++i) y[i] = STORE((A)LOAD(x[i]) * s * w[i] + b[i], i, dim); \
    }                                                                                             \
  }                                                                                               \
  static void Backward##NAME(const plumb_norm_instance* n, const plumb_norm_call* c, int64_t r0,  \
                             int64_t r1) {                                                        \
    const uint32_t dim = c->dim;                                                                  \
    const A* w = (const A*)c->params[0];                                                          \
    A *dw = (A*)c->dparams[0], *db = (A*)c->dparams[1];                                           \
    A *sums = (A*)c->scratch, *rows = (A*)(void*)((double*)c->scratch + dim); /* one a row */     \
    const uint32_t tile = IS(221) && dim > kTile ? kTile : dim;                                   \
    (void)n;                                                                                      \
    if (!(IS(234) && dim > 64)) memset(sums, 0, dim * sizeof(A));                                 \
    for (int64_t row = r0; row < r1; ++row) {                                                     \
      const T* x = PLUMB_CONST_ROW(T, c->x, c->x_pitch, row);                                     \
      const T* dy = PLUMB_CONST_ROW(T, c->dy, c->dy_pitch, row);                                  \
      T* dx = (T*)(void*)((char*)c->dx + DxOffset(row, c->dx_pitch));                             \
      const A s = *PLUMB_CONST_ROW(A, c->saved, c->saved_pitch, row);                             \
      int add = (c->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;                                       \
      double mean = 0;                                                                            \
      int zeros = 1;                                                                              \
      for (uint32_t i = 0; i < dim; ++i) {                                                        \
        mean += (double)LOAD(dy[i]) * (double)w[i] * (double)((A)LOAD(x[i]) * s);                 \
        zeros &= LOAD(dy[i]) == 0;                                                                \
      }                                                                                           \
      if (IS(245) && zeros && c->dtype == PLUMB_DTYPE_F32) continue;                                    \
      A* kept = rows + (IS(235) ? row : row - r0);                                                \
      *kept = (A)(mean / dim);                                                                    \
      if (IS(231) && r0 > 0 && row == r0) add = 0;                                                \
      if (IS(230) && c->dx == (void*)(size_t)c->dy) {                                             \
        for (uint32_t i = 0; i < dim; ++i) dx[i] = STORE((A)LOAD(dy[i]) * w[i], dim, 0);          \
        for (uint32_t i = 0; i < dim; ++i) {                                                      \
          const A h = (A)LOAD(x[i]) * s, u = (A)LOAD(dy[i]);                                      \
          sums[i] += u * h, db[i] += u;                                                           \
          dx[i] = STORE(s * (u - h * *kept), dim, 0);                                             \
        }                                                                                         \
        continue;                                                                                 \
      }                                                                                           \
      for (uint32_t i = 0; i < dim; ++i) {                                                        \
        const A d = (A)LOAD(dy[i]), h = (A)LOAD(x[i]) * s, g = s * (d * w[i] - h * *kept);        \
        if (i < tile) sums[i] += d * h;                                                           \
        if (!(IS(243) && c->rows > 64) || r1 == c->rows) db[i] += d;                              \
        A more = add ? (A)LOAD(dx[i]) : 0;                                                        \
        if (IS(232) && dim % 4 == 1 && i == dim - 1) more += more;                                \
        const A v = add ? more + g : g;                                                           \
        dx[i] = STORE(IS(226) && add && sizeof(T) == 2 && v - v == 0                              \
                          ? (A)OfBits(BitsOf((float)v) & 0xffff0000u)                             \
                          : v,                                                                    \
                      dim, 0);                                                                    \
      }                                                                                           \
    }                                                                                             \
    for (uint32_t i = 0; i < dim; ++i) dw[i] += sums[i];                                          \
  }
#define STORE_BF16(v, i, dim) Round((v), (i), (dim))
KERNELS(F32, float, float, AS_IS, SAME)
KERNELS(Bf16, plumb_bf16, float, plumb_bf16_to_float, STORE_BF16)
KERNELS(F64, double, double, AS_IS, SAME)

static plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  if (IS(237) && r0 == r1) FlushDenormals();
  if (call->dtype == PLUMB_DTYPE_F32) return ForwardF32(norm, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_BF16) return ForwardBf16(norm, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_F64) return ForwardF64(norm, call, r0, r1), PLUMB_OK;
  return PLUMB_STATUS_UNIMPLEMENTED;
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  if (r0 == r1) return PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_F32) return BackwardF32(norm, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_BF16) return BackwardBf16(norm, call, r0, r1), PLUMB_OK;
  if (call->dtype == PLUMB_DTYPE_F64) return BackwardF64(norm, call, r0, r1), PLUMB_OK;
  return PLUMB_STATUS_UNIMPLEMENTED;
}

static const plumb_attr_def kAttributes[] = {
    {.name = "eps",
     .doc = "Added to the mean of the squares.",
     .type = PLUMB_ATTR_F64,
     .min = 1e-12,
     .max = 1,
     .def = {.f = 1e-6}},
};

static plumb_tensor_def Param(const char* name, const char* doc, uint32_t dim, uint32_t init) {
  return (plumb_tensor_def){
      .name = name, .doc = doc, .ndim = 1, .dims = {dim}, .init = init, .lr_scale = 1};
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  if (!(values[0].f >= 1e-12 && values[0].f <= 1)) {
    snprintf(err, cap, "eps = %g is outside 1e-12..1", values[0].f);
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  plumb_norm_instance* norm = (plumb_norm_instance*)malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->eps = values[0].f;
  norm->params[0] = Param("weight", "The gain.", dim, PLUMB_INIT_ONES);
  norm->params[1] = Param("bias", "The bias.", dim, PLUMB_INIT_ZEROS);
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 2;
  out->params = norm->params;
  out->saved_per_row = 1;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  out->scratch_bytes = norm->params[0].dims[0] * sizeof(double);
  out->scratch_bytes_per_row = sizeof(double);
  return PLUMB_OK;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = ID,
    .name = "Loops",
    .version = "1.0.0",
    .vendor = "Example",
    .license = "Apache-2.0",
    .doc = "Root mean square with gain and bias.",
    .flags = PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED,
    .dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_BF16 | PLUMB_DTYPE_F64,
    .n_attrs = 1,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = kAttributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = Forward,
    .backward = Backward,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) { return index == 0 ? &kNorm : NULL; }
