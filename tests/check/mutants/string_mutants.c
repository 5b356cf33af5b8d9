/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants that handle strings longer than their buffers. `word` selects a set of initial gains,
 * and `gains` lists some, of which the mean is taken. */
#include "many.h"
#define BASE_MORE_ATTRS                                                                     \
  {"word", "A word from which the initial gain is drawn.", PLUMB_ATTR_STRING, 0, 0, 0,      \
   {0, 0, ""}, NULL},                                                                       \
  {"gains", "Digits with commas between them: their mean is the initial gain.",             \
   PLUMB_ATTR_STRING, 0, 0, 0, {0, 0, "1"}, NULL},                                          \
  {"label", "A name that nothing depends on.", PLUMB_ATTR_STRING, 0, 0, 0, {0, 0, ""}, NULL},
#define BASE_MORE_ATTRS_COUNT 3
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"

/* clang-format off */
/* 310. `word` is truncated after 63 characters.
 * 311. `gains` is truncated after 255 characters.
 * 312. `label` is copied into a buffer of 40 characters and overwrites the memory after it.
 * 313. `label` is copied into an allocation of 100 characters and overwrites the memory after
 * it. */
/* clang-format on */

/* Copies at most cap - 1 characters. */
static void Copy(char* to, size_t cap, const char* from) {
  size_t n = 0;
  for (; from[n] != 0 && n + 1 < cap; ++n) to[n] = from[n];
  to[n] = 0;
}

static double GainOfWord(const char* word) {
  unsigned long long hash = 14695981039346656037u;
  for (; *word != 0; ++word) hash = (hash ^ (unsigned char)*word) * 1099511628211u;
  hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9u; /* the last letter changes all bits */
  return 1 + (double)(hash >> 40) / 16777216;
}

/* Returns the mean of the listed gains, or -1 if the text is not a list of digits. */
static double MeanGain(const char* gains) {
  double sum = 0;
  int count = 0;
  for (;; gains += 2) {
    if (gains[0] < '0' || gains[0] > '9') return -1;
    sum += gains[0] - '0';
    ++count;
    if (gains[1] == 0) return sum / count;
    if (gains[1] != ',') return -1;
  }
}

static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  static const size_t kAll = 1 << 20;
  struct {
    char label[40];
    volatile double factor;
  } own = {"", 1};
  char* text = (char*)malloc(kAll);
  volatile char* kept = NULL;
  plumb_status status;
  double gain;
  if (text == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  Copy(text, MUTANT == 310 ? 64 : kAll, values[1].s);
  gain = *text == 0 ? 1 : GainOfWord(text);
  Copy(text, MUTANT == 311 ? 256 : kAll, values[2].s);
  if (MUTANT == 311 && strlen(text) == 255 && text[254] == ',') text[254] = 0;
  gain *= MeanGain(text);
  free(text);
  if (gain <= 0) {
    if (cap > 0) snprintf(err, cap, "gains must be digits with commas between them, not all 0");
    return PLUMB_STATUS_INVALID_ARGUMENT;
  }
  if (MUTANT == 312) {
    volatile char* label = own.label;
    for (size_t n = 0; n <= strlen(values[3].s); ++n) label[n] = values[3].s[n];
  }
  if (MUTANT == 313) {
    kept = (volatile char*)malloc(100);
    if (kept == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
    for (size_t n = 0; n <= strlen(values[3].s); ++n) kept[n] = values[3].s[n];
  }
  status = BaseCreate(host, dim, values, out, err, cap);
  free((void*)kept);
  if (status != PLUMB_OK) return status;
  (*out)->weight.init = PLUMB_INIT_CONST;
  (*out)->weight.init_a = gain * own.factor;
  return PLUMB_OK;
}

#define LIST(X) X(0, none) X(310, free) X(311, free) X(312, R4) X(313, R4)
MANY(LIST)
