/* Its doc is Latin-1. */
#define BASE_DOC "La moyenne des carr\xe9s."
#include "base_norm.h"
