/* SPDX-License-Identifier: Apache-2.0 */
/* Bugs of a correct row norm that break one rule each, mostly without a condition. */
#define MANY_FLAGS(n, flags)                            \
  ((n) == 416   ? (flags) | PLUMB_NORM_IDENTITY         \
   : (n) == 430 ? PLUMB_NORM_SCALE_INVARIANT            \
                : (flags))
#include "many.h"

#define NORM_CREATE SpoiltCreate
#define NORM_LAYOUT SpoiltLayout
#define NORM_FORWARD SpoiltForward
#define NORM_BACKWARD SpoiltBackward
#define NORM_EXTENSION SpoiltGetExtension
#include <fcntl.h>
#include <fenv.h>
#include <stdatomic.h>
#include <time.h>

#include "norm.h"
#include "operand.h"

static _Atomic(const void*) current_weights;
static atomic_int running;
static volatile int count;

/* Returns the next number of f32, or of f64. */
static double Next(uint32_t type, double v) {
  return type == PLUMB_DTYPE_F64 ? nextafter(v, 9e99) : (double)nextafterf((float)v, 9e9f);
}

static void SetMode(uint32_t bits) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(bits);
#else
  fesetround(bits == 0x1f80u ? FE_TONEAREST : FE_UPWARD);
#endif
}

/* Does what a mutant does before the honest forward. */
static void BeforeForward(const plumb_norm_call* c, int64_t r0, int64_t r1) {
  const uint32_t d = c->dim;
  const size_t width = d * (size_t)SizeOf(c->dtype);
  for (int64_t r = r0; r < r1; ++r) {
    const char* x = PLUMB_CONST_ROW(char, c->x, c->x_pitch, r);
    /* 404: reads the element after each row and does not use it. */
    if (IS(404)) (void)*(const volatile char*)(x + width);
    /* 411: clears y before it reads x, and declares that y may be x. */
    if (IS(411)) memset(PLUMB_ROW(char, c->y, c->y_pitch, r), 0, width);
    /* 425: iterates until convergence, which never happens if a row has both infinities. */
    if (IS(425) && c->dtype == PLUMB_DTYPE_F32 && d > 1) {
      volatile double both = ((const float*)x)[0] + (double)((const float*)x)[1];
      while (isinf(((const float*)x)[0]) && isinf(((const float*)x)[1]) && isnan(both)) both /= 2;
    }
  }
  /* 438: reads the weight after the last one. */
  if (IS(438) && r0 < r1)
    (void)((const volatile char*)c->params[0])[d * (c->dtype == PLUMB_DTYPE_F64 ? 8u : 4u)];
  /* 420: allocates and frees. 421: counts its calls in a static variable. */
  void* volatile block = IS(420) ? malloc(64) : NULL;
  free(block);
  if (IS(421)) count = count + 1;
  /* 423: flushes denormals and does not restore the mode. 424: computes in the default mode and
   * does not restore the host's, which only hosts that flush denormals notice. */
  if (IS(423)) SetMode(0x9f80u);
  if (IS(424)) SetMode(0x1f80u);
}

static plumb_status SpoiltForward(const plumb_norm_instance* n, const plumb_norm_call* c,
                                  int64_t r0, int64_t r1) {
  const Operand y = {c->dtype, c->y, c->y_pitch}, x = {c->dtype, (void*)c->x, c->x_pitch};
  const uint32_t d = c->dim;
  const int f32 = c->dtype == PLUMB_DTYPE_F32, train = (c->flags & PLUMB_CALL_TRAIN) != 0;
  const int offered = f32 || c->dtype == PLUMB_DTYPE_BF16 || c->dtype == PLUMB_DTYPE_F64;
  const int in_place = c->x == c->y;
  plumb_norm_call copy = CopyOfCall(c);
  const void* params[1];
  plumb_status status = PLUMB_OK;
  /* 414: answers OK for a type that it does not know. */
  if (!offered) return IS(414) ? PLUMB_OK : PLUMB_STATUS_UNIMPLEMENTED;
  /* 408: fails without rows. 455: works only with the host that it was compiled for. */
  if (IS(408) && c->rows == 0) return PLUMB_STATUS_INVALID_ARGUMENT;
  if (IS(455) && c->struct_size != sizeof(plumb_norm_call)) return PLUMB_STATUS_INVALID_ARGUMENT;
  BeforeForward(c, r0, r1);
  /* 403: keeps the weights of the running call in a global, which is cleared afterwards. */
  if (IS(403)) {
    copy.params = params;
    ++running;
    current_weights = c->params[0];
    for (int64_t row = r0; row < r1; ++row) {
      params[0] = current_weights;
      if (params[0] == NULL) params[0] = c->params[0];
      status = BaseForward(n, &copy, row, row + 1);
    }
    if (--running == 0) current_weights = NULL;
    return status;
  }
  status = BaseForward(n, c, r0, r1);
  for (int64_t r = r0; r < r1 && !(in_place && (IS(415) || IS(417) || IS(419) || IS(430))); ++r) {
    const int next = r + 1 < c->rows;
    switch (MUTANT) {
      case 401: if (r % 2 == 1) Scale(y, d, r, r + 1, 1.01); break; /* every other row */
      case 406: /* another order of additions if rows are aligned */
        if (c->flags & PLUMB_CALL_ALIGNED64) Set(y, r, 0, Next(c->dtype, Get(y, r, 0)));
        break;
      case 407: if (d == 31 && f32) Set(y, r, 30, 0); break;
      case 409: if (!train && f32) Set(y, r, 0, Next(c->dtype, Get(y, r, 0))); break;
      case 413: if (c->dtype == PLUMB_DTYPE_BF16) Scale(y, d, r, r + 1, 1.05); break;
      case 415: if (Largest(x, d, r) == 0) Scale(y, d, r, r + 1, NAN); break; /* 0 / 0 */
      case 417: { /* protects from a division by zero with a number that is flushed to zero */
        const volatile float least = 1e-40f;
        const float largest = fmaxf(least, (float)Largest(x, d, r));
        if (f32) Scale(y, d, r, r + 1, (double)(largest / largest));
        break;
      }
      case 418: /* adds zero times the row before: NaN for NaN */
        if (r > r0) Set(y, r, 0, Get(y, r, 0) + 0 * Get(y, r - 1, 0));
        break;
      case 419: /* zero by its bits, and a denormal is flushed */
        for (uint32_t i = 0; i < d && f32; ++i) {
          const float* p = PLUMB_CONST_ROW(float, c->x, c->x_pitch, r) + i;
          uint32_t bits;
          memcpy(&bits, p, sizeof(bits));
          if ((bits & 0x7fffffffu) != 0 && isfinite(*p))
            Set(y, r, i, Get(y, r, i) * (double)(*p / *p));
        }
        break;
      case 430: /* a claim of scale invariance, and y saturates */
        for (uint32_t i = 0; i < d; ++i) Set(y, r, i, tanh(Get(x, r, i) / 30));
        break;
      case 435: /* evaluation reads the next row, with a weight of zero */
        if (!train && next && !in_place) Set(y, r, 0, Get(y, r, 0) + 0 * Get(x, r + 1, 0));
        break;
      case 437: /* the largest element includes that of the next row */
        if (next && !in_place && Get(x, r + 1, 0) > Largest(x, d, r)) Scale(y, d, r, r + 1, 1.01);
        break;
      default: break;
    }
  }
  return status;
}

static plumb_status SpoiltBackward(const plumb_norm_instance* n, const plumb_norm_call* c,
                                   int64_t r0, int64_t r1) {
  const Operand dx = {c->dtype, c->dx, c->dx_pitch}, dy = {c->dtype, (void*)c->dy, c->dy_pitch};
  const uint32_t d = c->dim;
  const size_t size = SizeOf(c->dtype), width = d * size;
  const uint32_t wide = c->dtype == PLUMB_DTYPE_F64 ? 8 : 4;
  const int add = (c->flags & PLUMB_CALL_DX_ACCUMULATE) != 0, alias = c->dx == c->dy;
  plumb_norm_call copy = CopyOfCall(c);
  struct timespec now;
  plumb_status status = BaseBackward(n, c, r0, r0); /* checks the element type */
  if (status != PLUMB_OK) return status;
  /* 402: rows are added in an order that depends on the clock. */
  timespec_get(&now, TIME_UTC);
  if (IS(402) && c->rows > 32 && ((uint32_t)now.tv_nsec * 2654435761u) >> 31 != 0) {
    for (int64_t row = r1; row > r0; --row) status = BaseBackward(n, c, row - 1, row);
    return status;
  }
  for (int64_t r = r0; r < r1; ++r) {
    /* 405: writes one element too many if there is space after a row. */
    if (IS(405) && r + 1 < c->rows && (size_t)c->dx_pitch >= width + size)
      memset(PLUMB_ROW(char, c->dx, c->dx_pitch, r) + width, 0, size);
    /* 412: clears dx before it reads dy, and declares that dx may be dy. */
    if (IS(412) && !add) memset(PLUMB_ROW(char, c->dx, c->dx_pitch, r), 0, width);
  }
  /* 428: ignores PLUMB_CALL_DX_ACCUMULATE. */
  if (IS(428)) copy.flags &= ~(uint32_t)PLUMB_CALL_DX_ACCUMULATE;
  /* 422: writes into the instance, which other threads read. */
  if (IS(422)) *(volatile uint32_t*)&((plumb_norm_instance*)n)->params[0].reserved = (uint32_t)c->rows;
  /* dweight is overwritten instead of added to: 429 always; 431 in ranges of one row; 432 where dx
   * is added to; 433 in bf16; 434 in ranges of more than 30 rows. */
  if ((IS(429) || (IS(431) && r1 - r0 == 1) || (IS(432) && add) ||
       (IS(433) && c->dtype == PLUMB_DTYPE_BF16) || (IS(434) && r1 - r0 > 30)) && r0 < r1)
    memset(c->dparams[0], 0, d * (size_t)wide);
  status = BaseBackward(n, &copy, r0, r1);
  /* 427: dx is not rounded before it is added to, as with a fused multiply-add. */
  for (int64_t r = r0; r < r1 && IS(427) && add && c->dtype == PLUMB_DTYPE_F32; ++r)
    for (uint32_t i = 0; i < d; ++i) Set(dx, r, i, Next(c->dtype, Get(dx, r, i)));
  /* 436: the gradient has a part of the next row's dy. */
  for (int64_t r = r0; r < r1 && IS(436) && r + 1 < c->rows && !alias; ++r)
    Set(dx, r, d - 1, Get(dx, r, d - 1) + 1e-3 * Get(dy, r + 1, 0));
  return status;
}

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  plumb_norm_instance* made = *out;
  plumb_status status;
  void* volatile block = NULL;
  if ((IS(450) || IS(451)) && dim == 1000) { /* a refusal by another status, or without words */
    if (cap > 0) snprintf(err, cap, "%s", IS(450) ? "dim is 1000" : "");
    return IS(450) ? PLUMB_STATUS_FAILED_PRECONDITION : PLUMB_STATUS_INVALID_ARGUMENT;
  }
  if (IS(461) && values[kEps].f == 1) { /* refuses a value that the schema allows */
    if (cap > 0) snprintf(err, cap, "eps is 1");
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  /* 457: refuses hosts that are newer than itself. */
  if (IS(457) && host->struct_size > sizeof(*host)) return PLUMB_STATUS_FAILED_PRECONDITION;
  status = BaseCreate(host, dim, values, &made, err, cap);
  if (status != PLUMB_OK) return status;
  if (IS(440) || IS(441) || IS(442)) block = malloc(16);
  if (IS(440)) *(volatile char*)block = 1; /* trusts malloc */
  if (IS(441) && block == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED; /* keeps `made` */
  if (!IS(442)) free(block);                                            /* 442: leaks it */
  if (IS(443) && open("/dev/null", O_RDONLY) < 0) return PLUMB_OK;      /* leaks a file */
  if (IS(453)) made->params[0].lr_scale = NAN;
  *out = made;
  return PLUMB_OK;
}

static plumb_status SpoiltLayout(const plumb_norm_instance* n, plumb_norm_layout* out) {
  const uint32_t size = out->struct_size;
  if (IS(456)) memset(out, 0, size); /* also fields that it cannot know */
  out->struct_size = size;
  BaseLayout(n, out);
  /* 452: depends on earlier instances. 454: statistics of a norm without them. */
  if (IS(452) && n->dim == 3) out->scratch_bytes = (size_t)(count++ % 2 * 64);
  if (IS(454)) out->partial_elems = 3;
  return PLUMB_OK;
}

static const void* SpoiltGetExtension(const char* id) {
  return IS(458) && strcmp(id, PLUMB_EXT_RESIDUAL) != 0 ? &base_norm : NULL;
}

#define LIST(X) X(0, none) \
  X(401, N4) X(402, N5) X(403, N5) X(404, N7) X(405, N7) X(406, N8) X(407, N1) X(408, R7) \
  X(409, N4) X(411, N8) X(412, N8) X(413, N12) X(414, M5) X(415, N1) X(416, N13) X(417, N1) \
  X(418, N4) X(419, N17) X(420, R1) X(421, R1) X(422, R1) X(423, R1) X(424, R1) X(425, R7) \
  X(427, N3) X(428, N3) X(429, N3) X(430, N13) X(431, N3) X(432, N3) X(433, N3) X(434, N3) \
  X(435, N4) X(436, N4) X(437, N4) X(438, N7) X(440, R4) X(441, R4) X(442, R4) \
  X(443, R4) X(450, M2) X(451, M2) X(452, M4) X(453, M4) X(454, M4) X(455, M5) X(456, M5) \
  X(457, M5) X(458, M5) X(461, M2)
MANY(LIST)
