/* The schema allows 1 and create() does not. */
#define BASE_EPS_IS_LEGAL(eps) ((eps) >= 0 && (eps) < 1)
#include "base_norm.h"
