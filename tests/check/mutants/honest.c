/* Nothing is spoilt: passes every check. */
#include "base_norm.h"
