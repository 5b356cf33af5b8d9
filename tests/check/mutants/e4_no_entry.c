/* The note is there, the function is not. */
#define BASE_HAS_ENTRY_OF_ITS_OWN
#include "base_norm.h"
const plumb_norm_plugin* org_example_norm(void);
const plumb_norm_plugin* org_example_norm(void) { return &base_norm; }
