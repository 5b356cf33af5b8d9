/* A plugin for a norm ABI of the future. */
#include "plumb/norm_plugin.h"
#define BASE_NOTE                                                             \
  static const plumb_norm_note future                                         \
      __attribute__((used, section(PLUMB_NORM_NOTE_SECTION), aligned(4))) = { \
          6, 72, PLUMB_NORM_NOTE_TYPE, PLUMB_NORM_NOTE_OWNER, 2, 0, "org.example.base"};
#include "base_norm.h"
