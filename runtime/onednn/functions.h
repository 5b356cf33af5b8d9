// SPDX-License-Identifier: Apache-2.0
// The functions of oneDNN that plumb calls, and those of its OpenMP. Private to runtime/onednn.
#ifndef PLUMB_RUNTIME_ONEDNN_FUNCTIONS_H_
#define PLUMB_RUNTIME_ONEDNN_FUNCTIONS_H_

#include <dnnl.h>

#include <cstdint>

#include "absl/status/status.h"

namespace plumb {

// Names without "dnnl_". What differs between versions 2 and 3 is how things are described.
#if DNNL_VERSION_MAJOR >= 3
#define PLUMB_ONEDNN_DESCRIPTIONS(X) \
  X(memory_desc_create_with_tag)     \
  X(memory_desc_destroy)             \
  X(matmul_primitive_desc_create)
#else
#define PLUMB_ONEDNN_DESCRIPTIONS(X) \
  X(memory_desc_init_by_tag)         \
  X(matmul_desc_init)                \
  X(primitive_desc_create)
#endif
#define PLUMB_ONEDNN_FUNCTIONS(X)       \
  X(version)                            \
  X(get_effective_cpu_isa)              \
  X(sgemm)                              \
  X(engine_create)                      \
  X(engine_destroy)                     \
  X(stream_create)                      \
  X(stream_destroy)                     \
  X(memory_create)                      \
  X(memory_destroy)                     \
  X(memory_desc_get_size)               \
  X(primitive_attr_create)              \
  X(primitive_attr_set_scratchpad_mode) \
  X(primitive_attr_destroy)             \
  X(primitive_desc_query_md)            \
  X(primitive_desc_destroy)             \
  X(primitive_create)                   \
  X(primitive_execute)                  \
  X(primitive_destroy)                  \
  PLUMB_ONEDNN_DESCRIPTIONS(X)

struct OneDnnFunctions {
#define PLUMB_MEMBER(name) decltype(&dnnl_##name) name = nullptr;
  PLUMB_ONEDNN_FUNCTIONS(PLUMB_MEMBER)
#undef PLUMB_MEMBER

  // Null in a library without it.
  dnnl_status_t (*gemm_bf16bf16f32)(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n,
                                    dnnl_dim_t k, float alpha, const uint16_t* a, dnnl_dim_t lda,
                                    const uint16_t* b, dnnl_dim_t ldb, float beta, float* c,
                                    dnnl_dim_t ldc) = nullptr;

  // Of the OpenMP runtime that oneDNN runs on; null where it runs on none.
  int (*omp_in_parallel)() = nullptr;
  int (*omp_get_max_threads)() = nullptr;
  void (*omp_set_num_threads)(int) = nullptr;
};

// REQUIRES: OneDnn().usable().
const OneDnnFunctions& LoadedOneDnn();

// Makes oneDNN generate the code of all its kernels for products, which takes tens of milliseconds
// and has to happen before any product. The first call does it, and later calls return what it
// returned: kResourceExhausted if this process may not have the memory. REQUIRES: OneDnn().usable().
const absl::Status& GenerateOneDnnCode();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_FUNCTIONS_H_
