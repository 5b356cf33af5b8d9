#include "runtime/kernels/simd/cpu_features.h"

#include "hwy/highway.h"

namespace plumb {

std::string KernelTarget() {
  // What HWY_DYNAMIC_DISPATCH picks: the best target (lowest bit) that is both compiled in and
  // supported.
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

bool HasFastBf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool UsesBf16Pairs() { return HasFastBf16() && KernelTarget() == "AVX3"; }

bool HasVnni() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

bool UsesVnni() { return HasVnni() && KernelTarget() == "AVX3"; }

std::string SlowBf16Reason() {
  if (HasFastBf16()) return "";
  return "this processor has no AVX512_BF16: bf16 operands are converted to f32 for every product, "
         "which saves memory and costs time";
}

}  // namespace plumb
