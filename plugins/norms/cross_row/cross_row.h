/* SPDX-License-Identifier: Apache-2.0 */
/* Framework of a norm with statistics over rows, shared by batch_norm.c and power_norm.c: it
 * includes the norm's file once for each element type, and defines the functions of the table,
 * which choose among the three versions.
 *
 * A norm's file includes this header while ELEMENT is not defined, after struct plumb_norm_instance
 * with a member `dim`, and with CROSS_ROW_FILE defined as its own name. The header includes the
 * file again with
 *   ELEMENT          the type of x, y, dy and dx
 *   SUM              the type of everything else
 *   LOAD, STORE      conversion of an element to SUM, and back
 *   FOR_TYPE(name)   the name of a function for this type
 * and the file then defines FOR_TYPE(kFunctions). */
#ifndef PLUMB_NORMS_CROSS_ROW_H_
#define PLUMB_NORMS_CROSS_ROW_H_

#include "plumb/norm_rows.h" /* for plumb_check_ranges */

/* Functions of the norm for one element type. */
typedef struct Functions {
  void (*partial)(const plumb_norm_instance*, uint32_t, const plumb_norm_call*, int64_t, int64_t,
                  void*);
  void (*combine)(size_t dim, uint32_t phase, void* acc, const void* partial);
  void (*finalize)(const plumb_norm_instance*, uint32_t, const plumb_norm_call*, const void* acc);
  void (*forward)(const plumb_norm_instance*, const plumb_norm_call*, int64_t, int64_t);
  void (*backward)(const plumb_norm_instance*, const plumb_norm_call*, int64_t, int64_t);
} Functions;

/* Compiles the loops over rows for three instruction sets; the loader chooses the one for this
 * machine. All give the same bits, as nothing is fused: -ffp-contract=off. */
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__)
#define HOT __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define HOT
#endif

/* Marks a loop with independent iterations, which the compiler cannot see: y may be x and dx may be
 * dy, but only with equal indices. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

#define ELEMENT float
#define SUM float
#define LOAD(element) (element)
#define STORE(sum) (sum)
#define FOR_TYPE(name) name##F32
#include CROSS_ROW_FILE
#undef ELEMENT
#undef LOAD
#undef STORE
#undef FOR_TYPE

#define ELEMENT plumb_bf16
#define LOAD(element) plumb_bf16_to_float(element)
#define STORE(sum) plumb_bf16_from_float(sum)
#define FOR_TYPE(name) name##BF16
#include CROSS_ROW_FILE
#undef ELEMENT
#undef SUM
#undef LOAD
#undef STORE
#undef FOR_TYPE

#define ELEMENT double
#define SUM double
#define LOAD(element) (element)
#define STORE(sum) (sum)
#define FOR_TYPE(name) name##F64
#include CROSS_ROW_FILE

static const Functions* FunctionsFor(const plumb_norm_call* call) {
  if (call->dtype == PLUMB_DTYPE_F32) return &kFunctionsF32;
  if (call->dtype == PLUMB_DTYPE_BF16) return &kFunctionsBF16;
  return call->dtype == PLUMB_DTYPE_F64 ? &kFunctionsF64 : NULL;
}

static plumb_status Forward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                            int64_t r0, int64_t r1) {
  const Functions* functions = FunctionsFor(call);
  if (functions == NULL) return PLUMB_STATUS_UNIMPLEMENTED;
  if (r0 < r1) functions->forward(instance, call, r0, r1);
  return PLUMB_OK;
}

static plumb_status Backward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                             int64_t r0, int64_t r1) {
  const Functions* functions = FunctionsFor(call);
  if (functions == NULL) return PLUMB_STATUS_UNIMPLEMENTED;
  if (r0 < r1) functions->backward(instance, call, r0, r1);
  return PLUMB_OK;
}

static plumb_status StatsPartial(const plumb_norm_instance* instance, uint32_t phase,
                                 const plumb_norm_call* call, int64_t r0, int64_t r1,
                                 void* partial) {
  const Functions* functions = FunctionsFor(call);
  if (functions == NULL) return PLUMB_STATUS_UNIMPLEMENTED;
  if (r0 < r1) functions->partial(instance, phase, call, r0, r1, partial);
  return PLUMB_OK;
}

static void StatsCombine(const plumb_norm_instance* instance, uint32_t phase,
                         const plumb_norm_call* call, void* acc, const void* partial) {
  const Functions* functions = FunctionsFor(call);
  if (functions != NULL) functions->combine(instance->dim, phase, acc, partial);
}

static plumb_status StatsFinalize(const plumb_norm_instance* instance, uint32_t phase,
                                  const plumb_norm_call* call, void* acc) {
  const Functions* functions = FunctionsFor(call);
  if (functions == NULL) return PLUMB_STATUS_UNIMPLEMENTED;
  functions->finalize(instance, phase, call, acc);
  return PLUMB_OK;
}

/* Returns a tensor of `dim` numbers, or a single number for dim 0. */
static plumb_tensor_def Tensor(const char* name, const char* doc, uint32_t init, uint32_t dim) {
  plumb_tensor_def tensor = {.name = name, .doc = doc, .dims = {dim}, .init = init, .lr_scale = 1};
  tensor.ndim = dim > 0;
  return tensor;
}

/* Initializer of an attribute from 0 to MAX. */
#define ATTR(NAME, TYPE, FIELD, MAX, DEFAULT, DOC) \
  { NAME, DOC, PLUMB_ATTR_##TYPE, 0, 0, MAX, {.FIELD = DEFAULT}, NULL }

#endif /* PLUMB_NORMS_CROSS_ROW_H_ */
