/* Nothing says what the file is before its code runs. */
#define BASE_NOTE
#include "base_norm.h"
