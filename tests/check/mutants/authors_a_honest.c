/* SPDX-License-Identifier: Apache-2.0 */
/* The norm of the twins in authors_a_*.c as it is. */
#include "authors_a_norm.h"
