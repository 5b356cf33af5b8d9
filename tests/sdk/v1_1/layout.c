/* SPDX-License-Identifier: Apache-2.0 */
/* Fields that norm ABI 1.1 added to the layout of 1.0 (../v1/layout.c), on a 64-bit machine. They are
 * fixed for ever. A struct may grow after its last field here, but nothing may move. */
#include <stddef.h>

#include "plumb/norm_plugin.h"

#define AT(type, field, offset) \
  _Static_assert(offsetof(type, field) == offset, #type "." #field " moved");
#define SIZE(type, size) _Static_assert(sizeof(type) >= size, #type " shrank");
#define IS(name, value) _Static_assert((unsigned)name == value, #name " has another value");

AT(plumb_fill_call, struct_size, 0)
AT(plumb_fill_call, tensor, 4)
AT(plumb_fill_call, seed, 8)
AT(plumb_fill_call, elements, 16)
AT(plumb_fill_call, values, 24)
AT(plumb_fill_call, err, 32)
AT(plumb_fill_call, err_cap, 40)
SIZE(plumb_fill_call, 48)

AT(plumb_tensor_def, fill, 80)
SIZE(plumb_tensor_def, 88)

AT(plumb_norm_layout, max_chunks, 64)
AT(plumb_norm_layout, reserved, 68)
AT(plumb_norm_layout, heads, 72)
AT(plumb_norm_layout, context_wants, 76)
SIZE(plumb_norm_layout, 80)

AT(plumb_norm_call, x2, 168)
AT(plumb_norm_call, x2_pitch, 176)
AT(plumb_norm_call, dx2, 184)
AT(plumb_norm_call, dx2_pitch, 192)
AT(plumb_norm_call, context, 200)
SIZE(plumb_norm_call, 208)

AT(plumb_norm_context, struct_size, 0)
AT(plumb_norm_context, rows_per_token, 4)
AT(plumb_norm_context, positions, 8)
AT(plumb_norm_context, step, 16)
AT(plumb_norm_context, n_sequences, 24)
AT(plumb_norm_context, sequence_offsets, 32)
SIZE(plumb_norm_context, 40)

AT(plumb_host, heads, 32)
AT(plumb_host, reserved, 36)
SIZE(plumb_host, 40)

IS(PLUMB_INIT_FILL, 5)
IS(PLUMB_NORM_TWO_INPUTS, 1u << 19)
IS(PLUMB_BWD_X2, 1u << 2)
IS(PLUMB_CONTEXT_POSITIONS, 1u << 0)
IS(PLUMB_CONTEXT_STEP, 1u << 1)
