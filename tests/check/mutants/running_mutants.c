/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of running statistics: a cross-row norm that is correct in training and whose
 * evaluation never agrees with training. */
/* clang-format off */
/* 305. the running variance is never updated.
 * 306. the running mean is that of the first batch.
 * 307. evaluation divides by the running variance, not by its root.
 * 308. the new statistics are added to the old ones, which do not decay.
 * 309. evaluation subtracts the mean of the first column from all columns.
 * 320. evaluation subtracts the mean of the first column from column 64 and later ones.
 * 321. evaluation of a single row subtracts no mean.
 * 322. forward updates a running statistic, and several threads may run it. */
/* clang-format on */
#include "many.h"
#define CROSS_RUNNING(which, old, new)                                 \
  (MUTANT == 305 && (which) == 1                 ? (old)               \
   : MUTANT == 306 && (which) == 0 && (old) != 0 ? (old)               \
   : MUTANT == 306 && (which) == 0               ? (new)               \
   : MUTANT == 308                               ? (old) + 0.1 * (new) \
                                                 : (old) + 0.1 * ((new) - (old)))
#define CROSS_EVALUATION_RSTD(variance) \
  (MUTANT == 307 ? 1 / ((variance) + CROSS_EPS) : 1 / sqrt((variance) + CROSS_EPS))
#define CROSS_EVALUATION_MEAN(means, i) \
  (MUTANT == 321 && r1 - r0 == 1        \
       ? 0                              \
       : Get(means, 0, MUTANT == 309 || (MUTANT == 320 && (i) >= 64) ? 0 : (i)))
#define CROSS_BEFORE_FORWARD                                                                   \
  if (MUTANT == 322 && call->call_saved != NULL && call->dtype == PLUMB_DTYPE_F32 && r0 == 0 && \
      r1 > 0)                                                                                  \
    ((float*)call->buffers[0])[0] = nextafterf(((float*)call->buffers[0])[0], 1);
#include "cross_norm.h"

#define LIST(X) X(0, none) X(305, N10) X(306, N10) X(307, N10) X(308, N10) X(309, N10) X(320, N10) X(321, N10) X(322, N7)
MANY(LIST)
