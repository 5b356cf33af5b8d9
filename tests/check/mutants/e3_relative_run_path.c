/* Linked with -rpath lib, so that the working directory decides what is loaded. */
#include "base_norm.h"
