/* The norm of the twins in authors_a_*.c as it is. */
#include "authors_a_norm.h"
