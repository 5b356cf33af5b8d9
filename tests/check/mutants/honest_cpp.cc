// SPDX-License-Identifier: Apache-2.0
/* Is the same correct norm, compiled as C++. */
extern "C" {
#include "norm.h"
}
