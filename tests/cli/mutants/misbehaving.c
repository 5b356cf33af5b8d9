/* SPDX-License-Identifier: Apache-2.0 */
/* A correct norm, except that one of its functions misbehaves as the environment variable
 * PLUMB_TEST_MISBEHAVE requests, for example "forward:segv". The functions are load, entry and
 * those of the table. Misbehave and, for writes outside of operands, Scribble list the kinds of
 * misbehaviour. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "plumb/norm_plugin.h"

#define plumb_norm_plugin_v1 HonestEntry
const plumb_norm_plugin* HonestEntry(uint32_t index);
#ifdef MISBEHAVING_CROSS_ROW
#include "base_cross_norm.h"
#else
#include "base_norm.h"
#endif
#undef plumb_norm_plugin_v1

static int Asked(const char* function, const char* what) {
  const char* wanted = getenv("PLUMB_TEST_MISBEHAVE");
  const size_t length = strlen(function);
  return wanted != NULL && strncmp(wanted, function, length) == 0 && wanted[length] == ':' &&
         strcmp(wanted + length + 1, what) == 0;
}

static volatile int zero = 0;
static volatile int* volatile nowhere = (int*)8;

static int Overflow(int depth) {
  volatile char frame[4096];
  memset((char*)frame, depth, sizeof(frame));
  return Overflow(depth + 1) + frame[depth % 7];
}

static void Misbehave(const char* function) {
  if (Asked(function, "exit")) exit(0);
  if (Asked(function, "quick_exit")) quick_exit(0);
  if (Asked(function, "abort")) abort();
  if (Asked(function, "segv")) *nowhere = 1;
  if (Asked(function, "bus")) raise(SIGBUS);
  if (Asked(function, "fpe")) zero = 7 % zero;
  if (Asked(function, "ill")) __builtin_trap();
  if (Asked(function, "overflow")) Overflow(0);
  if (Asked(function, "overflow_on_worker")) {
    if (syscall(SYS_gettid) != getpid()) Overflow(0);
    usleep(1000); /* leaves tasks to the other threads */
  }
  if (Asked(function, "pthread_exit")) pthread_exit(NULL);
  if (Asked(function, "hang")) {
    if (write(STDERR_FILENO, "it hangs\n", 9) != 9) abort();
    for (;;) pause();
  }
}

static const plumb_norm_plugin* honest;

/* Writes outside of an operand at `data`, which is a vector or has rows of `dim` floats. */
static void Scribble(const char* function, float* data, uint32_t dim) {
  if (Asked(function, "one_after")) data[dim] = 1;
  if (Asked(function, "one_before")) data[-1] = 1;
  if (Asked(function, "far_after")) data[dim + 4096] = 1;
}

__attribute__((constructor)) static void Load(void) { Misbehave("load"); }

static plumb_status MyCreate(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                             plumb_norm_instance** out, char* err, size_t cap) {
  Misbehave("create");
  return honest->create(host, dim, values, out, err, cap);
}
static void MyDestroy(plumb_norm_instance* instance) {
  Misbehave("destroy");
  honest->destroy(instance);
}
static plumb_status MyLayout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  Misbehave("layout");
  if (Asked("layout", "wild_pointer")) {
    const plumb_status status = honest->layout(instance, out);
    out->params = (const plumb_tensor_def*)8;
    return status;
  }
  return honest->layout(instance, out);
}
static plumb_status MyForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                              int64_t r0, int64_t r1) {
  Misbehave("forward");
  const plumb_status status = honest->forward(instance, call, r0, r1);
  if (r0 < r1) {
    Scribble("forward", PLUMB_ROW(float, call->y, call->y_pitch, r1 - 1), call->dim);
    if (Asked("forward", "input")) *PLUMB_ROW(float, call->x, call->x_pitch, r0) = 1;
    if (Asked("forward", "weight")) *(float*)(void*)call->params[0] = 1;
    if (Asked("forward", "other_row") && r0 > 0) *PLUMB_ROW(float, call->y, call->y_pitch, 0) = 1;
  }
  return status;
}
static plumb_status MyBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                               int64_t r0, int64_t r1) {
  Misbehave("backward");
  const plumb_status status = honest->backward(instance, call, r0, r1);
  Scribble("backward", (float*)call->dparams[0], call->dim);
  return status;
}
static plumb_status MyAvailable(char* err, size_t cap) {
  (void)err;
  (void)cap;
  Misbehave("available");
  return PLUMB_OK;
}
#ifdef MISBEHAVING_CROSS_ROW
static plumb_status MyStatsPartial(const plumb_norm_instance* instance, uint32_t phase,
                                   const plumb_norm_call* call, int64_t r0, int64_t r1,
                                   void* partial) {
  Misbehave("stats_partial");
  return honest->stats_partial(instance, phase, call, r0, r1, partial);
}
static void MyStatsCombine(const plumb_norm_instance* instance, uint32_t phase,
                           const plumb_norm_call* call, void* acc, const void* partial) {
  Misbehave("stats_combine");
  honest->stats_combine(instance, phase, call, acc, partial);
}
static plumb_status MyStatsFinalize(const plumb_norm_instance* instance, uint32_t phase,
                                    const plumb_norm_call* call, void* acc) {
  Misbehave("stats_finalize");
  const plumb_status status = honest->stats_finalize(instance, phase, call, acc);
  Scribble("stats_finalize", (float*)call->buffers[0], call->dim);
  return status;
}
#endif

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  static plumb_norm_plugin table;
  Misbehave("entry");
  if (Asked("entry", "wild_pointer")) return (const plumb_norm_plugin*)8;
  honest = HonestEntry(0);
  if (index > 0) return NULL;
  table = *honest;
  table.create = MyCreate;
  table.destroy = MyDestroy;
  table.layout = MyLayout;
  table.forward = MyForward;
  table.backward = MyBackward;
  table.available = MyAvailable;
#ifdef MISBEHAVING_CROSS_ROW
  table.stats_partial = MyStatsPartial;
  table.stats_combine = MyStatsCombine;
  table.stats_finalize = MyStatsFinalize;
#endif
  return &table;
}
