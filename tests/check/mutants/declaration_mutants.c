/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants of a norm's declarations (checks M1 to M6). MUTANT_NAME selects one; mutants.txt lists
   them. */

#ifdef MUTANT_m1_no_version
#define BASE_VERSION NULL
#include "base_norm.h"
#endif

#ifdef MUTANT_m1_not_utf8
/* The doc is Latin-1, not UTF-8. */
#define BASE_DOC "La moyenne des carr\xe9s."
#include "base_norm.h"
#endif

#ifdef MUTANT_m1_index_out_of_range
/* Treats large indices like small ones. */
#define BASE_HAS_ENTRY_OF_ITS_OWN
#include "base_norm.h"
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return (index & 0xff) == 0 || index == 1000 ? &base_norm : NULL;
}
#endif

#ifdef MUTANT_m1_another_pointer
/* Returns a copy of its table the second time. */
#define BASE_HAS_ENTRY_OF_ITS_OWN
#include "base_norm.h"
static plumb_norm_plugin copy;
static int calls;
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  if (index != 0) return NULL;
  copy = base_norm;
  return calls++ == 0 ? &base_norm : &copy;
}
#endif

#ifdef MUTANT_m1_two_norms_one_id
#define BASE_HAS_ENTRY_OF_ITS_OWN
#include "base_norm.h"
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index < 2 ? &base_norm : NULL;
}
#endif

#ifdef MUTANT_m1_no_backward
/* A mandatory function is missing. */
#define BASE_HAS_ENTRY_OF_ITS_OWN
#include "base_norm.h"
static plumb_norm_plugin half;
const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  if (index != 0) return NULL;
  half = base_norm;
  half.backward = NULL;
  return &half;
}
#endif

#ifdef MUTANT_m2_default_out_of_range
/* The schema forbids the default value. */
#define BASE_EPS_MAX 1e-9
#include "base_norm.h"
#endif

#ifdef MUTANT_m2_no_doc
#define BASE_ATTR_DOC ""
#include "base_norm.h"
#endif

#ifdef MUTANT_m2_refuses_its_max
/* The schema allows 1, but create() refuses it. */
#define BASE_REFUSES_EPS(eps) ((eps) == 1)
#include "base_norm.h"
#endif

#ifdef MUTANT_m3_another_status
/* Refuses a dim with another status than INVALID_ARGUMENT. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"
static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  if (dim != 1000) return BaseCreate(host, dim, values, out, err, cap);
  if (cap > 0) snprintf(err, cap, "dim is 1000");
  return PLUMB_STATUS_FAILED_PRECONDITION;
}
#endif

#ifdef MUTANT_m3_no_words
/* Refuses a dim without a message. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"
static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  if (dim != 1000) return BaseCreate(host, dim, values, out, err, cap);
  if (cap > 0) err[0] = '\0';
  return PLUMB_STATUS_INVALID_ARGUMENT;
}
#endif

#ifdef MUTANT_m4_two_layouts
/* The needs of an instance with one dim depend on the number of earlier instances. */
#define BASE_LAYOUT SpoiltLayout
#include "base_norm.h"
static plumb_status SpoiltLayout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  static size_t calls;
  const plumb_status status = BaseLayout(instance, out);
  if (instance->dim == 3) out->scratch_bytes = calls++ % 2 * 64;
  return status;
}
#endif

#ifdef MUTANT_m4_no_learning_rate
/* The factor on the learning rate is NaN. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"
static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  const plumb_status status = BaseCreate(host, dim, values, out, err, cap);
  if (status == PLUMB_OK) (*out)->weight.lr_scale = NAN;
  return status;
}
#endif

#ifdef MUTANT_m4_statistics_without_flag
/* Declares numbers saved per call, which only a cross-row norm may have. */
#define BASE_LAYOUT SpoiltLayout
#include "base_norm.h"
static plumb_status SpoiltLayout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  const plumb_status status = BaseLayout(instance, out);
  out->partial_elems = 3;
  return status;
}
#endif

#ifdef MUTANT_m5_exact_size
/* Works only with the host that it was compiled for. */
#define BASE_FORWARD SpoiltForward
#include "base_norm.h"
static plumb_status SpoiltForward(const plumb_norm_instance* instance, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  if (call->struct_size != sizeof(plumb_norm_call)) return PLUMB_STATUS_INVALID_ARGUMENT;
  return BaseForward(instance, call, r0, r1);
}
#endif

#ifdef MUTANT_m5_clears_the_tail
/* Writes into fields of the host's layout that did not exist when it was compiled. */
#define BASE_LAYOUT SpoiltLayout
#include "base_norm.h"
static plumb_status SpoiltLayout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  const uint32_t size = out->struct_size;
  memset(out, 0, size);
  out->struct_size = size;
  return BaseLayout(instance, out);
}
#endif

#ifdef MUTANT_m5_any_extension
/* Returns an extension for every name. */
#define BASE_GET_EXTENSION SpoiltGetExtension
#include "base_norm.h"
static const void* SpoiltGetExtension(const char* id) {
  return strcmp(id, PLUMB_EXT_RESIDUAL) == 0 ? NULL : &base_norm;
}
#endif

#ifdef MUTANT_m5_needs_an_older_host
/* Refuses hosts that are newer than itself. */
#define BASE_CREATE SpoiltCreate
#include "base_norm.h"
static plumb_status SpoiltCreate(const plumb_host* host, uint32_t dim,
                                 const plumb_attr_value* values, plumb_norm_instance** out,
                                 char* err, size_t cap) {
  if (host->struct_size > sizeof(*host)) return PLUMB_STATUS_FAILED_PRECONDITION;
  return BaseCreate(host, dim, values, out, err, cap);
}
#endif

#ifdef MUTANT_m6_fill_remembers_the_seed
/* fill continues the random sequence of the previous call, so that the same seed gives other
   values.
 */
#include "plumb/norm_plugin.h"
static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call);
#define FillA(norm, call) HonestFill(norm, call)
#include "tests/sdk/v1_1/old_names.h"
#include "tests/sdk/v1_1/adaptive_norm.c"
#undef FillA

static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call) {
  static uint64_t before;
  plumb_fill_call mine = *call;
  if (before != 0 && before != call->seed) mine.seed += before;
  before = call->seed;
  return HonestFill(norm, &mine);
}
#endif

#ifdef MUTANT_m6_fill_divides_by_zero
/* fill is not finite if the seed is the largest one. */
#include "plumb/norm_plugin.h"
static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call);
#define FillA(norm, call) HonestFill(norm, call)
#include "tests/sdk/v1_1/old_names.h"
#include "tests/sdk/v1_1/adaptive_norm.c"
#undef FillA

static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call) {
  const plumb_status status = HonestFill(norm, call);
  const float scale = 1 / (float)(call->seed + 1);
  for (int64_t i = 0; i < call->elements; ++i) call->values[i] += scale;
  return status;
}
#endif

#ifdef MUTANT_m6_fill_leaves_memory
/* fill allocates a table that is never freed. */
#include "plumb/norm_plugin.h"
static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call);
#define FillA(norm, call) HonestFill(norm, call)
#include "tests/sdk/v1_1/old_names.h"
#include "tests/sdk/v1_1/adaptive_norm.c"
#undef FillA

static plumb_status FillA(const plumb_norm_instance* norm, const plumb_fill_call* call) {
  const plumb_status status = HonestFill(norm, call);
  float* volatile table = (float*)malloc((size_t)call->elements * sizeof(float));
  if (table == NULL) return PLUMB_STATUS_RESOURCE_EXHAUSTED;
  for (int64_t i = 0; i < call->elements; ++i) table[i] = call->values[i] + 1;
  for (int64_t i = 0; i < call->elements; ++i) call->values[i] = table[i] - 1;
  return status;
}
#endif
