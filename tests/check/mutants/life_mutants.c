/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants outside the hot functions: a correct norm whose create, destroy or flags do unexpected
 * things. MUTANT is the number of the built one. */
#define _DEFAULT_SOURCE /* for setenv, which C11 alone does not declare */
#define MANY_FLAGS(n, flags)                      \
  ((n) == 82   ? PLUMB_NORM_IDENTITY              \
   : (n) == 83 ? PLUMB_NORM_SHIFT_INVARIANT       \
               : (flags))
#include "many.h"
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define BASE_CREATE SpoiltCreate
#define BASE_DESTROY SpoiltDestroy
#include "base_norm.h"

static volatile int busy;

static void* Nothing(void* argument) {
  pause();
  return argument;
}

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  static volatile double
      shared[4]; /* MUTANT 75: not reentrant; volatile, so that it is read again */
  pthread_t thread;
  FILE* file;
  /* MUTANT 72 to 74: the norm refuses odd dims, as it may. */
  const int refused = MUTANT >= 72 && MUTANT <= 74 && dim % 2 == 1;
  if (MUTANT == 75) {
    shared[0] = dim;
    for (int i = 0; i < 20000; ++i) ++busy;
    dim = (uint32_t)shared[0];
  }
  switch (MUTANT) {
    case 67: if (dim > 64) fesetround(FE_UPWARD); break;
    case 68: if (dim > 500) setlocale(LC_ALL, "C.UTF-8"); break;
    case 69: setenv("BASE_NORM_DIM", "1", 1); break;
    case 70: if (dim % 16 == 0) printf("created\n"), fflush(stdout); break;
    case 71: if (dim > 100 && (file = fopen("/dev/null", "a")) != NULL) fclose(file); break;
    case 72: if (refused) err[0] = '?'; break;
    case 73: if (refused) *(volatile char*)malloc(100) = 1; break;
    case 74: if (refused) fesetround(FE_DOWNWARD); break;
    case 76: if (dim > 1000) umask(0); break;
    case 77: if (dim > 200) pthread_create(&thread, NULL, Nothing, NULL); break;
    case 78: if (dim == 256) chdir("/"); break;
    default: break;
  }
  if (refused) {
    if (cap > 0) snprintf(err, cap, "dim = %u is odd", (unsigned)dim);
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  return BaseCreate(host, dim, values, out, err, cap);
}

static void SpoiltDestroy(plumb_norm_instance* instance) {
  const uint32_t dim = instance->dim;
  if (MUTANT == 79 && dim > 128) feraiseexcept(FE_DIVBYZERO), fesetround(FE_TOWARDZERO);
  if (MUTANT == 80 && dim > 300) return; /* a leak */
  if (MUTANT == 81 && dim > 64) fprintf(stderr, "destroyed\n");
  BaseDestroy(instance);
}

#define LIST(X) X(67, R4) X(68, R4) X(69, R4) X(70, R4) X(71, free) X(72, M2) X(73, R4) \
  X(74, R4) X(75, free) X(76, R4) X(77, R1) X(78, R1) X(79, R4) X(80, R4) X(81, R4) \
  X(82, N13) X(83, N13)
MANY(LIST)
