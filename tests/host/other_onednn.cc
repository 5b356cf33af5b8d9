// SPDX-License-Identifier: Apache-2.0
// A host's oneDNN of another version. It exports names that plumb or its oneDNN would call if the
// dynamic linker bound them here, and ends the process if one is called.
#include <cstdio>
#include <cstdlib>
#include <functional>

#define NOT_FOR_PLUMB(name)                                             \
  {                                                                     \
    std::fprintf(stderr, "%s of the host's oneDNN was called\n", name); \
    std::abort();                                                       \
  }

extern "C" {
int host_onednn() { return 1; }

void dnnl_version() NOT_FOR_PLUMB("dnnl_version");
void dnnl_get_effective_cpu_isa() NOT_FOR_PLUMB("dnnl_get_effective_cpu_isa");
void dnnl_sgemm() NOT_FOR_PLUMB("dnnl_sgemm");
void dnnl_gemm_bf16bf16f32() NOT_FOR_PLUMB("dnnl_gemm_bf16bf16f32");
void dnnl_engine_create() NOT_FOR_PLUMB("dnnl_engine_create");
}

enum dnnl_data_type_t : int;

// These functions are called by the library itself, by names that other libraries may define, too.
namespace dnnl {
namespace impl {
void parallel(int, const std::function<void(int, int)>&) NOT_FOR_PLUMB("parallel");
namespace cpu {
namespace platform {
bool has_data_type_support(::dnnl_data_type_t) NOT_FOR_PLUMB("has_data_type_support");
}
namespace x64 {
unsigned get_max_cpu_isa_mask(bool) NOT_FOR_PLUMB("get_max_cpu_isa_mask");
unsigned get_cpu_isa_hints(bool) NOT_FOR_PLUMB("get_cpu_isa_hints");
namespace amx {
bool is_available() NOT_FOR_PLUMB("amx::is_available");
}
}  // namespace x64
}  // namespace cpu
}  // namespace impl
}  // namespace dnnl
