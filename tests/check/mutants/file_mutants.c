/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of a file: its exports, dependencies and load-time actions (E1, E2, E5), and of its
 * metadata and schema (M1, M2). MUTANT_NAME selects one. Two have no code here, but are linked with
 * -z execstack and with libgomp. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#ifdef MUTANT_no_note
/* Has no note that identifies the file before its code runs. */
#define NORM_NOTE
#endif
#ifdef MUTANT_another_major
/* Is a plugin for a future norm ABI. */
#include "plumb/norm_plugin.h"
#define NORM_NOTE                                                             \
  static const plumb_norm_note future                                         \
      __attribute__((used, section(PLUMB_NORM_NOTE_SECTION), aligned(4))) = { \
          6, 72, PLUMB_NORM_NOTE_TYPE, PLUMB_NORM_NOTE_OWNER, 2, 0, "org.example.base"};
#endif
#ifdef MUTANT_unresolved
#define NORM_DESTROY SpoiltDestroy
#endif
#ifdef MUTANT_no_version
#define NORM_VERSION NULL
#endif
#ifdef MUTANT_not_utf8
/* The doc is Latin-1, not UTF-8. */
#define NORM_DOC "La moyenne des carr\xe9s."
#endif
#ifdef MUTANT_default_out_of_range
/* The schema forbids the default value. */
#define NORM_EPS_MAX 1e-9
#endif
#ifdef MUTANT_no_doc
#define NORM_ATTRIBUTE_DOC ""
#endif
#ifdef MUTANT_stochastic
/* Sets a flag that is reserved. */
#define NORM_FLAGS PLUMB_NORM_STOCHASTIC
#endif
#if defined(MUTANT_no_entry) || defined(MUTANT_index_out_of_range) || \
    defined(MUTANT_another_pointer) || defined(MUTANT_two_norms_one_id) || defined(MUTANT_no_backward)
#define NORM_HAS_ENTRY_OF_ITS_OWN
#endif

#include "norm.h"

#ifdef MUTANT_exports_a_helper
/* Exports one function too many. */
PLUMB_EXPORT double org_example_mean(double a, double b);
double org_example_mean(double a, double b) { return (a + b) / 2; }
#endif

#ifdef MUTANT_exports_a_host_name
/* Exports a function with the name of one that every process has. */
PLUMB_EXPORT double hypot(double a, double b);
double hypot(double a, double b) { return a + b; }
#endif

#ifdef MUTANT_text_relocation
/* Has a pointer in the code, into which the loader must write. */
__asm__(
    ".pushsection .text\n"
    ".balign 8\n"
    ".quad base_pointed_at\n"
    ".popsection\n"
    ".pushsection .data\n"
    "base_pointed_at: .quad 0\n"
    ".popsection\n");
#endif

#ifdef MUTANT_unresolved
/* Calls a function that does not exist. */
void org_example_function_of_nobody(void);
static void SpoiltDestroy(plumb_norm_instance* instance) {
  org_example_function_of_nobody();
  BaseDestroy(instance);
}
#endif

#ifdef MUTANT_no_entry
/* Has the note but not the function. */
const plumb_norm_plugin* org_example_norm(void);
const plumb_norm_plugin* org_example_norm(void) { return &base_norm; }
#endif

#ifdef MUTANT_fast_math
/* Does the same as the code that clang, and gcc before 13, link into a library for -ffast-math:
   a constructor disables denormals for the whole thread. */
__attribute__((constructor)) static void FlushDenormals(void) {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040u);
#elif defined(__aarch64__)
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("msr fpcr, %0" : : "r"(control | (1u << 24)));
#endif
}
#endif

#ifdef MUTANT_prints
/* Prints when it is loaded. */
__attribute__((constructor)) static void Greet(void) { puts("base norm 1.0 loaded"); }
#endif

#ifdef MUTANT_handles_signals
/* Installs a signal handler. */
__attribute__((constructor)) static void Install(void) { signal(SIGUSR1, SIG_IGN); }
#endif

#ifdef MUTANT_starts_a_thread
/* Starts a thread when it is loaded. */
static void* Wait(void* nothing) {
  for (;;) pause();
  return nothing;
}
__attribute__((constructor)) static void Start(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, Wait, NULL) == 0) pthread_detach(thread);
}
#endif

#ifdef MUTANT_loads_slowly
/* Sleeps for a while when it is loaded. */
__attribute__((constructor)) static void Think(void) { usleep(130 * 1000); }
#endif

#ifdef MUTANT_index_out_of_range
/* Treats large indices like small ones. */
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return (index & 0xff) == 0 || index == 1000 ? &base_norm : NULL;
}
#endif

#ifdef MUTANT_another_pointer
/* Returns a copy of its table the second time. */
static plumb_norm_plugin copy;
static int calls;
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  if (index != 0) return NULL;
  copy = base_norm;
  return calls++ == 0 ? &base_norm : &copy;
}
#endif

#ifdef MUTANT_two_norms_one_id
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index < 2 ? &base_norm : NULL;
}
#endif

#ifdef MUTANT_no_backward
/* A mandatory function is missing. */
static plumb_norm_plugin half;
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  if (index != 0) return NULL;
  half = base_norm;
  half.backward = NULL;
  return &half;
}
#endif
