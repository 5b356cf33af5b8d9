// SPDX-License-Identifier: Apache-2.0
// Has a static variable of a template, which is unique in the process.
#include "plumb/norm_plugin.h"

template <class T>
struct PLUMB_EXPORT Counter {
  static T& Value() {
    static T value{};
    return value;
  }
};

extern "C" {
#include "base_norm.h"
}

extern "C" PLUMB_EXPORT int plumb_norm_plugin_v2();
extern "C" int plumb_norm_plugin_v2() { return Counter<int>::Value(); }
