/* SPDX-License-Identifier: Apache-2.0 */
/* A host program in C99 that uses only plumb.h: describes, trains and samples a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plumb.h"

static const char kModel[] =
    "n_layer: 2 n_head: 2 d_model: 16 context_length: 12\n"
    "block { placement: \"pre\" norm: \"rms_norm\" }\n";
static const char kRecipe[] = "max_steps: 200 batch_size: 4 learning_rate: 0.01";
static const char kText[] = "the quick brown fox jumps over the lazy dog";
enum { kSeq = 12, kPrompt = 3 };

static int32_t* ids;
static int64_t count;
static plumb_tokenizer* tokenizer;
static plumb_decoder* decoder;
static plumb_error* error;

static int32_t FillBatch(void* user, int64_t step, int32_t* inputs, int32_t* targets, int64_t n) {
  (void)user;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = (step * 7 + i / kSeq * 11) % (count - kSeq) + i % kSeq;
    inputs[i] = ids[at];
    targets[i] = ids[at + 1];
  }
  return 0;
}

static int32_t PrintLoss(void* user, const plumb_step_info* info) {
  (void)user;
  if (info->step % 50 == 0) printf("step %d loss %.3f\n", (int)info->step, info->loss);
  return 0;
}

static int32_t PrintToken(void* user, int32_t token) {
  const char* text = NULL;
  size_t size = 0;
  (void)user;
  if (plumb_decoder_next(decoder, &token, 1, &text, &size, NULL) != PLUMB_OK) return 1;
  fwrite(text, 1, size, stdout);
  fflush(stdout);
  return 0;
}

/* Exits with the message in `error` if a call failed. */
static void Must(plumb_status status) {
  if (status == PLUMB_OK) return;
  fprintf(stderr, "%s\n", plumb_error_message(error));
  plumb_error_free(error);
  exit(1);
}

int main(void) {
  plumb_runtime* runtime = NULL;
  plumb_spec* spec = NULL;
  plumb_model* model = NULL;
  Must(plumb_runtime_create(PLUMB_ABI_VERSION, NULL, &runtime, &error));
  Must(plumb_tokenizer_create(PLUMB_TOKENIZER_CHARACTERS, kText, strlen(kText), 0, &tokenizer,
                              &error));
  Must(plumb_tokenizer_encode(tokenizer, kText, strlen(kText), &ids, &count, &error));
  Must(plumb_spec_from_text(kModel, "main.c", &spec, &error));
  plumb_tokenizer_info words = PLUMB_TOKENIZER_INFO_INIT;
  Must(plumb_tokenizer_get_info(tokenizer, &words, &error));
  char number[16];
  snprintf(number, sizeof(number), "%d", (int)words.vocab_size);
  Must(plumb_spec_set(spec, "vocab_size", number, &error));
  Must(plumb_model_create(runtime, spec, &model, &error));
  Must(plumb_model_init(model, 1, &error));
  plumb_trainer* trainer = NULL;
  plumb_trainer_options training = PLUMB_TRAINER_OPTIONS_INIT;
  training.recipe = kRecipe;
  Must(plumb_trainer_create(model, &training, &trainer, &error));
  Must(plumb_trainer_run(trainer, FillBatch, PrintLoss, NULL, &error));
  plumb_session* session = NULL;
  Must(plumb_session_create(model, NULL, &session, &error));
  /* Handles may be freed in any order: the session keeps what it needs. */
  plumb_runtime_free(runtime);
  plumb_spec_free(spec);
  plumb_trainer_free(trainer);
  plumb_model_free(model);
  Must(plumb_session_feed(session, 0, ids, kPrompt, &error));
  Must(plumb_decoder_create(tokenizer, ids, kPrompt, &decoder, &error));
  printf("%.*s", (int)kPrompt, kText);
  plumb_sample_options sampling = PLUMB_SAMPLE_OPTIONS_INIT;
  sampling.temperature = 0;
  sampling.max_tokens = 9;
  Must(plumb_session_generate(session, 0, &sampling, PrintToken, NULL, &error));
  const char* rest = NULL;
  Must(plumb_decoder_finish(decoder, &rest, NULL, &error));
  puts(rest);
  plumb_session_free(session);
  plumb_tokenizer_free(tokenizer);
  plumb_decoder_free(decoder);
  plumb_free(ids);
  return 0;
}
