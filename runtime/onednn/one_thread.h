// SPDX-License-Identifier: Apache-2.0
// OneThread: restricts oneDNN to the calling thread while it lives. Private to runtime/onednn.
//
// oneDNN takes its team size from the calling thread's OpenMP setting, except inside a parallel
// region, where it runs on one thread anyway. The setting is per thread, so changing it during a
// call affects no other thread.
#ifndef PLUMB_RUNTIME_ONEDNN_ONE_THREAD_H_
#define PLUMB_RUNTIME_ONEDNN_ONE_THREAD_H_

#include "runtime/onednn/functions.h"

namespace plumb {

class OneThread {
 public:
  explicit OneThread(const OneDnnFunctions& onednn)
      : set_threads_(onednn.omp_set_num_threads), before_(Threads(onednn)) {
    if (before_ != 1) set_threads_(1);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() {
    if (before_ != 1) set_threads_(before_);
  }

 private:
  static int Threads(const OneDnnFunctions& onednn) {
    if (onednn.omp_in_parallel == nullptr || onednn.omp_in_parallel()) return 1;
    return onednn.omp_get_max_threads();
  }

  void (*const set_threads_)(int);
  const int before_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_ONE_THREAD_H_
