/* SPDX-License-Identifier: Apache-2.0 */
/* A host that only samples, for embed_start.py. It maps weights and samples one token, which it
 * prints immediately, and then prints the time of a further token and the memory of the process.
 *
 *   embed_host MODEL.pbtxt WEIGHTS [VOCABULARY]           samples
 *   embed_host --write MODEL.pbtxt WEIGHTS [VOCABULARY]   writes random weights first, and ends
 */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plumb.h"

static void Must(plumb_status status, plumb_error* error) {
  if (status == PLUMB_OK) return;
  fprintf(stderr, "embed_host: %s\n", plumb_error_message(error));
  plumb_error_free(error);
  exit(1);
}

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

struct Times {
  double* at;
  int count;
};

static int32_t Token(void* user, int32_t token) {
  struct Times* times = user;
  times->at[times->count++] = Now();
  (void)token;
  return 0;
}

static int Ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static long PeakKb(void) {
  char line[256];
  long kb = 0;
  FILE* status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
    if (strncmp(line, "VmHWM:", 6) == 0) kb = atol(line + 6);
  }
  if (status != NULL) fclose(status);
  return kb;
}

int main(int argc, char** argv) {
  const int writes = argc > 1 && strcmp(argv[1], "--write") == 0;
  plumb_error* error = NULL;
  plumb_runtime* runtime = NULL;
  plumb_spec* spec = NULL;
  plumb_model* model = NULL;
  plumb_session* session = NULL;
  plumb_sample_options sampling;
  plumb_model_info info;
  struct Times times = {NULL, 0};
  const int32_t prompt = 0;
  double* gaps;
  double begin;
  int i, tokens;
  argv += writes;
  argc -= writes;
  if (argc < 3) {
    fprintf(stderr, "usage: embed_host [--write] MODEL.pbtxt WEIGHTS [VOCABULARY]\n");
    return 2;
  }
  Must(plumb_runtime_create(PLUMB_ABI_VERSION, NULL, &runtime, &error), error);
  Must(plumb_spec_from_file(argv[1], &spec, &error), error);
  if (argc > 3) Must(plumb_spec_set(spec, "vocab_size", argv[3], &error), error);
  Must(plumb_model_create(runtime, spec, &model, &error), error);
  if (writes) {
    Must(plumb_model_init(model, 1, &error), error);
    Must(plumb_model_save(model, argv[2], NULL, &error), error);
    return 0;
  }
  Must(plumb_model_map(model, argv[2], &error), error);
  Must(plumb_session_create(model, NULL, &session, &error), error);
  Must(plumb_session_feed(session, 0, &prompt, 1, &error), error);
  memset(&sampling, 0, sizeof(sampling));
  sampling.struct_size = sizeof(sampling);
  sampling.max_tokens = 1;
  sampling.temperature = 1;
  times.at = malloc(sizeof(double) * 2048);
  gaps = malloc(sizeof(double) * 2048);
  if (times.at == NULL || gaps == NULL) return 1;
  Must(plumb_session_generate(session, 0, &sampling, Token, &times, &error), error);
  printf("token\n");
  fflush(stdout);

  /* Samples the rest of the context, several times. */
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  Must(plumb_model_get_info(model, &info, &error), error);
  begin = Now();
  for (i = 0, tokens = 0; tokens < 1500 && (i == 0 || Now() - begin < 0.5); ++i) {
    int k;
    times.count = 0;
    sampling.max_tokens = info.context_length < 33 ? info.context_length - 1 : 32;
    Must(plumb_session_truncate(session, 0, 0, &error), error);
    Must(plumb_session_feed(session, 0, &prompt, 1, &error), error);
    Must(plumb_session_generate(session, 0, &sampling, Token, &times, &error), error);
    for (k = 1; k < times.count; ++k) gaps[tokens++] = times.at[k] - times.at[k - 1];
  }
  qsort(gaps, (size_t)tokens, sizeof(double), Ascending);
  printf(
      "{\"token_seconds\": %.9f, \"peak_kb\": %ld, \"weight_bytes\": %lld, \"cache_bytes\": "
      "%lld}\n",
      gaps[tokens / 2], PeakKb(), (long long)info.weight_bytes, (long long)info.cache_bytes);
  return 0;
}
