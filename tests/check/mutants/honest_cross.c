/* Nothing is spoilt: passes every check. */
#include "base_cross_norm.h"
