/* SPDX-License-Identifier: Apache-2.0 */
/* Bugs of running statistics: a correct cross-row norm in training, of which evaluation never gives
 * what training gives. */
/* clang-format off */
/* 305. the running variance is never updated.
 * 306. the running mean is that of the first batch.
 * 307. evaluation divides by the running variance and not by its root.
 * 308. the new statistics are added to the old, which do not fade.
 * 309. evaluation takes the mean of the first column for all columns. */
/* clang-format on */
#define CROSS_RUNNING(which, old, new)                               \
  (TWIN == 305 && (which) == 1                 ? (old)               \
   : TWIN == 306 && (which) == 0 && (old) != 0 ? (old)               \
   : TWIN == 306 && (which) == 0               ? (new)               \
   : TWIN == 308                               ? (old) + 0.1 * (new) \
                                               : (old) + 0.1 * ((new) - (old)))
#define CROSS_EVALUATION_RSTD(variance) \
  (TWIN == 307 ? 1 / ((variance) + CROSS_EPS) : 1 / sqrt((variance) + CROSS_EPS))
#define CROSS_EVALUATION_MEAN(means, i) ((means)[TWIN == 309 ? 0 : (i)])
#include "base_cross_norm.h"
