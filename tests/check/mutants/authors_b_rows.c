/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants by authors who use plumb/norm_rows.h. Without MUTANT's line below the norm is correct:
 *
 *   y = (g + unit) (x - m) s, m = <x> if mode is "centred", else 0, s = (<(x - m)^2> + eps)^(-1/2),
 *   or s = 1 / (<x^2>^(1/2) + eps) if mode is "outside".
 *
 * With u = dy (g + unit), h = (x - m) s: dx = s (u - [<u>] - (x - m) q <u h>), where q = s, or 1 /
 * <x^2>^(1/2) with "outside". Each line is: condition: bug (the rule that it violates). */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call_copy.h"
#include "plumb/norm_rows.h"

#ifndef MUTANT
#define MUTANT 0
#endif
#define IS(n) (MUTANT == (n))

#define ID "org.example.authors_b_rows"
PLUMB_NORM_NOTE(ID);

enum { kInside, kOutside, kCentred };
enum { kEps, kMode, kUnit, kAttributeCount };

struct plumb_norm_instance {
  double eps;
  int mode, unit;
  plumb_tensor_def gain;
};

/* clang-format off */
/* 201. mode "outside": a third number is saved although the layout declares two, which
 *      overwrites the first of the next row (saved: [rows, saved_per_row]); a range that runs
 *      before its neighbour is corrupted by it, and the last row writes past the end.
 * 202. two dims in one process: 1 / dim is computed once for all instances ("no mutable
 *      global").
 * 203. in place, mode "centred": the mean is saved from values that y has already overwritten
 *      ("y may be x").
 * 204. dx accumulates and dim is no multiple of 64: the tail, written separately, overwrites
 *      ("dx += gradient").
 * 205. odd dim above 256: two half sums, the last element is in neither (the equation).
 * 206. "outside" with unit_offset: the code of "inside" runs (the equation, where eps counts).
 * 207. f64, dim above 512: the squares are summed in float ("accumulate type: double").
 * 208. "centred", |mean| much larger than the spread: <x^2> - <x>^2 in `real` (the equation).
 * 209. residual, sum in a buffer of its own with a wider pitch than x: the norm reads the sum
 *      with x's pitch (sum_pitch).
 * 210. residual, dsum is dx: dx is written first and then added to itself ("may be dx").
 * 211. residual, bf16: normalizes the sum before it is rounded ("that of s as it is stored").
 * 212. residual, f32, dsum: gradient and dsum are added in double and rounded once ("each rounded
 *      before they are added").
 * 213. 32 rows and more, range not at 0: statistics are indexed from the start of the range
 *      (saved: row r).
 * 214. "outside": backward as if eps were inside: q = s (the derivative, where eps counts).
 * 215. unit_offset, bf16: forward drops the 1 that layout's `offset` declares.
 * 216. accumulating, dx has a wider pitch than dy: the old gradient is read with dy's pitch
 *      (dx_pitch).
 * 217. a row with a NaN before it in the same range: the largest |x| so far is kept across rows
 *      to skip empty rows, and a NaN remains in it (PLUMB_NORM_NAN_ISOLATED).
 * 218. range of more than 8 rows, no multiple of 8: dgain of the rows after the last eight is
 *      lost (dparams += of every row).
 * 219. bf16, "centred", |mean| above the spread: the mean is rounded to bf16 (accumulate type). */
/* clang-format on */

#define INSIDE_OR(mode) (IS(206) && (mode) == kOutside && norm->unit ? kInside : (mode))
/* Sums are in double, so that no square of a float overflows. */
#define SQUARES(sum, S, mean)                                                                    \
  if (IS(205) && dim > 256) {                                                                    \
    double half;                                                                                 \
    PLUMB_SUM(double, half, 0, dim / 2, (((double)x - (mean)) * ((double)x - (mean))));          \
    PLUMB_SUM(double, sum, dim / 2, dim / 2 * 2, ((x - (double)(mean)) * (x - (double)(mean)))); \
    (sum) += half;                                                                               \
  } else if (IS(207) && sizeof(element) == 8 && dim > 512) {                                     \
    float rough;                                                                                 \
    PLUMB_SUM(float, rough, 0, dim, ((x - (mean)) * (x - (mean))));                              \
    (sum) = (double)rough;                                                                       \
  } else {                                                                                       \
    PLUMB_SUM(double, sum, 0, dim, (((double)x - (mean)) * ((double)x - (mean))));               \
  }

#define FORWARD_B                                                                                \
  const real* gain = PLUMB_PARAM(0);                                                             \
  const real one = norm->unit && !(IS(215) && sizeof(element) == 2) ? 1 : 0;                     \
  real largest = 0;                                                                              \
  PLUMB_EACH_ROW {                                                                               \
    double over_dim = 1 / (double)dim, sum = 0, mean = 0;                                        \
    if (IS(202)) {                                                                               \
      static double once;                                                                        \
      if (once == 0) once = over_dim;                                                            \
      over_dim = once;                                                                           \
    }                                                                                            \
    if (variant == kCentred) {                                                                   \
      PLUMB_SUM(double, sum, 0, dim, (double)x);                                                 \
      mean = sum * over_dim;                                                                     \
      if (IS(219) && sizeof(element) == 2)                                                       \
        mean = (double)plumb_bf16_to_float(plumb_bf16_from_float((float)mean));                  \
    }                                                                                            \
    SQUARES(sum, double, mean)                                                                   \
    double square = sum * over_dim;                                                              \
    if (IS(208) && variant == kCentred) {                                                        \
      real squares;                                                                              \
      PLUMB_SUM(real, squares, 0, dim, (x * x));                                                 \
      const real rough = squares / (real)dim - (real)mean * (real)mean;                          \
      square = rough > 0 ? (double)rough : 0;                                                    \
    }                                                                                            \
    const double rms = sqrt(square);                                                             \
    real s = (real)(variant == kOutside ? 1 / (rms + norm->eps) : 1 / sqrt(square + norm->eps)); \
    if (IS(217)) {                                                                               \
      for (size_t k = 0; k < dim; ++k) {                                                         \
        if (!(plumb_abs(PLUMB_X(k)) <= largest) && largest == largest)                           \
          largest = plumb_abs(PLUMB_X(k));                                                       \
      }                                                                                          \
      if (!(largest >= 0)) s = largest;                                                          \
    }                                                                                            \
    const real m = (real)mean;                                                                   \
    PLUMB_Y(0, dim, ((x - m) * s * (one + gain[i])));                                            \
    if (IS(203) && variant == kCentred && call->saved != NULL) {                                 \
      PLUMB_SUM(double, sum, 0, dim, (double)x);                                                 \
      mean = sum * over_dim;                                                                     \
    }                                                                                            \
    PLUMB_SAVE(0, s);                                                                            \
    PLUMB_SAVE(1, (real)(variant == kCentred ? mean : rms));                                     \
    if (IS(201) && variant == kOutside) PLUMB_SAVE(2, (real)square);                             \
  }

#define SAVED(k)                                                     \
  (*(PLUMB_CONST_ROW(real, call->saved, call->saved_pitch,           \
                     IS(213) && call->rows >= 32 ? row - r0 : row) + \
     (k)))
#define LEAST (sizeof(real) == sizeof(float) ? (real)FLT_MIN : (real)DBL_MIN)
#define U ((double)dy * (double)(one + gain[i]))
#define ADDS ((call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0)
#define GRADIENT (s * ((real)(U - mean_u) - (x - m) * q * (real)mean_uh))
#define DGAIN \
  if (!(IS(218) && r1 - r0 > 8 && row >= r0 + (r1 - r0) / 8 * 8)) dgain[i] += dy * ((x - m) * s)

#define BACKWARD_B                                                                    \
  const real* gain = PLUMB_PARAM(0);                                                  \
  real* dgain = PLUMB_DPARAM(0);                                                      \
  const real one = norm->unit ? 1 : 0;                                                \
  PLUMB_EACH_ROW {                                                                    \
    const real s = SAVED(0), kept = SAVED(1), m = variant == kCentred ? kept : 0;     \
    const real q = variant != kOutside || IS(214) ? s : kept >= LEAST ? 1 / kept : 0; \
    double mean_u = 0, mean_uh;                                                       \
    PLUMB_SUM(double, mean_uh, 0, dim, (U * (double)((x - m) * s)));                  \
    mean_uh /= (double)dim;                                                           \
    if (variant == kCentred) {                                                        \
      PLUMB_SUM(double, mean_u, 0, dim, U);                                           \
      mean_u /= (double)dim;                                                          \
    }                                                                                 \
    const size_t body = IS(204) && ADDS ? dim / 64 * 64 : dim;                        \
    PLUMB_DX(0, body, GRADIENT, DGAIN);                                               \
    for (size_t i = body; i < dim; ++i) {                                             \
      const real x = plumb_rows_load_(x_row[i]), dy = plumb_rows_load_(dy_row[i]);    \
      DGAIN;                                                                          \
      plumb_rows_store_(dx_row + i, GRADIENT);                                        \
    }                                                                                 \
  }

PLUMB_NORM_ROWS(B, INSIDE_OR(norm->mode))

/* -- Wrappers of the mutants ---------------------------------------------------------------------
 */

static double Load(uint32_t dtype, const void* base, int64_t pitch, int64_t r, uint32_t i) {
  if (dtype == PLUMB_DTYPE_F64) return PLUMB_CONST_ROW(double, base, pitch, r)[i];
  if (dtype == PLUMB_DTYPE_F32) return PLUMB_CONST_ROW(float, base, pitch, r)[i];
  return plumb_bf16_to_float(PLUMB_CONST_ROW(plumb_bf16, base, pitch, r)[i]);
}

static void Store(uint32_t dtype, void* base, int64_t pitch, int64_t r, uint32_t i, double v) {
  if (dtype == PLUMB_DTYPE_F64) PLUMB_ROW(double, base, pitch, r)[i] = v;
  if (dtype == PLUMB_DTYPE_F32) PLUMB_ROW(float, base, pitch, r)[i] = (float)v;
  if (dtype == PLUMB_DTYPE_BF16)
    PLUMB_ROW(plumb_bf16, base, pitch, r)[i] = plumb_bf16_from_float((float)v);
}

static plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  const uint32_t t = call->dtype;
  if (IS(216) && ADDS && call->dx_pitch > call->dy_pitch) {
    for (int64_t r = r0; r < r1; ++r) {
      for (uint32_t i = 0; i < call->dim; ++i) {
        Store(t, call->dx, call->dx_pitch, r, i, Load(t, call->dx, call->dy_pitch, r, i));
      }
    }
  }
  return BBackward(norm, call, r0, r1);
}

static plumb_status ResidualForward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                    const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  const uint32_t t = call->dtype;
  if (IS(209) && residual->sum != call->x) {
    plumb_norm_call of_sum = CopyOfCall(call);
    const plumb_status status = BForwardRows(norm, call, residual, r0, r1);
    of_sum.x = residual->sum;
    if (call->x_pitch > residual->sum_pitch) return status;
    return status != PLUMB_OK ? status : BForward(norm, &of_sum, r0, r1);
  }
  if (IS(211) && t == PLUMB_DTYPE_BF16 && norm->mode == kInside) {
    const float* gain = (const float*)call->params[0];
    for (int64_t r = r0; r < r1; ++r) {
      double squares = 0;
      for (uint32_t i = 0; i < call->dim; ++i) {
        const double sum = Load(t, call->x, call->x_pitch, r, i) +
                           Load(t, residual->res, residual->res_pitch, r, i);
        squares += sum * sum;
      }
      const float s = (float)(1 / sqrt(squares / call->dim + norm->eps));
      for (uint32_t i = 0; i < call->dim; ++i) {
        const float sum = (float)(Load(t, call->x, call->x_pitch, r, i) +
                                  Load(t, residual->res, residual->res_pitch, r, i));
        Store(t, residual->sum, residual->sum_pitch, r, i, sum);
        Store(t, call->y, call->y_pitch, r, i, sum * s * ((float)norm->unit + gain[i]));
      }
      if (call->saved == NULL) continue;
      PLUMB_ROW(float, call->saved, call->saved_pitch, r)[0] = s;
      PLUMB_ROW(float, call->saved, call->saved_pitch, r)[1] = (float)sqrt(squares / call->dim);
    }
    return PLUMB_OK;
  }
  return BForwardRows(norm, call, residual, r0, r1);
}

static plumb_status ResidualBackward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                     const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  const uint32_t t = call->dtype;
  if (IS(210) && residual->dsum != NULL && residual->dsum == call->dx) {
    const plumb_status status = BBackward(norm, call, r0, r1);
    for (int64_t r = r0; r < r1 && status == PLUMB_OK; ++r) {
      for (uint32_t i = 0; i < call->dim; ++i) {
        Store(t, call->dx, call->dx_pitch, r, i, 2 * Load(t, call->dx, call->dx_pitch, r, i));
      }
    }
    return status;
  }
  if (IS(212) && t == PLUMB_DTYPE_F32 && residual->dsum != NULL && norm->mode == kInside) {
    const float* gain = (const float*)call->params[0];
    float* dgain = (float*)call->dparams[0];
    for (int64_t r = r0; r < r1; ++r) {
      const double s = *PLUMB_CONST_ROW(float, call->saved, call->saved_pitch, r);
      double mean = 0;
      for (uint32_t i = 0; i < call->dim; ++i) {
        mean += Load(t, call->dy, call->dy_pitch, r, i) * ((double)norm->unit + (double)gain[i]) *
                Load(t, call->x, call->x_pitch, r, i) * s / call->dim;
      }
      for (uint32_t i = 0; i < call->dim; ++i) {
        const double h = Load(t, call->x, call->x_pitch, r, i) * s;
        const double dy = Load(t, call->dy, call->dy_pitch, r, i);
        const double g = s * (dy * ((double)norm->unit + (double)gain[i]) - h * mean);
        dgain[i] += (float)(dy * h);
        Store(t, call->dx, call->dx_pitch, r, i,
              g + Load(t, residual->dsum, residual->dsum_pitch, r, i));
      }
    }
    return PLUMB_OK;
  }
  return BBackwardRows(norm, call, residual, r0, r1);
}

static const void* GetExtension(const char* id) {
  static const plumb_norm_residual residual = {sizeof(plumb_norm_residual), 0, ResidualForward,
                                               ResidualBackward};
  return strcmp(id, PLUMB_EXT_RESIDUAL) == 0 ? &residual : NULL;
}

/* -- The table --------------------------------------------------------------------------------- */

static const char* const kModes[] = {"inside", "outside", "centred", NULL};
static const plumb_attr_def kAttributes[kAttributeCount] = {
    {.name = "eps",
     .doc = "Added to the mean square, or to its root.",
     .type = PLUMB_ATTR_F64,
     .min = 1e-8,
     .max = 1,
     .def = {.f = 1e-5}},
    {.name = "mode",
     .doc = "Place of eps, or the subtraction of the mean.",
     .type = PLUMB_ATTR_ENUM,
     .def = {.s = "inside"},
     .choices = kModes},
    {.name = "unit_offset", .doc = "The gain is 1 + weight.", .type = PLUMB_ATTR_BOOL, .max = 1},
};

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  int mode = -1;
  for (int k = 0; values[kMode].s != NULL && kModes[k] != NULL; ++k) {
    if (strcmp(values[kMode].s, kModes[k]) == 0) mode = k;
  }
  if (!(values[kEps].f >= 1e-8 && values[kEps].f <= 1) || mode < 0) {
    snprintf(err, cap, "eps must be in 1e-8..1, mode one of inside, outside, centred");
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  plumb_norm_instance* norm = (plumb_norm_instance*)calloc(1, sizeof(*norm));
  if (norm == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  norm->eps = values[kEps].f;
  norm->mode = mode;
  norm->unit = values[kUnit].i != 0;
  norm->gain.name = "weight";
  norm->gain.doc = "The gain.";
  norm->gain.ndim = 1;
  norm->gain.dims[0] = dim;
  norm->gain.init = norm->unit ? PLUMB_INIT_ZEROS : PLUMB_INIT_ONES;
  norm->gain.lr_scale = 1;
  norm->gain.offset = norm->unit;
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &norm->gain;
  out->saved_per_row = 2;
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin kNorm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = ID,
    .name = "Rows",
    .version = "1.0.0",
    .vendor = "Example",
    .license = "Apache-2.0",
    .doc = "Root mean square or standard deviation, with a gain.",
    .flags = PLUMB_ROWS_FLAGS | PLUMB_NORM_SCALE_INVARIANT,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = kAttributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = BForward,
    .backward = Backward,
    .get_extension = GetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) { return index == 0 ? &kNorm : NULL; }
