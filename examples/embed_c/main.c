/* A host in C99 that knows plumb.h and nothing else: describes, trains and samples a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plumb.h"

static const char kModel[] =
    "n_layer: 2 n_head: 2 d_model: 16 context_length: 12\n"
    "block { placement: \"pre\" norm: \"rms_norm\" }\n";
static const char kText[] = "the quick brown fox jumps over the lazy dog";

enum { kSeq = 12, kRows = 2 };

struct Data {
  const int32_t* ids;
  size_t count;
};

static int32_t FillBatch(void* user, int64_t step, int32_t* inputs, int32_t* targets, size_t n) {
  const struct Data* data = user;
  size_t row, i;
  for (row = 0; row * kSeq < n; ++row) {
    const size_t at = ((size_t)step * 7 + row * 11) % (data->count - kSeq);
    for (i = 0; i < kSeq; ++i) {
      inputs[row * kSeq + i] = data->ids[at + i];
      targets[row * kSeq + i] = data->ids[at + i + 1];
    }
  }
  return 0;
}

static int32_t KeepLoss(void* user, const plumb_step_info* info) {
  (void)user;
  if (info->step == 1 || info->step % 20 == 0)
    printf("step %d loss %.3f\n", (int)info->step, info->loss);
  return 0;
}

static int32_t PrintToken(void* user, int32_t token) {
  char text[8];
  if (plumb_tokenizer_decode(user, &token, 1, text, sizeof(text), NULL, NULL) == PLUMB_OK) {
    fputs(text, stdout);
  }
  return 0;
}

static void Must(plumb_status status, plumb_error* error) {
  if (status == PLUMB_OK) return;
  fprintf(stderr, "%s\n", plumb_error_message(error));
  plumb_error_free(error);
  exit(1);
}

int main(void) {
  static const char kRecipe[] = "max_steps: 60 batch_size: 2 learning_rate: 0.01";
  plumb_error* error = NULL;
  plumb_runtime* runtime = NULL;
  plumb_tokenizer* tokenizer = NULL;
  plumb_spec* spec = NULL;
  plumb_model* model = NULL;
  plumb_trainer* trainer = NULL;
  plumb_session* session = NULL;
  plumb_trainer_options options;
  plumb_sample_options sampling;
  int32_t ids[sizeof(kText)];
  struct Data data = {ids, 0};
  char number[16];

  Must(plumb_runtime_create(NULL, &runtime, &error), error);
  Must(plumb_tokenizer_create(PLUMB_CHARACTERS, kText, strlen(kText), 0, &tokenizer, &error),
       error);
  Must(plumb_tokenizer_encode(tokenizer, kText, strlen(kText), ids, sizeof(ids) / sizeof(*ids),
                              &data.count, &error),
       error);
  Must(plumb_spec_from_text(kModel, strlen(kModel), "host", &spec, &error), error);
  sprintf(number, "%d", (int)plumb_tokenizer_vocab_size(tokenizer));
  Must(plumb_spec_set(spec, "vocab_size", number, &error), error);
  Must(plumb_model_create(runtime, spec, &model, &error), error);
  Must(plumb_model_init(model, 1, &error), error);

  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.recipe = kRecipe;
  options.recipe_size = strlen(kRecipe);
  Must(plumb_trainer_create(model, &options, &trainer, &error), error);
  Must(plumb_trainer_run(trainer, FillBatch, KeepLoss, &data, &error), error);

  Must(plumb_session_create(model, NULL, &session, &error), error);
  /* In any order: the session keeps what it needs. */
  plumb_runtime_free(runtime);
  plumb_spec_free(spec);
  plumb_trainer_free(trainer);
  plumb_model_free(model);
  Must(plumb_session_feed(session, 0, ids, 3, &error), error);
  memset(&sampling, 0, sizeof(sampling));
  sampling.struct_size = sizeof(sampling);
  sampling.max_tokens = 8;
  sampling.greedy = 1;
  Must(plumb_session_generate(session, 0, &sampling, PrintToken, tokenizer, &error), error);
  putchar('\n');
  plumb_session_free(session);
  plumb_tokenizer_free(tokenizer);
  return 0;
}
