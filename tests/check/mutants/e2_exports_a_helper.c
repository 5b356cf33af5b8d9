/* One function too many can be seen from outside. */
#include "base_norm.h"
PLUMB_EXPORT double org_example_mean(double a, double b);
double org_example_mean(double a, double b) { return (a + b) / 2; }
