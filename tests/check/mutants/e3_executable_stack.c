/* Linked with -z execstack. */
#include "base_norm.h"
