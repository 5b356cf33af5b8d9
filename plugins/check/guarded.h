// Traced calls of a plugin's function with exceptions caught and named, for the functions that
// calls.h does not have. Thread-safe.
#ifndef PLUMB_PLUGINS_CHECK_GUARDED_H_
#define PLUMB_PLUGINS_CHECK_GUARDED_H_

#include <cstdint>
#include <string>
#include <utility>

#include "plugins/check/calls.h"
#include "plugins/check/trace.h"

namespace plumb::check {

// "std::bad_alloc": the type of the exception that is being handled.
std::string CurrentExceptionType();

template <class F>
auto GuardedBy(Function function, F call) -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    throw CheckEnded{"exception " + CurrentExceptionType() + " left " + NameOf(function) + "()"};
  }
}

// Calls `call` and returns what it returns. Throws CheckEnded when an exception comes out.
template <class F>
auto Guarded(Function function, uint32_t dim, F call) -> decltype(call()) {
  const Trace trace(function, dim);
  return GuardedBy(function, std::move(call));
}

// The same for a function that works on rows [r0, r1) of `operands`.
template <class F>
auto Guarded(Function function, const plumb_norm_call& operands, int64_t r0, int64_t r1, F call)
    -> decltype(call()) {
  const Trace trace(function, operands, r0, r1);
  return GuardedBy(function, std::move(call));
}

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_GUARDED_H_
