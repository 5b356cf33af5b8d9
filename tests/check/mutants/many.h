/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one library of many norms, at most 64, out of a source that has one norm with a bug for
 * each value of MUTANT:
 *
 *   #include "many.h"
 *   ... the norm, whose entry returns it for index 0 ...
 *   #define LIST(X) X(1, N2) X(2, M2 warn) X(3, free)
 *   MANY(LIST)
 *
 * Each item has the number and the check that finds the mutant: it fails, or warns. A free mutant
 * need not be found, because the contract leaves the choice to an author, or because no check can
 * know the right result. The norms are called org.example.m1 and so on; their vendor is the check.
 * MUTANT is a variable of the thread, which every function of the table sets. */
#ifndef PLUMB_TESTS_CHECK_MUTANTS_MANY_H_
#define PLUMB_TESTS_CHECK_MUTANTS_MANY_H_

#include <stdlib.h>
#include <string.h>

#include "plumb/ext/combine.h"
#include "plumb/ext/instance.h"
#include "plumb/ext/residual.h"
#include "plumb/norm_plugin.h"

static __thread __attribute__((tls_model("initial-exec"))) int many_mutant;
#define MUTANT many_mutant
#define IS(n) (MUTANT == (n))
#ifndef MANY_FLAGS /* flags of mutant n whose norm has `flags` */
#define MANY_FLAGS(n, flags) (flags)
#endif

#define plumb_norm_plugin_v1 HonestEntry
#undef PLUMB_NORM_NOTE
#define PLUMB_NORM_NOTE(ID) PLUMB_STATIC_ASSERT(1, "the notes are those of MANY")

const plumb_norm_plugin* HonestEntry(uint32_t index);

typedef struct { /* an instance */
  int mutant;
  plumb_norm_instance* inner;
} Many;

#define ENTER(instance)                           \
  const Many* many = (const Many*)(instance);     \
  const plumb_norm_plugin* norm = HonestEntry(0); \
  many_mutant = many->mutant;                     \
  (void)norm

static plumb_status ManyCreate(int mutant, const plumb_host* host, uint32_t dim,
                               const plumb_attr_value* values, plumb_norm_instance** out,
                               char* err, size_t cap) {
  plumb_norm_instance* inner = *out;
  plumb_status status;
  Many* many;
  many_mutant = mutant;
  status = HonestEntry(0)->create(host, dim, values, &inner, err, cap);
  if (status != PLUMB_OK) {
    if (inner != *out) *out = inner;
    return status;
  }
  many = (Many*)malloc(sizeof(*many));
  if (many == NULL) {
    HonestEntry(0)->destroy(inner);
    return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  }
  many->mutant = mutant;
  many->inner = inner;
  *out = (plumb_norm_instance*)many;
  return PLUMB_OK;
}

static void ManyDestroy(plumb_norm_instance* instance) {
  ENTER(instance);
  norm->destroy(many->inner);
  free(instance);
}

static plumb_status ManyLayout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  ENTER(instance);
  return norm->layout(many->inner, out);
}

static plumb_status ManyForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                int64_t r0, int64_t r1) {
  ENTER(instance);
  return norm->forward(many->inner, call, r0, r1);
}

static plumb_status ManyBackward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                 int64_t r0, int64_t r1) {
  ENTER(instance);
  return norm->backward(many->inner, call, r0, r1);
}

static plumb_status ManyPartial(const plumb_norm_instance* instance, uint32_t phase,
                                const plumb_norm_call* call, int64_t r0, int64_t r1,
                                void* partial) {
  ENTER(instance);
  return norm->stats_partial(many->inner, phase, call, r0, r1, partial);
}

static void ManyStatsCombine(const plumb_norm_instance* instance, uint32_t phase,
                             const plumb_norm_call* call, void* acc, const void* partial) {
  ENTER(instance);
  norm->stats_combine(many->inner, phase, call, acc, partial);
}

static plumb_status ManyFinalize(const plumb_norm_instance* instance, uint32_t phase,
                                 const plumb_norm_call* call, void* acc) {
  ENTER(instance);
  return norm->stats_finalize(many->inner, phase, call, acc);
}

static plumb_status ManyCombine(const plumb_norm_instance* instance, uint32_t phase,
                                const plumb_norm_call* call, void* acc, const void* partial) {
  ENTER(instance);
  return ((const plumb_norm_combine*)norm->get_extension(PLUMB_EXT_COMBINE))
      ->combine(many->inner, phase, call, acc, partial);
}

static plumb_status ManyResidualForward(const plumb_norm_instance* instance,
                                        const plumb_norm_call* call,
                                        const plumb_residual_call* residual, int64_t r0,
                                        int64_t r1) {
  ENTER(instance);
  return ((const plumb_norm_residual*)norm->get_extension(PLUMB_EXT_RESIDUAL))
      ->forward(many->inner, call, residual, r0, r1);
}

static plumb_status ManyResidualBackward(const plumb_norm_instance* instance,
                                         const plumb_norm_call* call,
                                         const plumb_residual_call* residual, int64_t r0,
                                         int64_t r1) {
  ENTER(instance);
  return ((const plumb_norm_residual*)norm->get_extension(PLUMB_EXT_RESIDUAL))
      ->backward(many->inner, call, residual, r0, r1);
}

/* No norm here has an extension for some of its instances only. */
static const void* ManyInstanceExtension(const plumb_norm_instance* instance, const char* id) {
  (void)instance, (void)id;
  return NULL;
}

static const void* ManyExtension(int mutant, const char* id) {
  static const plumb_norm_residual residual = {sizeof(residual), 0, ManyResidualForward,
                                               ManyResidualBackward};
  static const plumb_norm_combine combine = {sizeof(combine), 0, ManyCombine};
  static const plumb_norm_instance_extensions of_instance = {sizeof(of_instance), 0,
                                                             ManyInstanceExtension};
  many_mutant = mutant;
  if (HonestEntry(0)->get_extension == NULL || HonestEntry(0)->get_extension(id) == NULL)
    return NULL;
  return id[0] != 'p' || id[11] == 'r'   ? (const void*)&residual
         : id[11] == 'c' ? (const void*)&combine
                         : (const void*)&of_instance;
}

#define MANY_FUNCTIONS(N, CHECK)                                                                  \
  static plumb_status Create##N(const plumb_host* host, uint32_t dim,                             \
                                const plumb_attr_value* values, plumb_norm_instance** out,        \
                                char* err, size_t cap) {                                          \
    return ManyCreate(N, host, dim, values, out, err, cap);                                       \
  }                                                                                               \
  static const void* Extension##N(const char* id) { return ManyExtension(N, id); }
#define MANY_NOTE(N, CHECK)                                        \
  {6, 72, PLUMB_NORM_NOTE_TYPE, PLUMB_NORM_NOTE_OWNER,             \
   PLUMB_NORM_ABI_MAJOR, PLUMB_NORM_ABI_MINOR, "org.example.m" #N},
#define MANY_ROW(N, CHECK) {N, "org.example.m" #N, #CHECK, Create##N, Extension##N},

#define MANY(LIST)                                                                              \
  LIST(MANY_FUNCTIONS)                                                                          \
  static const plumb_norm_note many_notes[]                                                     \
      __attribute__((used, section(PLUMB_NORM_NOTE_SECTION), aligned(4))) = {LIST(MANY_NOTE)};  \
  static const struct {                                                                         \
    int mutant;                                                                                 \
    const char *id, *check;                                                                     \
    plumb_status (*create)(const plumb_host*, uint32_t, const plumb_attr_value*,                \
                           plumb_norm_instance**, char*, size_t);                               \
    const void* (*extension)(const char*);                                                      \
  } many_rows[] = {LIST(MANY_ROW)};                                                             \
  enum { kManyNorms = sizeof(many_rows) / sizeof(many_rows[0]) };                               \
  static plumb_norm_plugin many_norms[kManyNorms];                                              \
  __attribute__((constructor)) static void MakeNorms(void) {                                    \
    for (int i = 0; i < kManyNorms; ++i) {                                                      \
      plumb_norm_plugin* each = &many_norms[i];                                                 \
      memcpy(each, HonestEntry(0), sizeof(*each));                                              \
      each->id = many_rows[i].id;                                                               \
      each->vendor = many_rows[i].check;                                                        \
      each->flags = MANY_FLAGS(many_rows[i].mutant, each->flags);                               \
      each->create = many_rows[i].create;                                                       \
      each->destroy = ManyDestroy;                                                              \
      each->layout = ManyLayout;                                                                \
      each->forward = ManyForward;                                                              \
      each->backward = ManyBackward;                                                            \
      if (each->stats_partial != NULL) {                                                        \
        each->stats_partial = ManyPartial;                                                      \
        each->stats_combine = ManyStatsCombine;                                                 \
        each->stats_finalize = ManyFinalize;                                                    \
      }                                                                                         \
      if (each->get_extension != NULL) each->get_extension = many_rows[i].extension;            \
    }                                                                                           \
  }                                                                                             \
  PLUMB_EXPORT const plumb_norm_plugin* ManyEntry(uint32_t index) __asm__(PLUMB_NORM_ENTRY_SYMBOL); \
  const plumb_norm_plugin* ManyEntry(uint32_t index) {                                          \
    return index < kManyNorms ? &many_norms[index] : NULL;                                      \
  }

#endif /* PLUMB_TESTS_CHECK_MUTANTS_MANY_H_ */
