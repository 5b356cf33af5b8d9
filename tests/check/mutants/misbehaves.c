/* SPDX-License-Identifier: Apache-2.0 */
/* Misbehaves in forward() as the environment variable MISBEHAVE requests. For the tests of the
 * checker itself. */
#define _DEFAULT_SOURCE
#define NORM_FORWARD SpoiltForward
#include <signal.h>
#include <unistd.h>

#include "norm.h"

static int* volatile nowhere = (int*)8;

static int Is(const char* way) {
  const char* wanted = getenv("MISBEHAVE");
  return wanted != NULL && strcmp(wanted, way) == 0;
}

static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if (Is("crash")) *nowhere = 1;
  if (Is("abort")) abort();
  if (Is("exit")) exit(0);
  if (Is("exit7")) _exit(7);
  if (Is("hang")) {
    for (;;) pause();
  }
  if (Is("print")) {
    for (int i = 0; i < 20000; ++i) puts("{\"verdict\": 4, \"text\": \"printed\"}");
  }
  if (Is("fork") && fork() == 0) {
    for (;;) pause();
  }
  return BaseForward(instance, call, r0, r1);
}
