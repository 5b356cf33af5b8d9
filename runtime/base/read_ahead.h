// What a thread will read from memory next, for it to ask for while it has nothing else to do. To
// ask for memory is to prefetch it, here and everywhere in plumb.
#ifndef PLUMB_RUNTIME_BASE_READ_AHEAD_H_
#define PLUMB_RUNTIME_BASE_READ_AHEAD_H_

#include <algorithm>
#include <cstdint>

namespace plumb {

inline constexpr int64_t kCacheLine = 64;  // bytes, on x86; longer ones are asked for twice

// Some streams of equal length, side by side. A value: it outlives what it was made from, and to
// ask for memory that is not there any more does no harm.
struct ReadAhead {
  // A part of the second-level caches of today that leaves room for what is at hand.
  static constexpr int64_t kMostBytes = 256 << 10;

  const char* at = nullptr;
  int64_t apart = 0;    // bytes from one stream to the next
  int64_t streams = 0;  // 0: nothing to ask for
  int64_t bytes = 0;    // of each stream

  static ReadAhead Of(const void* at, int64_t apart, int64_t streams, int64_t bytes) {
    return {static_cast<const char*>(at), apart, streams, std::min(bytes, kMostBytes / streams)};
  }

  // Asks for some more lines; false when all were asked for.
  // Always inlined: to gcc a function that only prefetches has no effect.
  [[gnu::always_inline]] bool Step() {
    if (bytes <= 0 || streams <= 0) return false;
    for (int64_t s = 0; s < streams; ++s) __builtin_prefetch(at + s * apart, 0, 2);
    at += kCacheLine;
    bytes -= kCacheLine;
    return true;
  }
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_READ_AHEAD_H_
