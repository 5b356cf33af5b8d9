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
