/* derf: y = weight erf(alpha x + shift) + bias, the Dynamic erf of Chen, Lu, Zhu, Sun & Liu 2025,
 * "Stronger Normalization-Free Transformers", arXiv:2512.10938. As dyt (which see), with the
 * Gaussian's distribution function, scaled to go from -1 to 1, and one more learned number that
 * moves it. `bias: false` leaves the bias out, `affine: false` the weight too.
 *
 * With z = alpha x + shift, u = dy weight and v = u (2 / sqrt(pi)) exp(-z^2), as
 * erf'(z) = (2 / sqrt(pi)) exp(-z^2):
 *     dx = alpha v
 *     dalpha = sum over elements and rows of v x,   dshift = the same sum of v
 *     dweight = sum over rows of dy erf(z),   dbias = sum over rows of dy
 * backward() reads x again and makes z from it: nothing is saved.
 *
 * double, which serves gradient checks, has the C library's functions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("derf");

enum { kAlpha, kShift, kWeight, kBias, kParamCount };

struct plumb_norm_instance {
  uint32_t n_params; /* of the first so many */
  plumb_tensor_def params[kParamCount];
};

enum { kAlphaInit, kShiftInit, kAffine, kHasBias, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kAlphaInit] = {.name = "alpha_init",
                    .doc = "What alpha starts from.",
                    .type = PLUMB_ATTR_F64,
                    .max = 1000,
                    .def = {.f = 0.5}},
    [kShiftInit] = {.name = "shift_init",
                    .doc = "What shift starts from.",
                    .type = PLUMB_ATTR_F64,
                    .min = -1000,
                    .max = 1000,
                    .def = {.f = 0}},
    [kAffine] = {.name = "affine",
                 .doc = "Whether there are a weight and a bias.",
                 .type = PLUMB_ATTR_BOOL,
                 .max = 1,
                 .def = {.i = 1}},
    [kHasBias] = {.name = "bias",
                  .doc = "Whether there is a bias beside the weight.",
                  .type = PLUMB_ATTR_BOOL,
                  .max = 1,
                  .def = {.i = 1}},
};

/* erf to 6 units in the last place, and never beyond 1: a P(a^2) / Q(a^2) for a = |z|, up to where
 * erf is 1 in float. P and Q were fitted for the least relative error (1.9e-8) on 0 < a <= 3.92;
 * all their coefficients are positive, so that no digit is lost in them. Comparisons are written so
 * that a NaN passes through, here and below. */
PLUMB_ROWS_INLINE float ErfOfFloat(float z, int fused) {
  const float end = 3.92f, size = plumb_abs(z), a = size > end ? end : size, s = a * a;
  float p = 2.0500797290878836e-06f, q = 3.809170448221266e-05f;
  p = PLUMB_FMA(fused, p, s, 0.00028488400857895613f);
  q = PLUMB_FMA(fused, q, s, 0.0011625482002273202f);
  p = PLUMB_FMA(fused, p, s, 0.0037656687200069427f);
  q = PLUMB_FMA(fused, q, s, 0.014969320967793465f);
  p = PLUMB_FMA(fused, p, s, 0.05274888500571251f);
  q = PLUMB_FMA(fused, q, s, 0.11410960555076599f);
  p = PLUMB_FMA(fused, p, s, 0.1904076486825943f);
  q = PLUMB_FMA(fused, q, s, 0.5020771026611328f);
  p = PLUMB_FMA(fused, p, s, 1.1283791065216064f) * a;
  q = PLUMB_FMA(fused, q, s, 1.0f);
  const float t = p / q;
  return copysignf(t > 1.0f ? 1.0f : t, z);
}

/* exp(-s) for s >= 0: 2^-n exp(n ln 2 - s), n the integer nearest to s / ln 2. The exponential of
 * what is left, at most ln 2 / 2 in size, is its Taylor sum (the next term is below 1e-8). ln 2 is
 * subtracted in two parts, of which the first has few enough digits for n times it to be exact.
 * Beyond 80, before subnormal numbers begin, the result is 0. */
PLUMB_ROWS_INLINE float ExpOfMinusFloat(float s, int fused) {
  union {
    float value;
    uint32_t bits;
  } shifted, power;
  shifted.value = s * 1.44269504f + 12582912.0f; /* 3 * 2^22: the integer is in the low bits */
  const float n = shifted.value - 12582912.0f;
  const float r = n * 0.693359375f - s + n * -2.12194440e-4f;
  float e = 1.0f / 5040;
  e = PLUMB_FMA(fused, e, r, 1.0f / 720);
  e = PLUMB_FMA(fused, e, r, 1.0f / 120);
  e = PLUMB_FMA(fused, e, r, 1.0f / 24);
  e = PLUMB_FMA(fused, e, r, 1.0f / 6);
  e = PLUMB_FMA(fused, e, r, 0.5f);
  e = PLUMB_FMA(fused, e, r, 1.0f);
  e = PLUMB_FMA(fused, e, r, 1.0f);
  power.bits = 0x3f800000u - (shifted.bits << 23);
  e *= power.value;
  return s > 80.0f ? 0.0f : e;
}
PLUMB_ROWS_INLINE double ExpOfMinusDouble(double s, int fused) { return (void)fused, exp(-s); }
PLUMB_ROWS_INLINE double ErfOfDouble(double z, int fused) { return (void)fused, erf(z); }
#define ERF(z) _Generic((z), float : ErfOfFloat, double : ErfOfDouble)(z, fused)
#define EXP_OF_MINUS(s) _Generic((s), float : ExpOfMinusFloat, double : ExpOfMinusDouble)(s, fused)

/* The variant is the number of parameters beside alpha and shift. */
#define FORWARD_Derf                                                     \
  const real alpha = *PLUMB_PARAM(kAlpha), shift = *PLUMB_PARAM(kShift); \
  const real* weight = variant >= 1 ? PLUMB_PARAM(kWeight) : NULL;       \
  const real* bias = variant == 2 ? PLUMB_PARAM(kBias) : NULL;           \
  PLUMB_EACH_ROW {                                                       \
    PLUMB_Y(0, dim,                                                      \
            variant == 0   ? ERF(Z)                                      \
            : variant == 1 ? ERF(Z) * weight[i]                          \
                           : ERF(Z) * weight[i] + bias[i]);              \
  }
#define BACKWARD_Derf                                                               \
  const real alpha = *PLUMB_PARAM(kAlpha), shift = *PLUMB_PARAM(kShift);            \
  const real two_over_root_pi = (real)1.12837916709551257390;                       \
  const real* weight = variant >= 1 ? PLUMB_PARAM(kWeight) : NULL;                  \
  real *dalpha = PLUMB_DPARAM(kAlpha), *dshift = PLUMB_DPARAM(kShift);              \
  real* dweight = variant >= 1 ? PLUMB_DPARAM(kWeight) : NULL;                      \
  real* dbias = variant == 2 ? PLUMB_DPARAM(kBias) : NULL;                          \
  PLUMB_EACH_ROW {                                                                  \
    real sum, sum_shift;                                                            \
    PLUMB_DX_SUM2(real, sum, sum_shift, 0, dim, (alpha * v), const real z = Z;      \
                  const real slope = dy * (two_over_root_pi * EXP_OF_MINUS(z * z)); \
                  const real v = variant >= 1 ? slope * weight[i] : slope;          \
                  if (variant >= 1) dweight[i] += dy * ERF(z);                      \
                  if (variant == 2) dbias[i] += dy, v * x, v);                      \
    *dalpha += sum;                                                                 \
    *dshift += sum_shift;                                                           \
  }
#define Z PLUMB_FMA(fused, alpha, x, shift)
PLUMB_NORM_ROWS(Derf, norm->n_params - kWeight)

static plumb_tensor_def Param(const char* name, const char* doc, uint32_t init, uint32_t dim) {
  return (plumb_tensor_def){
      .name = name, .doc = doc, .ndim = dim > 0, .dims = {dim}, .init = init, .lr_scale = 1};
}

static plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                           plumb_norm_instance** out, char* err, size_t cap) {
  (void)host;
  for (size_t a = 0; a < kAttributeCount; ++a) { /* for hosts that do not check */
    const plumb_attr_def* def = &the_attributes[a];
    const double value = def->type == PLUMB_ATTR_F64 ? values[a].f : (double)values[a].i;
    if (!(value >= def->min && value <= def->max)) { /* NaN is neither */
      snprintf(err, cap, "%s must be from %g to %g", def->name, def->min, def->max);
      return PLUMB_INVALID_ARGUMENT;
    }
  }
  plumb_norm_instance* norm = malloc(sizeof(*norm));
  if (norm == NULL) return PLUMB_RESOURCE_EXHAUSTED;
  norm->n_params = values[kAffine].i == 0 ? kWeight : values[kHasBias].i == 0 ? kBias : kParamCount;
  norm->params[kAlpha] = Param("alpha", "The factor inside erf.", PLUMB_INIT_CONST, 0);
  norm->params[kAlpha].init_a = values[kAlphaInit].f;
  norm->params[kShift] = Param("shift", "The summand inside erf.", PLUMB_INIT_CONST, 0);
  norm->params[kShift].init_a = values[kShiftInit].f;
  norm->params[kWeight] = Param("weight", "The gain.", PLUMB_INIT_ONES, dim);
  norm->params[kBias] = Param("bias", "The bias.", PLUMB_INIT_ZEROS, dim);
  *out = norm;
  return PLUMB_OK;
}

static void Destroy(plumb_norm_instance* norm) { free(norm); }

static plumb_status Layout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = norm->n_params;
  out->params = norm->params;
  out->backward_needs = PLUMB_BWD_X;
  return PLUMB_OK;
}

static const plumb_norm_plugin the_norm = {
    .struct_size = sizeof(plumb_norm_plugin),
    .id = "derf",
    .name = "Dynamic erf",
    .version = "1.1.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc =
        "y = weight erf(alpha x + shift) + bias, alpha and shift learned numbers; Chen, Lu, Zhu, "
        "Sun & "
        "Liu 2025, arXiv:2512.10938.",
    .flags = PLUMB_ROWS_FLAGS,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = the_attributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = DerfForward,
    .backward = DerfBackward,
    .get_extension = DerfGetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}
