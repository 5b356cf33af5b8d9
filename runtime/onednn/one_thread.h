// OneThread: oneDNN runs on the calling thread alone while this is in scope. Private to
// runtime/onednn.
//
// oneDNN takes its team size from the calling thread's OpenMP setting, except inside a parallel
// region, where it runs alone by itself. The setting belongs to the calling thread, so changing it
// for the length of a call disturbs nobody.
#ifndef PLUMB_RUNTIME_ONEDNN_ONE_THREAD_H_
#define PLUMB_RUNTIME_ONEDNN_ONE_THREAD_H_

#include <omp.h>

namespace plumb {

class OneThread {
 public:
  OneThread() : before_(omp_in_parallel() ? 1 : omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }

 private:
  const int before_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_ONE_THREAD_H_
