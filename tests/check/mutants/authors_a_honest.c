/* SPDX-License-Identifier: Apache-2.0 */
/* The correct norm of the mutants in authors_a_*.c. */
#include "authors_a_norm.h"
