/* SPDX-License-Identifier: Apache-2.0 */
/* plumb/ext/combine.h: the extension "plumb.norm.combine/1" [1.1], statistics whose
 * combination can fail. Optional for norms and hosts; final like every extension. */
#ifndef PLUMB_EXT_COMBINE_H
#define PLUMB_EXT_COMBINE_H

#include "plumb/norm_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* stats_combine that can fail. get_extension(PLUMB_EXT_COMBINE) returns a plumb_norm_combine. A
 * host that knows it calls its function instead of stats_combine, which serves other hosts.
 * Cross-row norms only. */
#define PLUMB_EXT_COMBINE "plumb.norm.combine/1"
typedef struct plumb_norm_combine {
  uint32_t struct_size;
  uint32_t reserved;
  /* [hot] Like plumb_norm_plugin.stats_combine. On failure the whole call fails, the content of
   * `acc` no longer matters, and call->err may hold a message. */
  plumb_status (*combine)(const plumb_norm_instance* instance, uint32_t phase,
                          const plumb_norm_call* call, void* acc, const void* partial);
} plumb_norm_combine;

#if UINTPTR_MAX == 0xffffffffffffffffu
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_combine) == 16, "plumb_norm_combine");
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMB_EXT_COMBINE_H */
