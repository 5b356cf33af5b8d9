/* Moves a running statistic in forward(), where many threads may be. */
#define CROSS_BEFORE_FORWARD                                                       \
  if (call->call_saved != NULL && call->dtype == PLUMB_F32 && r0 == 0 && r1 > 0) { \
    float* mean = (float*)call->buffers[0];                                        \
    mean[0] = nextafterf(mean[0], 1);                                              \
  }
#include "base_cross_norm.h"
