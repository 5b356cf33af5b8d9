#define BASE_ATTR_DOC ""
#include "base_norm.h"
