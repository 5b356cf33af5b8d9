// SPDX-License-Identifier: Apache-2.0
// PLUMB_CHECK(condition, reason): aborts if `condition` is false, which only a bug in plumb can
// cause. Nothing that a user types, loads or sends may reach one: that is what absl::Status is for.
#ifndef PLUMB_RUNTIME_BASE_CHECK_H_
#define PLUMB_RUNTIME_BASE_CHECK_H_

namespace plumb::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const char* reason);
}  // namespace plumb::internal

#define PLUMB_CHECK(condition, reason) \
  ((condition) ? static_cast<void>(0)  \
               : ::plumb::internal::CheckFailed(__FILE__, __LINE__, #condition, (reason)))

#endif  // PLUMB_RUNTIME_BASE_CHECK_H_
