/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants with statistics over rows: a correct cross-row norm that fails under a condition. */
#include "many.h"
#define CROSS_SPREAD(na, nb, term) (MUTANT == 86 && (na) > 200 ? 0 : (term))
#define CROSS_BEFORE_FORWARD                                                                      \
  plumb_norm_call copy = CopyOfCall(call);                                                        \
  const void* swapped[2] = {call->params[0], call->params[0]};                                    \
  if (MUTANT == 87 && call->call_saved == NULL && call->dim > 32) copy.buffers = (void**)swapped; \
  if (MUTANT == 88 && call->rows > 500 && call->call_saved != NULL)                               \
    ((float*)call->call_saved)[0] += 0.05f;                                                       \
  call = &copy;
#include "call_copy.h"
#include "base_cross_norm.h"

#define LIST(X) X(86, N2) X(87, N10) X(88, N10)
MANY(LIST)
