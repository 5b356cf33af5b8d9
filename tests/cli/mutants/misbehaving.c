/* SPDX-License-Identifier: Apache-2.0 */
/* A correct norm, except that one of its functions misbehaves as the environment variable
 * PLUMB_TEST_MISBEHAVE requests, for example "forward:segv". The functions are load, entry and
 * those of the table. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plumb/norm_plugin.h"

#define plumb_norm_plugin_v1 HonestEntry
const plumb_norm_plugin* HonestEntry(uint32_t index);
#include "norm.h"
#undef plumb_norm_plugin_v1

static int Asked(const char* function, const char* what) {
  const char* wanted = getenv("PLUMB_TEST_MISBEHAVE");
  const size_t length = strlen(function);
  return wanted != NULL && strncmp(wanted, function, length) == 0 && wanted[length] == ':' &&
         strcmp(wanted + length + 1, what) == 0;
}

static volatile int* volatile nowhere = (int*)8;

static void Misbehave(const char* function) {
  if (Asked(function, "abort")) abort();
  if (Asked(function, "segv")) *nowhere = 1;
  if (Asked(function, "hang")) {
    if (write(STDERR_FILENO, "it hangs\n", 9) != 9) abort();
    for (;;) pause();
  }
}

static const plumb_norm_plugin* honest;

__attribute__((constructor)) static void AtLoad(void) { Misbehave("load"); }

static plumb_status MyCreate(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                             plumb_norm_instance** out, char* err, size_t cap) {
  Misbehave("create");
  return honest->create(host, dim, values, out, err, cap);
}
static void MyDestroy(plumb_norm_instance* instance) {
  Misbehave("destroy");
  honest->destroy(instance);
}
static plumb_status MyForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                              int64_t r0, int64_t r1) {
  Misbehave("forward");
  return honest->forward(instance, call, r0, r1);
}
static plumb_status MyBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                               int64_t r0, int64_t r1) {
  Misbehave("backward");
  return honest->backward(instance, call, r0, r1);
}

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  static plumb_norm_plugin table;
  Misbehave("entry");
  honest = HonestEntry(0);
  if (index > 0) return NULL;
  table = *honest;
  table.create = MyCreate;
  table.destroy = MyDestroy;
  table.forward = MyForward;
  table.backward = MyBackward;
  return &table;
}
