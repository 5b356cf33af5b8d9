/* Nothing is added to the mean square: a row of zeros is divided by zero. */
#define BASE_EPS_DEFAULT 0
#include "base_norm.h"
