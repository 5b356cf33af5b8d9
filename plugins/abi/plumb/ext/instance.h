/* SPDX-License-Identifier: Apache-2.0 */
/* plumb/ext/instance.h: the extension "plumb.norm.instance/1" [1.1], extensions of one
 * instance. Optional for norms and hosts; final like every extension. */
#ifndef PLUMB_EXT_INSTANCE_H
#define PLUMB_EXT_INSTANCE_H

#include "plumb/norm_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Extensions that depend on the configuration. get_extension(PLUMB_EXT_INSTANCE) returns a
 * plumb_norm_instance_extensions. An instance has only those extensions that its function returns,
 * even if the norm's get_extension returns more. Other hosts use the norm's get_extension, so there
 * a norm offers only what all of its instances can do. */
#define PLUMB_EXT_INSTANCE "plumb.norm.instance/1"
typedef struct plumb_norm_instance_extensions {
  uint32_t struct_size;
  uint32_t reserved;
  /* [any-thread] Returns an extension of the instance, or NULL. It lives as long as the instance.
   */
  const void* (*get)(const plumb_norm_instance* instance, const char* id);
} plumb_norm_instance_extensions;

#if UINTPTR_MAX == 0xffffffffffffffffu
PLUMB_STATIC_ASSERT(sizeof(plumb_norm_instance_extensions) == 16, "plumb_norm_instance_extensions");
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PLUMB_EXT_INSTANCE_H */
