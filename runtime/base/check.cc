// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace plumb::internal {

void CheckFailed(const char* file, int line, const char* condition, const char* reason) {
  std::fprintf(stderr, "%s:%d: plumb bug: %s does not hold: %s\n", file, line, condition, reason);
  std::abort();
}

}  // namespace plumb::internal
