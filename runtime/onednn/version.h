// The version of oneDNN, and the instruction set that it uses. Thread-safe.
#ifndef PLUMB_RUNTIME_ONEDNN_VERSION_H_
#define PLUMB_RUNTIME_ONEDNN_VERSION_H_

#include <string>

namespace plumb {

std::string OneDnnVersion();  // "2.6.3"

// The instruction set that the library uses. ONEDNN_MAX_CPU_ISA lowers it.
struct OneDnnIsa {
  std::string name;   // "avx512_core_bf16"
  bool bf16 = false;  // multiplies bf16 pairs (AVX512_BF16)
  bool amx = false;   // and bf16 tiles (AMX), which the kernel of the system permitted
};
OneDnnIsa EffectiveOneDnnIsa();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_VERSION_H_
