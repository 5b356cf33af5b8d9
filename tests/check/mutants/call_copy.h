// SPDX-License-Identifier: Apache-2.0
// Copies a call, which is shorter if an older host passes it.
#ifndef PLUMB_TESTS_CHECK_MUTANTS_CALL_COPY_H_
#define PLUMB_TESTS_CHECK_MUTANTS_CALL_COPY_H_

#include <string.h>

#include "plumb/norm_plugin.h"

static inline plumb_norm_call CopyOfCall(const plumb_norm_call* call) {
  plumb_norm_call copy;
  const size_t known = call->struct_size < sizeof(copy) ? call->struct_size : sizeof(copy);
  memset(&copy, 0, sizeof(copy));
  memcpy(&copy, call, known);
  copy.struct_size = (uint32_t)known;
  return copy;
}

#endif  // PLUMB_TESTS_CHECK_MUTANTS_CALL_COPY_H_
