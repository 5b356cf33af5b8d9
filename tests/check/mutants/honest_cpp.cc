/* The same norm, as C++: nothing is spoilt. */
extern "C" {
#include "base_norm.h"
}
