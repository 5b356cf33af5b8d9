/* SPDX-License-Identifier: Apache-2.0 */
/* Continues a text with a run of `plumb train` or `plumb import`: embed_run RUN TEXT
 *   cc main.c -o embed_run $(pkg-config --cflags --libs plumb) \
 *     -Wl,-rpath,$(pkg-config --variable=libdir plumb) */
#include <plumb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static plumb_error* error; /* of the last call that failed */

static void Must(plumb_status status) {
  if (status == PLUMB_OK) return;
  fprintf(stderr, "%s\n", plumb_error_message(error));
  exit(1);
}
static int32_t Print(void* decoder, int32_t token) {
  const char* text = NULL;
  Must(plumb_decoder_next(decoder, &token, 1, &text, NULL, &error));
  fputs(text, stdout);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: embed_run RUN TEXT\n"), 2;
  plumb_runtime* runtime = NULL;
  plumb_model* model = NULL;
  plumb_tokenizer* tokenizer = NULL;
  plumb_decoder* decoder = NULL;
  plumb_session* session = NULL;
  plumb_tokenizer_info special = PLUMB_TOKENIZER_INFO_INIT;
  int32_t* text = NULL;
  int64_t count = 0;
  plumb_sample_options options = PLUMB_SAMPLE_OPTIONS_INIT;
  Must(plumb_runtime_create(PLUMB_ABI_VERSION, NULL, &runtime, &error));
  Must(plumb_run_open(runtime, argv[1], 0, &model, &tokenizer, NULL, &error));
  Must(plumb_tokenizer_get_info(tokenizer, &special, &error));
  Must(plumb_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), &text, &count, &error));
  const int64_t n = special.prefix_count + count;
  int32_t* ids = malloc((size_t)(n + 1) * sizeof(*ids));
  if (ids == NULL) return 1;
  for (int64_t i = 0; i < n; ++i) {
    ids[i] = i < special.prefix_count ? special.prefix[i] : text[i - special.prefix_count];
  }
  Must(plumb_session_create(model, NULL, &session, &error));
  Must(plumb_session_feed(session, 0, ids, n, &error));
  Must(plumb_decoder_create(tokenizer, ids, n, &decoder, &error));
  options.temperature = 0;
  options.end_tokens = special.end_tokens;
  options.end_token_count = special.end_token_count;
  fputs(argv[2], stdout);
  Must(plumb_session_generate(session, 0, &options, Print, decoder, &error));
  puts("");
  return 0;
}
