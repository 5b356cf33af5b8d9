/* Thinks for a while when it is loaded. */
#define _DEFAULT_SOURCE
#include <unistd.h>
#include "base_norm.h"
__attribute__((constructor)) static void Think(void) { usleep(130 * 1000); }
