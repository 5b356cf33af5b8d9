/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants with a condition on attributes, and in layouts under such a condition. */
#include "many.h"
#define SPOIL_VARIANCE SpoilVariance
#define SPOIL_R SpoilR
#define SPOIL_Y SpoilY
#define SPOIL_MEAN_U SpoilMeanU
#define SPOIL_DWEIGHT SpoilDweight
#define NORM_LAYOUT SpoilLayout
#define NORM_CREATE SpoilCreate
#include "norm.h"

static double SpoilVariance(const Site* at, double variance) {
  const uint32_t n = at->end - at->begin;
  switch (MUTANT) {
    /* 136: groups > 1, each of 2 to 32 elements: the unbiased variance, like another library. */
    case 136:
      return at->norm->groups > 1 && n > 1 && n <= 32 ? variance * n / (n - 1) : variance;
    /* 137: groups > 1 that do not begin at multiples of 8 elements: the statistic covers the elements between multiples of 8. */
    case 137: {
      const uint32_t begin = at->begin & ~7u, end = at->end & ~7u;
      double squares = 0;
      if (at->norm->groups == 1 || at->begin % 8 == 0 || begin >= end ||
          at->call->x == at->call->y || at->residual != NULL)
        return variance;
      for (uint32_t i = begin; i < end; ++i)
        squares += (XAt(at, i) - at->mean) * (XAt(at, i) - at->mean);
      return squares / (end - begin);
    }
    default:
      return variance;
  }
}

static double SpoilR(const Site* at, double variance, double r) {
  const double eps = at->norm->eps;
  switch (MUTANT) {
    /* 138: eps that is not the default, evaluation: uses the default eps. */
    case 138:
      return !IsTraining(at) ? 1 / sqrt(variance + 1e-5) : r;
    default:
      return r;
  }
}

static double SpoilY(const Site* at, uint32_t i, double h, double y) {
  const plumb_norm_instance* norm = at->norm;
  switch (MUTANT) {
    /* 143: groups == dim, kind layer: n == 1 is a special case with 0 / 0. */
    case 143:
      return norm->groups == norm->dim && norm->dim > 1 && !norm->rms ? h / 0.0 : y;
    default:
      return y;
  }
}

static double SpoilMeanU(const Site* at, double mean_u) {
  double sum = 0;
  /* 145: kind rms, backward: <u> is subtracted as for layer. */
  if (MUTANT != 145 || !at->norm->rms) return mean_u;
  for (uint32_t i = at->begin; i < at->end; ++i) sum += DyAt(at, i) * GainAt(at, i);
  return sum / (at->end - at->begin);
}

static double SpoilDweight(const Site* at, uint32_t i, double d) {
  /* 146: groups > 1: every group adds to the elements of the first. */
  if (MUTANT == 146 && at->begin > 0) {
    AddTo(at, 0, i - at->begin, d);
    return 0;
  }
  return d;
}

static plumb_status SpoilLayout(const plumb_norm_instance* norm, plumb_norm_layout* out) {
  const plumb_status status = BaseLayout(norm, out);
  /* 148: kind rms: the layout declares that backward reads y. */
  if (MUTANT == 148 && norm->rms) out->backward_needs = PLUMB_BACKWARD_READS_Y;
  /* 149: groups > 1: the layout reserves space for the statistic of one group. */
  if (MUTANT == 149) out->saved_per_row = 3;
  return status;
}

static plumb_status SpoilCreate(const plumb_host* host, uint32_t dim,
                                const plumb_attr_value* values, plumb_norm_instance** out,
                                char* err, size_t cap) {
  plumb_norm_instance* norm = NULL;
  const plumb_status status = BaseCreate(host, dim, values, &norm, err, cap);
  if (status != PLUMB_OK) return status;
  /* 151: plus_one: the two tensors have one name. */
  if (MUTANT == 151 && norm->plus_one) norm->params[1].name = "weight";
  /* 153: groups > 1: the weight is declared with the length of a group, and read to dim. */
  if (MUTANT == 153) norm->params[0].dims[0] = dim / norm->groups;
  /* 154: no bias: the weight's initial values are INIT_UNIFORM from 1 to 1, an empty interval. */
  if (MUTANT == 154 && !norm->bias) {
    norm->params[0].init = PLUMB_INIT_UNIFORM;
    norm->params[0].init_a = norm->params[0].init_b = 1;
  }
  /* 155: dim > 256 and no multiple of it: the bias is declared as a matrix of 256 columns, which has fewer than dim elements. */
  if (MUTANT == 155 && dim > 256) {
    norm->params[1].ndim = 2;
    norm->params[1].dims[0] = dim / 256;
    norm->params[1].dims[1] = 256;
  }
  *out = norm;
  return PLUMB_OK;
}

#define LIST(X) X(136, N2) X(137, N2) X(138, N4) \
  X(143, N1) X(145, N2) X(146, N2) X(148, N2) X(149, N2) \
  X(151, M4) X(153, N1) X(154, M4) X(155, N1)
MANY(LIST)
