// SPDX-License-Identifier: Apache-2.0
/* The same norm, as C++: nothing is spoilt. */
extern "C" {
#include "base_norm.h"
}
