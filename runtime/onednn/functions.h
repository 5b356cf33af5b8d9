// SPDX-License-Identifier: Apache-2.0
// Functions of oneDNN, and of its OpenMP runtime, that plumb calls. Private to runtime/onednn.
#ifndef PLUMB_RUNTIME_ONEDNN_FUNCTIONS_H_
#define PLUMB_RUNTIME_ONEDNN_FUNCTIONS_H_

#include <dnnl.h>

#include <cstdint>

#include "absl/status/status.h"

namespace plumb {

// Names without "dnnl_".
#define PLUMB_ONEDNN_FUNCTIONS(X) \
  X(version)                      \
  X(get_effective_cpu_isa)        \
  X(sgemm)

struct OneDnnFunctions {
#define PLUMB_MEMBER(name) decltype(&dnnl_##name) name = nullptr;
  PLUMB_ONEDNN_FUNCTIONS(PLUMB_MEMBER)
#undef PLUMB_MEMBER

  // Null if the library does not export it.
  dnnl_status_t (*gemm_bf16bf16f32)(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n,
                                    dnnl_dim_t k, float alpha, const uint16_t* a, dnnl_dim_t lda,
                                    const uint16_t* b, dnnl_dim_t ldb, float beta, float* c,
                                    dnnl_dim_t ldc) = nullptr;

  // Functions of the OpenMP runtime that oneDNN uses; null if it uses none.
  int (*omp_in_parallel)() = nullptr;
  int (*omp_get_max_threads)() = nullptr;
  void (*omp_set_num_threads)(int) = nullptr;
};

// Returns the functions of the loaded library. Requires: OneDnn().usable().
const OneDnnFunctions& LoadedOneDnn();

// Makes oneDNN generate the code of all its GEMM kernels, which takes tens of milliseconds and must
// happen before any GEMM. The first call does it; later calls return its result. Thread-safe.
// Requires: OneDnn().usable(). Errors: kResourceExhausted if the process cannot get the memory.
const absl::Status& GenerateOneDnnCode();

// Restricts oneDNN to the calling thread while it lives.
//
// oneDNN takes its team size from the calling thread's OpenMP setting, except inside a parallel
// region, where it runs on one thread anyway. The setting is per thread, so changing it during a
// call affects no other thread.
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

#endif  // PLUMB_RUNTIME_ONEDNN_FUNCTIONS_H_
