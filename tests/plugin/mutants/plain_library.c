/* SPDX-License-Identifier: Apache-2.0 */
/* A shared library that is unrelated to plumb. */
int plain_library(void);
int plain_library(void) { return 42; }
