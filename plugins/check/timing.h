// Measuring a piece of code on a noisy machine. Stateless.
#ifndef PLUMB_PLUGINS_CHECK_TIMING_H_
#define PLUMB_PLUGINS_CHECK_TIMING_H_

#include <time.h>

#include <cstdint>

namespace plumb::check {

// Seconds that the calling thread has run on a processor: waiting for one does not count.
inline double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Seconds that `n` calls of `work` take this thread.
template <class Work>
double TimeOf(int64_t n, const Work& work) {
  const double start = ThreadSeconds();
  for (int64_t i = 0; i < n; ++i) work();
  return ThreadSeconds() - start;
}

// How often `work` has to be called for a measurement of at least `seconds`; at most `most`.
template <class Work>
int64_t CallsFor(double seconds, int64_t most, const Work& work) {
  int64_t n = 1;
  while (n < most && TimeOf(n, work) < seconds) n *= 2;
  return n;
}

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_TIMING_H_
