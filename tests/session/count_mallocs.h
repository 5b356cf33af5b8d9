// SPDX-License-Identifier: Apache-2.0
// Counts every allocation of the process, those of the shared libraries too: the binary that links
// it takes malloc's place. Its own binary, therefore.
#ifndef PLUMB_TESTS_SESSION_COUNT_MALLOCS_H_
#define PLUMB_TESTS_SESSION_COUNT_MALLOCS_H_

#include <cstdint>

namespace plumb {

// The number of allocations so far, on any thread, but for oneDNN's; with them under a sanitizer,
// which does not say who allocates.
int64_t MallocCount();
bool TellsOneDnnMallocs();

// oneDNN's: a product packs its operands into a block of its own.
struct OneDnnMallocs {
  int64_t count = 0;
  int64_t bytes = 0;
};
OneDnnMallocs OneDnnMallocCount();

// Bytes that aligned_alloc, by which AlignedBuffer gets its memory, has given out and that were not
// freed. -1 under a sanitizer, which has malloc's place itself.
int64_t LiveAlignedBytes();

}  // namespace plumb

#endif  // PLUMB_TESTS_SESSION_COUNT_MALLOCS_H_
