/* SPDX-License-Identifier: Apache-2.0 */
/* The norm of softsign.c, for plumb_plugin_register(). */
#ifndef SOFTSIGN_H_
#define SOFTSIGN_H_

#include "plumb/norm_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const plumb_norm_plugin softsign_norm;

#ifdef __cplusplus
}
#endif

#endif /* SOFTSIGN_H_ */
