// SPDX-License-Identifier: Apache-2.0
// Counts every allocation of the process, including those of shared libraries: the binary that
// links it replaces malloc, so its tests are a binary of their own.
#ifndef PLUMB_TESTS_SESSION_COUNT_MALLOCS_H_
#define PLUMB_TESTS_SESSION_COUNT_MALLOCS_H_

#include <cstdint>

namespace plumb {

// Returns the number of allocations so far, on all threads, without oneDNN's. Under a sanitizer,
// which does not report the caller, oneDNN's are included, and ExcludesOneDnnMallocs() is false.
int64_t MallocCount();
bool ExcludesOneDnnMallocs();

// oneDNN's allocations: a product packs its operands into a block of its own.
struct OneDnnMallocs {
  int64_t count = 0;
  int64_t bytes = 0;
};
OneDnnMallocs OneDnnMallocCount();

// Returns the bytes that aligned_alloc, from which AlignedBuffer gets its memory, has allocated and
// that were not freed. -1 under a sanitizer, which replaces malloc itself.
int64_t LiveAlignedBytes();

}  // namespace plumb

#endif  // PLUMB_TESTS_SESSION_COUNT_MALLOCS_H_
