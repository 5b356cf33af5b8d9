/* Linked with -ffast-math: a constructor switches denormals off, for the whole thread. */
#include "base_norm.h"
