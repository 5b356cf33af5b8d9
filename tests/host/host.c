/* SPDX-License-Identifier: Apache-2.0 */
/* A host of libplumb.so that reports the libraries in its process.
 *
 *   host sample          feeds a small model a prompt and samples it
 *   host train [GEMM]    trains a model with large products, with this engine (default: auto)
 *
 * It prints a digest of the results, warnings as "log: ...", the state of oneDNN that
 * plumb_runtime_describe reports, and last the mapped shared objects, one per line as
 * "mapped PATH". Compiled with OpenMP it runs parallel regions before, during and after plumb's
 * work. With HOST_ONEDNN it links another oneDNN and calls it once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plumb.h"

#ifdef HOST_ONEDNN
int host_onednn(void); /* defined in the library that also exports oneDNN's names */
#endif

/* Takes the error by address, because a compiler may evaluate the arguments from the last to the
   first. */
static void Must(plumb_status status, plumb_error** error) {
  if (status == PLUMB_OK) return;
  fprintf(stderr, "%s\n", plumb_error_message(*error));
  plumb_error_free(*error);
  exit(1);
}

static void Log(void* user, int32_t level, const char* message) {
  (void)user;
  (void)level;
  printf("log: %s\n", message);
}

/* Continues an FNV-1a hash with `data`. */
static uint64_t Digest(uint64_t digest, const void* data, size_t size) {
  const unsigned char* bytes = data;
  for (size_t i = 0; i < size; ++i) digest = (digest ^ bytes[i]) * 1099511628211u;
  return digest;
}

/* --- The host's own parallel regions --- */

#ifdef _OPENMP
static void ParallelRegion(void) {
  long long sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(4)
  for (int i = 0; i < 100000; ++i) sum += i % 7;
  if (sum != 299995) {
    fprintf(stderr, "the host's parallel region has a wrong sum: %lld\n", sum);
    exit(1);
  }
}
static atomic_int stop;
static void* Regions(void* unused) {
  while (!atomic_load(&stop)) ParallelRegion();
  return unused;
}
static pthread_t beside;
static void StartRegions(void) {
  ParallelRegion();
  if (pthread_create(&beside, NULL, Regions, NULL) != 0) exit(1);
}
static void EndRegions(void) {
  atomic_store(&stop, 1);
  pthread_join(beside, NULL);
  ParallelRegion();
}
#else
static void StartRegions(void) {}
static void EndRegions(void) {}
#endif

/* --- plumb --- */

static plumb_model* MakeModel(const char* gemm, const char* text) {
  plumb_error* error = NULL;
  plumb_runtime* runtime = NULL;
  plumb_spec* spec = NULL;
  plumb_model* model = NULL;
  plumb_runtime_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.threads = 2;
  options.log = Log;
  options.gemm = gemm;
  Must(plumb_runtime_create(PLUMB_ABI_VERSION, &options, &runtime, &error), &error);
  Must(plumb_spec_from_text(text, "host", &spec, &error), &error);
  Must(plumb_model_create(runtime, spec, &model, &error), &error);
  Must(plumb_model_init(model, 1, &error), &error);
  plumb_spec_free(spec);
  plumb_runtime_free(runtime);
  return model;
}

static uint64_t Train(const char* gemm) {
  static const char kModel[] =
      "n_layer: 1 n_head: 4 d_model: 256 context_length: 64 vocab_size: 97\n"
      "block { placement: \"pre\" norm: \"rms_norm\" }\n";
  static const char kRecipe[] = "max_steps: 4 batch_size: 8 learning_rate: 0.01";
  enum { kTokens = 8 * 64, kSteps = 4 };
  int32_t inputs[kTokens], targets[kTokens];
  plumb_error* error = NULL;
  plumb_trainer* trainer = NULL;
  plumb_trainer_options options;
  plumb_model* model = MakeModel(gemm, kModel);
  uint64_t digest = 14695981039346656037u;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.recipe = kRecipe;
  Must(plumb_trainer_create(model, &options, &trainer, &error), &error);
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kTokens; ++i) {
      inputs[i] = (i * i + 31 * step) % 97;
      targets[i] = (inputs[i] + 1) % 97;
    }
    Must(plumb_trainer_step(trainer, inputs, targets, kTokens, NULL, &error), &error);
  }
  for (int64_t i = 0; i < plumb_model_tensor_count(model); ++i) {
    plumb_tensor tensor;
    tensor.struct_size = sizeof(tensor);
    Must(plumb_model_tensor(model, i, &tensor, &error), &error);
    digest = Digest(digest, tensor.data,
                    sizeof(float) * (size_t)(tensor.shape[0] * tensor.shape[1] * tensor.shape[2] *
                                             tensor.shape[3]));
  }
  plumb_trainer_free(trainer);
  plumb_model_free(model);
  return digest;
}

static int32_t AddToken(void* user, int32_t token) {
  uint64_t* digest = user;
  *digest = Digest(*digest, &token, sizeof(token));
  return 0;
}

static uint64_t Sample(void) {
  static const char kModel[] =
      "n_layer: 4 n_head: 4 d_model: 64 context_length: 32 vocab_size: 97\n"
      "block { placement: \"pre\" norm: \"rms_norm\" }\n";
  static const int32_t kPrompt[] = {1, 2, 3, 4, 5, 6, 7, 8};
  plumb_error* error = NULL;
  plumb_session* session = NULL;
  plumb_sample_options options;
  plumb_model* model = MakeModel(NULL, kModel);
  uint64_t digest = 14695981039346656037u;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  Must(plumb_session_create(model, NULL, &session, &error), &error);
  Must(plumb_session_feed(session, 0, kPrompt, sizeof(kPrompt) / sizeof(*kPrompt), &error), &error);
  Must(plumb_session_generate(session, 0, &options, AddToken, &digest, &error), &error);
  plumb_session_free(session);
  plumb_model_free(model);
  return digest;
}

/* Prints the state of oneDNN that plumb reports. */
static void PrintDescribed(void) {
  plumb_error* error = NULL;
  plumb_runtime* runtime = NULL;
  char* text = NULL;
  Must(plumb_runtime_create(PLUMB_ABI_VERSION, NULL, &runtime, &error), &error);
  Must(plumb_runtime_describe(runtime, &text, &error), &error);
  if (strstr(text, "\"state\": \"loaded\"") != NULL) puts("oneDNN loaded");
  if (strstr(text, "\"state\": \"not needed yet\"") != NULL) puts("oneDNN not needed yet");
  plumb_free(text);
  plumb_runtime_free(runtime);
}

/* Prints the shared objects in /proc/self/maps, once each: those whose first page is mapped. */
static void PrintMapped(void) {
  char line[4608], path[4096];
  unsigned long long offset;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) return;
  while (fgets(line, sizeof(line), maps) != NULL) {
    if (sscanf(line, "%*s %*s %llx %*s %*s %4095s", &offset, path) == 2 && offset == 0 &&
        strstr(path, ".so") != NULL) {
      printf("mapped %s\n", path);
    }
  }
  fclose(maps);
}

int main(int argc, char** argv) {
  uint64_t digest = 0;
  if (argc < 2) return 2;
#ifdef HOST_ONEDNN
  if (host_onednn() != 1) return 1;
#endif
  StartRegions();
  if (strcmp(argv[1], "sample") == 0) digest = Sample();
  if (strcmp(argv[1], "train") == 0) digest = Train(argc > 2 ? argv[2] : NULL);
  EndRegions();
  printf("digest %016llx\n", (unsigned long long)digest);
  PrintDescribed();
  PrintMapped();
  return 0;
}
