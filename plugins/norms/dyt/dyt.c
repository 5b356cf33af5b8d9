/* dyt: y = weight tanh(alpha x) + bias, the Dynamic Tanh of Zhu, Chen, He, LeCun & Liu 2025,
 * "Transformers without Normalization", arXiv:2503.10622. No statistics: alpha, one learned number,
 * stands for the scale that a norm would measure, and tanh for its hold on large elements.
 * `bias: false` leaves the bias out (DyT in LLaMA), `affine: false` the weight too.
 *
 * With t = tanh(alpha x), u = dy weight and v = u (1 - t^2), as tanh' = 1 - tanh^2:
 *     dx = alpha v
 *     dalpha = sum over elements and rows of v x
 *     dweight = sum over rows of dy t,   dbias = sum over rows of dy
 * backward() reads x again and makes t from it: nothing is saved.
 *
 * double, which serves gradient checks, has the C library's functions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plumb/norm_rows.h"

PLUMB_NORM_NOTE("dyt");

enum { kAlpha, kWeight, kBias, kParamCount };

struct plumb_norm_instance {
  uint32_t n_params; /* of the first so many */
  plumb_tensor_def params[kParamCount];
};

enum { kAlphaInit, kAffine, kHasBias, kAttributeCount };
static const plumb_attr_def the_attributes[kAttributeCount] = {
    [kAlphaInit] = {.name = "alpha_init",
                    .doc = "What alpha starts from.",
                    .type = PLUMB_ATTR_F64,
                    .max = 1000,
                    .def = {.f = 0.5}},
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

/* tanh to 6 units in the last place, and never beyond 1: a P(a^2) / Q(a^2) for a = |z|, and 1 from
 * where tanh is 1 in float. P and Q were fitted for the least relative error (2.1e-8) on 0 < a <=
 * 9.01; all their coefficients are positive, so that no digit is lost in them. Comparisons are
 * written so that a NaN passes through. */
PLUMB_ROWS_INLINE float TanhOfFloat(float z, int fused) {
  const float end = 9.01f, size = plumb_abs(z), a = size > end ? end : size, s = a * a;
  float p = 1.333686050486449e-08f, q = 7.769288572490041e-07f;
  p = PLUMB_FMA(fused, p, s, 2.0596284230123274e-05f);
  q = PLUMB_FMA(fused, q, s, 0.0003284364065621048f);
  p = PLUMB_FMA(fused, p, s, 0.003494811709970236f);
  q = PLUMB_FMA(fused, q, s, 0.025874029844999313f);
  p = PLUMB_FMA(fused, p, s, 0.13380372524261475f);
  q = PLUMB_FMA(fused, q, s, 0.4671368896961212f);
  p = PLUMB_FMA(fused, p, s, 1.0f) * a;
  q = PLUMB_FMA(fused, q, s, 1.0f);
  const float t = p / q;
  return copysignf(size > end ? 1.0f : t > 1.0f ? 1.0f : t, z);
}
PLUMB_ROWS_INLINE double TanhOfDouble(double z, int fused) { return (void)fused, tanh(z); }
#define TANH(z) _Generic((z), float : TanhOfFloat, double : TanhOfDouble)(z, fused)

/* The variant is the number of parameters beside alpha. */
#define FORWARD_Dyt                                                  \
  const real alpha = *PLUMB_PARAM(kAlpha);                           \
  const real* weight = variant >= 1 ? PLUMB_PARAM(kWeight) : NULL;   \
  const real* bias = variant == 2 ? PLUMB_PARAM(kBias) : NULL;       \
  PLUMB_EACH_ROW {                                                   \
    PLUMB_Y(0, dim,                                                  \
            variant == 0   ? TANH(alpha * x)                         \
            : variant == 1 ? TANH(alpha * x) * weight[i]             \
                           : TANH(alpha * x) * weight[i] + bias[i]); \
  }
#define BACKWARD_Dyt                                                                       \
  const real alpha = *PLUMB_PARAM(kAlpha);                                                 \
  const real* weight = variant >= 1 ? PLUMB_PARAM(kWeight) : NULL;                         \
  real* dalpha = PLUMB_DPARAM(kAlpha);                                                     \
  real* dweight = variant >= 1 ? PLUMB_DPARAM(kWeight) : NULL;                             \
  real* dbias = variant == 2 ? PLUMB_DPARAM(kBias) : NULL;                                 \
  PLUMB_EACH_ROW {                                                                         \
    real sum, nothing;                                                                     \
    PLUMB_DX_SUM2(real, sum, nothing, 0, dim, (alpha * v), const real t = TANH(alpha * x); \
                  const real slope = dy * (1 - t * t);                                     \
                  const real v = variant >= 1 ? slope * weight[i] : slope;                 \
                  if (variant >= 1) dweight[i] += dy * t;                                  \
                  if (variant == 2) dbias[i] += dy, v * x, 0);                             \
    (void)nothing;                                                                         \
    *dalpha += sum;                                                                        \
  }
PLUMB_NORM_ROWS(Dyt, norm->n_params - kWeight)

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
  norm->params[kAlpha] = Param("alpha", "The factor inside tanh.", PLUMB_INIT_CONST, 0);
  norm->params[kAlpha].init_a = values[kAlphaInit].f;
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
    .id = "dyt",
    .name = "Dynamic Tanh",
    .version = "1.1.0",
    .vendor = "plumb",
    .license = "Apache-2.0",
    .doc =
        "y = weight tanh(alpha x) + bias, alpha one learned number; Zhu, Chen, He, LeCun & Liu "
        "2025, "
        "arXiv:2503.10622.",
    .flags = PLUMB_ROWS_FLAGS,
    .dtypes = PLUMB_ROWS_DTYPES,
    .n_attrs = kAttributeCount,
    .attr_stride = sizeof(plumb_attr_def),
    .attrs = the_attributes,
    .create = Create,
    .destroy = Destroy,
    .layout = Layout,
    .forward = DytForward,
    .backward = DytBackward,
    .get_extension = DytGetExtension,
};

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &the_norm : NULL;
}
