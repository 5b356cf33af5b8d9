// What plumb's kernels find on this machine. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_CPU_FEATURES_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_CPU_FEATURES_H_

#include <string>

namespace plumb {

// The instruction set that plumb's own kernels chose: "AVX3", "AVX2", ...
std::string KernelTarget();

// Whether the processor multiplies bf16 pairs itself (AVX512_BF16). Without, bf16 works and is
// slower than f32: every operand is converted first.
bool HasFastBf16();
// Whether kernels do so: not on a weaker target, as tests choose it, where bf16 goes the way that
// it goes on a weaker processor.
bool UsesBf16Pairs();
// Why it is slow, for a message: "this processor has no AVX512_BF16: ..."; empty where it is fast.
std::string SlowBf16Reason();

// Whether the processor adds products of 16 bits to a sum in one instruction (AVX512_VNNI), and
// whether kernels use it: not on a weaker target. Results are equal to the bit.
bool HasVnni();
bool UsesVnni();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_CPU_FEATURES_H_
