/* Takes over a signal. */
#include <signal.h>
#include "base_norm.h"
__attribute__((constructor)) static void Install(void) { signal(SIGUSR1, SIG_IGN); }
