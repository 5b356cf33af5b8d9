/* Claims that adding a number to x changes nothing, and does not take off the mean. */
#define BASE_FLAGS                                                         \
  (PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED | \
   PLUMB_NORM_SCALE_INVARIANT | PLUMB_NORM_SHIFT_INVARIANT)
#include "base_norm.h"
