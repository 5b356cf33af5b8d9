/* SPDX-License-Identifier: Apache-2.0 */
/* plumb/types.h: statuses, element types and log levels, which plumb.h and plumb/norm_plugin.h
 * share. C99 and C++. May be copied with the other headers of this folder. */
#ifndef PLUMB_TYPES_H
#define PLUMB_TYPES_H

#include <stdint.h>

/* Checks a constant condition when the file is compiled; C99 has no such check. */
#if defined(__cplusplus)
#define PLUMB_STATIC_ASSERT(condition, text) static_assert(condition, text)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define PLUMB_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#else
#define PLUMB_STATIC_ASSERT(condition, text) struct plumb_static_assert_needs_c11
#endif

/* Status of a call, with the numbers of absl::StatusCode and of gRPC. PLUMB_OK is the one
 * enumerator without the prefix of its group, because most code compares with it. */
typedef int32_t plumb_status;
enum {
  PLUMB_OK = 0,
  PLUMB_STATUS_CANCELLED = 1,        /* stopped by a callback or by plumb_..._cancel */
  PLUMB_STATUS_INVALID_ARGUMENT = 3, /* an error in a text, an option or an argument */
  PLUMB_STATUS_NOT_FOUND = 5,        /* no such file, plugin, ... */
  PLUMB_STATUS_ALREADY_EXISTS = 6,
  PLUMB_STATUS_PERMISSION_DENIED = 7,
  PLUMB_STATUS_RESOURCE_EXHAUSTED = 8,  /* memory, disk space, a limit of the process */
  PLUMB_STATUS_FAILED_PRECONDITION = 9, /* not allowed in this state of the handle */
  PLUMB_STATUS_ABORTED = 10,            /* a training step diverged */
  PLUMB_STATUS_OUT_OF_RANGE = 11,       /* no such index, or a sequence longer than the context */
  PLUMB_STATUS_UNIMPLEMENTED = 12,
  PLUMB_STATUS_INTERNAL = 13,    /* a bug in plumb, or in a norm */
  PLUMB_STATUS_UNAVAILABLE = 14, /* the system, the network or another rank failed */
  PLUMB_STATUS_DATA_LOSS = 15    /* a damaged file */
};

/* Element types. Each is one bit, so that sets are sums. */
enum {
  PLUMB_DTYPE_F32 = 1u << 0,
  PLUMB_DTYPE_BF16 = 1u << 1, /* the upper half of an f32 */
  PLUMB_DTYPE_F64 = 1u << 2,
  PLUMB_DTYPE_F16 = 1u << 3 /* IEEE 754 binary16; in files only */
};

/* Levels of messages for a log. */
enum { PLUMB_LOG_INFO = 0, PLUMB_LOG_WARNING = 1, PLUMB_LOG_ERROR = 2 };

#endif /* PLUMB_TYPES_H */
