/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of running statistics: a cross-row norm that is correct in training and whose
 * evaluation never agrees with training. */
/* clang-format off */
/* 305. the running variance is never updated.
 * 306. the running mean is that of the first batch.
 * 307. evaluation divides by the running variance, not by its root.
 * 308. the new statistics are added to the old ones, which do not decay.
 * 309. evaluation subtracts the mean of the first column from all columns. */
/* clang-format on */
#define CROSS_RUNNING(which, old, new)                                 \
  (MUTANT == 305 && (which) == 1                 ? (old)               \
   : MUTANT == 306 && (which) == 0 && (old) != 0 ? (old)               \
   : MUTANT == 306 && (which) == 0               ? (new)               \
   : MUTANT == 308                               ? (old) + 0.1 * (new) \
                                                 : (old) + 0.1 * ((new) - (old)))
#define CROSS_EVALUATION_RSTD(variance) \
  (MUTANT == 307 ? 1 / ((variance) + CROSS_EPS) : 1 / sqrt((variance) + CROSS_EPS))
#define CROSS_EVALUATION_MEAN(means, i) ((means)[MUTANT == 309 ? 0 : (i)])
#include "base_cross_norm.h"
