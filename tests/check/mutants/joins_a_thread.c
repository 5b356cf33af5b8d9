/* SPDX-License-Identifier: Apache-2.0 */
/* Is correct: create starts a thread and joins it, which does not change the process. */
#include <pthread.h>

#define NORM_CREATE ThreadedCreate
#include "norm.h"

static void* Work(void* sum) {
  for (int i = 0; i < 1000; ++i) *(volatile int*)sum += i;
  return NULL;
}

static plumb_status ThreadedCreate(const plumb_host* host, uint32_t dim,
                                   const plumb_attr_value* values, plumb_norm_instance** out,
                                   char* err, size_t cap) {
  pthread_t thread;
  int sum = 0;
  if (pthread_create(&thread, NULL, Work, &sum) == 0) pthread_join(thread, NULL);
  return BaseCreate(host, dim, values, out, err, cap);
}
