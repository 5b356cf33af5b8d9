/* Linked with libgomp. */
#include "base_norm.h"
