/* Its own function has the name of one that every process has. */
#include "base_norm.h"
PLUMB_EXPORT double hypot(double a, double b);
double hypot(double a, double b) { return a + b; }
