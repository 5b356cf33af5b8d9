/* Calls a function that nobody has. */
#define BASE_DESTROY SpoiltDestroy
#include "base_norm.h"
void org_example_function_of_nobody(void);
static void SpoiltDestroy(plumb_norm_instance* instance) {
  org_example_function_of_nobody();
  BaseDestroy(instance);
}
