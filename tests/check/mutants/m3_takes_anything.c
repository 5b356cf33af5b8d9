/* Relies on the host alone. */
#define BASE_EPS_IS_LEGAL(eps) ((eps) == (eps) || (eps) != (eps))
#include "base_norm.h"
