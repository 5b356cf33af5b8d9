#define BASE_VERSION NULL
#include "base_norm.h"
