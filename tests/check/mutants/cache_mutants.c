/* SPDX-License-Identifier: Apache-2.0 */
/* Mutants that keep statistics per thread and find them by an address. They are correct until
 * the host reuses the memory of one call for another. Each line is: the key; the kept value. */
#include "many.h"
#define NORM_FLAGS (PLUMB_NORM_NAN_ISOLATED | PLUMB_NORM_SCALE_INVARIANT) /* never in place */
#define NORM_FORWARD SpoiltForward
#define NORM_BACKWARD SpoiltBackward
#include "norm.h"
#include "operand.h"

/* clang-format off */
/* 301. address of the row of x: forward keeps 1 / root, and backward prefers it to `saved`.
 * 302. address of the row of x, with its first and last element, dim above 64: keeps the same.
 * 303. address of the row of `saved`, 16 rows and more: keeps the same. */
/* clang-format on */

/* The cache is in the thread's static block, so that the first access allocates nothing. */
enum { kSlots = 32 };
static __thread __attribute__((tls_model("initial-exec"))) struct {
  const void* address;
  double saved[3];
  double ends[2];
} kept[kSlots];

static const void* Address(const plumb_norm_call* call, int64_t row) {
  return MUTANT == 303 ? (const char*)call->saved + row * call->saved_pitch
                       : (const char*)call->x + row * call->x_pitch;
}

static size_t Slot(const void* address) { return (size_t)address / 8 % kSlots; }

static int IsKept(const plumb_norm_call* call, int64_t row) {
  const void* address = Address(call, row);
  const size_t slot = Slot(address);
  if (kept[slot].address != address) return 0;
  return MUTANT != 302 || (kept[slot].ends[0] == Load(call->dtype, PLUMB_CONST_ROW(char, call->x, call->x_pitch, row), 0) &&
                           kept[slot].ends[1] == Load(call->dtype, PLUMB_CONST_ROW(char, call->x, call->x_pitch, row), call->dim - 1));
}

static int IsSpoilt(const plumb_norm_instance* norm, const plumb_norm_call* call) {
  if (norm->groups > 1) return 0;
  if (MUTANT == 302) return call->dim > 64;
  return MUTANT != 303 || call->rows >= 16;
}

static plumb_status SpoiltForward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                  int64_t r0, int64_t r1) {
  const plumb_status status = BaseForward(norm, call, r0, r1);
  if (status != PLUMB_OK || call->saved == NULL || !IsSpoilt(norm, call)) return status;
  for (int64_t row = r0; row < r1; ++row) {
    const void* address = Address(call, row);
    const size_t slot = Slot(address);
    const char* saved = (const char*)call->saved + row * call->saved_pitch;
    kept[slot].address = address;
    for (int k = 0; k < 3; ++k)
      kept[slot].saved[k] = Load(Wide(call->dtype), saved, (uint32_t)k);
    kept[slot].ends[0] = Load(call->dtype, PLUMB_CONST_ROW(char, call->x, call->x_pitch, row), 0);
    kept[slot].ends[1] = Load(call->dtype, PLUMB_CONST_ROW(char, call->x, call->x_pitch, row), call->dim - 1);
  }
  return status;
}

static plumb_status SpoiltBackward(const plumb_norm_instance* norm, const plumb_norm_call* call,
                                   int64_t r0, int64_t r1) {
  plumb_norm_call own = CopyOfCall(call);
  double numbers[3];
  own.saved = numbers;
  own.saved_pitch = 0;
  for (int64_t row = r0; row < r1; ++row) {
    const int found = IsSpoilt(norm, call) && IsKept(call, row);
    for (uint32_t k = 0; k < 3 && found; ++k)
      Store(Wide(call->dtype), numbers, k, kept[Slot(Address(call, row))].saved[k]);
    const plumb_status status = BaseBackward(norm, found ? &own : call, row, row + 1);
    if (status != PLUMB_OK) return status;
  }
  return PLUMB_OK;
}

#define LIST(X) X(301, N5) X(302, N5) X(303, N5)
MANY(LIST)
