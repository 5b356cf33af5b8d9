/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of what a file exports, loads and does as it is loaded (checks E1 to E6). MUTANT_NAME chooses one; mutants.txt lists them. */

#ifdef MUTANT_e1_no_note
/* Nothing says what the file is before its code runs. */
#define BASE_NOTE
#include "base_norm.h"
#endif

#ifdef MUTANT_e1_another_major
/* A plugin for a norm ABI of the future. */
#include "plumb/norm_plugin.h"
#define BASE_NOTE                                                             \
  static const plumb_norm_note future                                         \
      __attribute__((used, section(PLUMB_NORM_NOTE_SECTION), aligned(4))) = { \
          6, 72, PLUMB_NORM_NOTE_TYPE, PLUMB_NORM_NOTE_OWNER, 2, 0, "org.example.base"};
#include "base_norm.h"
#endif

#ifdef MUTANT_e2_exports_a_helper
/* One function too many can be seen from outside. */
#include "base_norm.h"
PLUMB_EXPORT double org_example_mean(double a, double b);
double org_example_mean(double a, double b) { return (a + b) / 2; }
#endif

#ifdef MUTANT_e2_exports_a_host_name
/* Its own function has the name of one that every process has. */
#include "base_norm.h"
PLUMB_EXPORT double hypot(double a, double b);
double hypot(double a, double b) { return a + b; }
#endif

#ifdef MUTANT_e3_executable_stack
/* Linked with -z execstack. */
#include "base_norm.h"
#endif

#ifdef MUTANT_e3_text_relocation
/* A pointer among the code, which the loader must write there. */
#include "base_norm.h"
__asm__(
    ".pushsection .text\n"
    ".balign 8\n"
    ".quad base_pointed_at\n"
    ".popsection\n"
    ".pushsection .data\n"
    "base_pointed_at: .quad 0\n"
    ".popsection\n");
#endif

#ifdef MUTANT_e3_relative_run_path
/* Linked with -rpath lib, so that the working directory decides what is loaded. */
#include "base_norm.h"
#endif

#ifdef MUTANT_e3_brings_a_thread_pool
/* Linked with libgomp. */
#include "base_norm.h"
#endif

#ifdef MUTANT_e4_unresolved
/* Calls a function that nobody has. */
#define BASE_DESTROY SpoiltDestroy
#include "base_norm.h"
void org_example_function_of_nobody(void);
static void SpoiltDestroy(plumb_norm_instance* instance) {
  org_example_function_of_nobody();
  BaseDestroy(instance);
}
#endif

#ifdef MUTANT_e4_no_entry
/* The note is there, the function is not. */
#define BASE_HAS_ENTRY_OF_ITS_OWN
#include "base_norm.h"
const plumb_norm_plugin* org_example_norm(void);
const plumb_norm_plugin* org_example_norm(void) { return &base_norm; }
#endif

#ifdef MUTANT_e5_fast_math
/* What -ffast-math links into a library, with clang and with gcc before 13: a constructor switches
   denormals off, for the whole thread. */
#if defined(__SSE__)
#include <xmmintrin.h>
#endif
#include "base_norm.h"

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

#ifdef MUTANT_e5_prints
/* Greets. */
#include "base_norm.h"
__attribute__((constructor)) static void Greet(void) { puts("base norm 1.0 loaded"); }
#endif

#ifdef MUTANT_e5_handles_signals
/* Takes over a signal. */
#include <signal.h>
#include "base_norm.h"
__attribute__((constructor)) static void Install(void) { signal(SIGUSR1, SIG_IGN); }
#endif

#ifdef MUTANT_e5_starts_a_thread
/* Has a thread from the start. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <unistd.h>
#include "base_norm.h"
static void* Wait(void* nothing) {
  for (;;) pause();
  return nothing;
}
__attribute__((constructor)) static void Start(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, Wait, NULL) == 0) pthread_detach(thread);
}
#endif

#ifdef MUTANT_e6_loads_slowly
/* Thinks for a while when it is loaded. */
#define _DEFAULT_SOURCE
#include <unistd.h>
#include "base_norm.h"
__attribute__((constructor)) static void Think(void) { usleep(130 * 1000); }
#endif
