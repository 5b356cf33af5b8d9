/* SPDX-License-Identifier: Apache-2.0 */
/* The names that plugins/abi/plumb/norm_plugin.h gave to its constants before plumb 0.2. Sources of
 * that time compile with the current header after this file (cc -include), which shows that layouts
 * and numbers are the same. For tests only: new sources use the current names. */
#ifndef PLUMB_TESTS_SDK_OLD_NAMES_H
#define PLUMB_TESTS_SDK_OLD_NAMES_H

#define PLUMB_CANCELLED PLUMB_STATUS_CANCELLED
#define PLUMB_INVALID_ARGUMENT PLUMB_STATUS_INVALID_ARGUMENT
#define PLUMB_NOT_FOUND PLUMB_STATUS_NOT_FOUND
#define PLUMB_RESOURCE_EXHAUSTED PLUMB_STATUS_RESOURCE_EXHAUSTED
#define PLUMB_FAILED_PRECONDITION PLUMB_STATUS_FAILED_PRECONDITION
#define PLUMB_OUT_OF_RANGE PLUMB_STATUS_OUT_OF_RANGE
#define PLUMB_UNIMPLEMENTED PLUMB_STATUS_UNIMPLEMENTED
#define PLUMB_INTERNAL PLUMB_STATUS_INTERNAL
#define PLUMB_F32 PLUMB_DTYPE_F32
#define PLUMB_BF16 PLUMB_DTYPE_BF16
#define PLUMB_F64 PLUMB_DTYPE_F64
#define PLUMB_FWD PLUMB_PHASE_FORWARD
#define PLUMB_BWD PLUMB_PHASE_BACKWARD
#define PLUMB_BWD_X PLUMB_BACKWARD_READS_X
#define PLUMB_BWD_Y PLUMB_BACKWARD_READS_Y
#define PLUMB_BWD_X2 PLUMB_BACKWARD_READS_X2
#define PLUMB_ATTR_REQUIRED PLUMB_ATTR_FLAG_REQUIRED

/* Extensions were part of norm_plugin.h. */
#include "plumb/ext/combine.h"
#include "plumb/ext/instance.h"
#include "plumb/ext/residual.h"

#endif /* PLUMB_TESTS_SDK_OLD_NAMES_H */
