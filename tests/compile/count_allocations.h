// SPDX-License-Identifier: Apache-2.0
// Counts the allocations of the test binary that links it.
#ifndef PLUMB_TESTS_COMPILE_COUNT_ALLOCATIONS_H_
#define PLUMB_TESTS_COMPILE_COUNT_ALLOCATIONS_H_

#include <cstdint>

namespace plumb {

// Returns the number of calls of operator new so far, on all threads.
int64_t AllocationCount();

}  // namespace plumb

#endif  // PLUMB_TESTS_COMPILE_COUNT_ALLOCATIONS_H_
