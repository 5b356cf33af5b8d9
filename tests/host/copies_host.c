/* A host into which two files of libplumb come, as by two plugins that each bring one: both are
 * loaded, used beside each other, closed, and loaded again.
 *
 *   copies_host LIBRARY COPY */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plumb.h"

enum { kTokens = 8, kVocabulary = 5 };

static void Fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static void* Load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) Fail(dlerror());
  return library;
}

/* A function of one library, called NAME in plumb.h. */
#define FUNCTION(library, name)                  \
  __typeof__(&name) call_##name;                 \
  *(void**)&call_##name = dlsym(library, #name); \
  if (call_##name == NULL) Fail("no " #name)

/* The loss of a model's third step; describing, creating and freeing all that it takes. */
static double Train(void* library) {
  static const char kModel[] =
      "n_layer: 2 n_head: 2 d_model: 16 vocab_size: 5 context_length: 8\n"
      "block { placement: \"pre\" norm: \"rms_norm\" }\n";
  static const char kRecipe[] = "learning_rate: 0.01";
  plumb_error* error = NULL;
  plumb_runtime* runtime = NULL;
  plumb_spec* spec = NULL;
  plumb_model* model = NULL;
  plumb_trainer* trainer = NULL;
  plumb_trainer_options options;
  plumb_step_info info;
  int32_t inputs[kTokens], targets[kTokens];
  int i;
  FUNCTION(library, plumb_error_message);
  FUNCTION(library, plumb_runtime_create);
  FUNCTION(library, plumb_runtime_free);
  FUNCTION(library, plumb_spec_from_text);
  FUNCTION(library, plumb_spec_free);
  FUNCTION(library, plumb_model_create);
  FUNCTION(library, plumb_model_init);
  FUNCTION(library, plumb_model_free);
  FUNCTION(library, plumb_trainer_create);
  FUNCTION(library, plumb_trainer_step);
  FUNCTION(library, plumb_trainer_free);

  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.recipe = kRecipe;
  options.recipe_size = strlen(kRecipe);
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  for (i = 0; i < kTokens; ++i) {
    inputs[i] = i % kVocabulary;
    targets[i] = (i + 1) % kVocabulary;
  }
  if (call_plumb_runtime_create(NULL, &runtime, &error) != PLUMB_OK ||
      call_plumb_spec_from_text(kModel, strlen(kModel), "host", &spec, &error) != PLUMB_OK ||
      call_plumb_model_create(runtime, spec, &model, &error) != PLUMB_OK ||
      call_plumb_model_init(model, 1, &error) != PLUMB_OK ||
      call_plumb_trainer_create(model, &options, &trainer, &error) != PLUMB_OK) {
    Fail(call_plumb_error_message(error));
  }
  for (i = 0; i < 3; ++i) {
    if (call_plumb_trainer_step(trainer, inputs, targets, kTokens, &info, &error) != PLUMB_OK) {
      Fail(call_plumb_error_message(error));
    }
  }
  call_plumb_trainer_free(trainer);
  call_plumb_model_free(model);
  call_plumb_spec_free(spec);
  call_plumb_runtime_free(runtime);
  return info.loss;
}

int main(int argc, char** argv) {
  double loss = 0;
  int round, i;
  if (argc != 3) Fail("usage: copies_host LIBRARY COPY");
  for (round = 0; round < 3; ++round) {
    void* libraries[2];
    for (i = 0; i < 2; ++i) libraries[i] = Load(argv[1 + i]);
    if (dlsym(libraries[0], "plumb_version") == dlsym(libraries[1], "plumb_version")) {
      Fail("the second file was not loaded beside the first");
    }
    for (i = 0; i < 4; ++i) {
      const double own = Train(libraries[i % 2]);
      if (loss == 0) loss = own;
      if (own != loss) Fail("the two copies compute different losses");
    }
    for (i = 0; i < 2; ++i) {
      if (dlclose(libraries[i]) != 0) Fail(dlerror());
    }
  }
  printf("loss %.3f\n", loss);
  return 0;
}
