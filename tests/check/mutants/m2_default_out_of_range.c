/* The schema forbids what it gives by default. */
#define BASE_EPS_MAX 1e-9
#define BASE_EPS_IS_LEGAL(eps) (((eps) >= 0 && (eps) <= 1e-9) || (eps) == 1e-6)
#include "base_norm.h"
