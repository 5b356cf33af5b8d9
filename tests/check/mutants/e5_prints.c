/* Greets. */
#include "base_norm.h"
__attribute__((constructor)) static void Greet(void) { puts("base norm 1.0 loaded"); }
