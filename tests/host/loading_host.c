/* SPDX-License-Identifier: Apache-2.0 */
/* A host that loads libplumb.so by dlopen, in each of these ways:
 *
 *   loading_host reload LIB       loads, trains, samples and unloads it, three times
 *   loading_host two LIB COPY     uses two copies alternately, and unloads either one first
 *   loading_host quiet LIB        causes errors and warnings, which go only to the log
 *   loading_host locale LIB       runs under the environment's locale, which must not change
 *
 * Prints the error and exits with 1, or prints "ok" and the bits of a loss.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plumb.h"

/* clang-format off */
#define FUNCTIONS(X)                                                                   \
  X(runtime_create) X(runtime_free) X(spec_from_text) X(spec_free) X(model_create)     \
  X(model_free) X(model_init) X(trainer_create) X(trainer_free) X(trainer_step_tokens) \
  X(trainer_step) X(session_create) X(session_free) X(session_feed)                    \
  X(session_generate) X(error_message) X(error_free)
/* clang-format on */

struct Library {
  void* handle;
#define FIELD(name) __typeof__(&plumb_##name) name;
  FUNCTIONS(FIELD)
#undef FIELD
};

static void Fail(const char* what, const char* why) {
  fprintf(stderr, "loading_host: %s: %s\n", what, why);
  exit(1);
}

static struct Library Load(const char* path) {
  struct Library library;
  library.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library.handle == NULL) Fail("dlopen", dlerror());
#define FIND(name)                                                \
  *(void**)&library.name = dlsym(library.handle, "plumb_" #name); \
  if (library.name == NULL) Fail("dlsym", "plumb_" #name);
  FUNCTIONS(FIND)
#undef FIND
  return library;
}

static void Must(const struct Library* library, plumb_status status, plumb_error* error) {
  if (status == PLUMB_OK) return;
  Fail("plumb", library->error_message(error));
}

static int IsMapped(const char* path) {
  char line[4096], real[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == NULL || realpath(path, real) == NULL) Fail("/proc/self/maps", path);
  while (fgets(line, sizeof(line), maps) != NULL) found |= strstr(line, real) != NULL;
  fclose(maps);
  return found;
}

static int32_t Ignore(void* user, int32_t token) {
  *(int64_t*)user = *(int64_t*)user * 31 + token;
  return 0;
}

struct Life {
  plumb_runtime* runtime;
  plumb_model* model;
  plumb_trainer* trainer;
  double loss;
  int64_t tokens; /* a digest of the drawn tokens */
};

static const char kModel[] =
    "n_layer: 2 n_head: 2 d_model: 64 vocab_size: 40 context_length: 32\n"
    "block { placement: \"pre\" norm: \"rms_norm\" }\n";
static const char kRecipe[] = "batch_size: 4 learning_rate: 0.01";

static struct Life Begin(const struct Library* l, plumb_log_fn log, void* user) {
  struct Life life = {NULL, NULL, NULL, 0, 0};
  plumb_runtime_options options;
  plumb_trainer_options recipe;
  plumb_spec* spec = NULL;
  plumb_error* error = NULL;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.threads = 2;
  options.log = log;
  options.log_user = user;
  memset(&recipe, 0, sizeof(recipe));
  recipe.struct_size = sizeof(recipe);
  recipe.recipe = kRecipe;
  Must(l, l->runtime_create(PLUMB_ABI_VERSION, &options, &life.runtime, &error), error);
  Must(l, l->spec_from_text(kModel, "host", &spec, &error), error);
  Must(l, l->model_create(life.runtime, spec, &life.model, &error), error);
  Must(l, l->model_init(life.model, 1, &error), error);
  Must(l, l->trainer_create(life.model, &recipe, &life.trainer, &error), error);
  l->spec_free(spec);
  return life;
}

static void Step(const struct Library* l, struct Life* life) {
  int32_t inputs[128], targets[128];
  plumb_step_info info;
  plumb_error* error = NULL;
  size_t i;
  if (l->trainer_step_tokens(life->trainer) != 128) Fail("trainer_step_tokens", "not 128");
  for (i = 0; i < 128; ++i) {
    inputs[i] = (int32_t)(i * 7 % 40);
    targets[i] = (int32_t)(i * 11 % 40);
  }
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  Must(l, l->trainer_step(life->trainer, inputs, targets, 128, &info, &error), error);
  life->loss = info.loss;
}

static void End(const struct Library* l, struct Life* life) {
  const int32_t prompt[] = {1, 2, 3};
  plumb_session* session = NULL;
  plumb_error* error = NULL;
  l->trainer_free(life->trainer);
  Must(l, l->session_create(life->model, NULL, &session, &error), error);
  Must(l, l->session_feed(session, 0, prompt, 3, &error), error);
  Must(l, l->session_generate(session, 0, NULL, Ignore, &life->tokens, &error), error);
  l->session_free(session);
  l->model_free(life->model);
  l->runtime_free(life->runtime);
}

static struct Life Live(const struct Library* l) {
  struct Life life = Begin(l, NULL, NULL);
  int i;
  for (i = 0; i < 5; ++i) Step(l, &life);
  End(l, &life);
  return life;
}

static void MustEqual(const struct Life* a, const struct Life* b) {
  if (memcmp(&a->loss, &b->loss, sizeof(a->loss)) != 0 || a->tokens != b->tokens) {
    Fail("two lives", "they differ");
  }
}

static struct Life Reload(const char* path) {
  struct Life first = {NULL, NULL, NULL, 0, 0};
  int i;
  for (i = 0; i < 3; ++i) {
    struct Library library = Load(path);
    const struct Life life = Live(&library);
    if (i == 0) first = life;
    MustEqual(&first, &life);
    dlclose(library.handle);
    if (IsMapped(path)) Fail(path, "it is mapped still");
  }
  return first;
}

static struct Life Two(const char* path, const char* copy) {
  struct Library one = Load(path), other = Load(copy);
  struct Life a, b;
  int i;
  if (one.runtime_create == other.runtime_create) Fail(copy, "is the same library");
  a = Begin(&one, NULL, NULL);
  b = Begin(&other, NULL, NULL);
  for (i = 0; i < 5; ++i) {
    Step(&one, &a);
    Step(&other, &b);
  }
  End(&one, &a);
  dlclose(one.handle);
  End(&other, &b);
  dlclose(other.handle);
  MustEqual(&a, &b);
  return a;
}

static void Count(void* user, int32_t level, const char* message) {
  (void)level;
  if (message[0] != '\0') ++*(int*)user;
}

static struct Life Quiet(const char* path) {
  char name[] = "/tmp/plumb-quiet-XXXXXX";
  const int output = mkstemp(name), out = dup(1), err = dup(2);
  struct Library library;
  struct Life life;
  struct stat written;
  plumb_error* error = NULL;
  plumb_spec* spec = NULL;
  int lines = 0;
  if (output < 0 || out < 0 || err < 0) Fail("mkstemp", name);
  unlink(name);
  setenv("PLUMB_PLUGIN_PATH", "not/absolute:/not/there", 1);
  dup2(output, 1);
  dup2(output, 2);
  library = Load(path);
  life = Begin(&library, Count, &lines);
  Step(&library, &life);
  if (library.spec_from_text("n_hed: 1", "wrong", &spec, &error) == PLUMB_OK) ++lines;
  library.error_free(error);
  if (library.model_create(NULL, NULL, NULL, NULL) == PLUMB_OK) ++lines;
  End(&library, &life);
  dlclose(library.handle);
  fflush(stdout);
  dup2(out, 1);
  dup2(err, 2);
  if (fstat(output, &written) != 0 || written.st_size != 0) Fail("quiet", "something was printed");
  if (lines == 0) Fail("quiet", "the log heard nothing");
  return life;
}

static struct Life Locale(const char* path) {
  struct Library library;
  struct Life life;
  char before[256];
  if (setlocale(LC_ALL, "") == NULL) Fail("setlocale", "there is no such locale");
  if (strcmp(localeconv()->decimal_point, ",") != 0) Fail("locale", "its numbers have no comma");
  snprintf(before, sizeof(before), "%s", setlocale(LC_ALL, NULL));
  library = Load(path);
  life = Live(&library);
  if (strcmp(before, setlocale(LC_ALL, NULL)) != 0) Fail("locale", "it has changed");
  return life;
}

int main(int argc, char** argv) {
  struct Life life;
  if (argc == 3 && strcmp(argv[1], "reload") == 0) {
    life = Reload(argv[2]);
  } else if (argc == 4 && strcmp(argv[1], "two") == 0) {
    life = Two(argv[2], argv[3]);
  } else if (argc == 3 && strcmp(argv[1], "quiet") == 0) {
    life = Quiet(argv[2]);
  } else if (argc == 3 && strcmp(argv[1], "locale") == 0) {
    life = Locale(argv[2]);
  } else {
    fprintf(stderr, "usage: loading_host reload LIB | two LIB COPY | quiet LIB | locale LIB\n");
    return 2;
  }
  printf("ok %a\n", life.loss);
  return 0;
}
