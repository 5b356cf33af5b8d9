// SPDX-License-Identifier: Apache-2.0
// The processor's features that plumb's kernels depend on. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_CPU_FEATURES_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_CPU_FEATURES_H_

#include <string>
#include <vector>

namespace plumb {

// The instruction set that plumb's own kernels chose: "AVX3", "AVX2", ...
std::string KernelTarget();

std::string HighwayVersion();  // "1.0.3"

// Instruction sets that the processor has, by the names of their instructions' families, and
// whether plumb's own kernels compute with them on this machine. AMX is oneDNN's alone.
struct InstructionSet {
  const char* name;
  bool has, used;
};
std::vector<InstructionSet> InstructionSets();

struct ProcessorModel {
  std::string vendor;  // "AuthenticAMD", "GenuineIntel"; "" where it is not an x86
  int family = 0, model = 0;
};
ProcessorModel HostProcessorModel();

// Whether the processor has AVX512_BF16, and whether kernels convert to bf16 with it: not if tests
// chose a lesser target. Results are equal to the bit.
bool HasBf16Instructions();
bool UsesBf16Instructions();

// Whether AVX512_BF16 multiplies bf16x2 at twice the rate of f32, as on Zen 4 and 5. Intel's
// processors have half the rate of f32 there (vdpbf16ps on Sapphire and Emerald Rapids: 87 against
// 180 GFLOP/s), so that bf16 is widened to f32 in registers.
bool HasFastBf16();
// Whether kernels multiply bf16x2: HasFastBf16(), and not if tests chose a lesser target.
bool UsesBf16Pairs();

// Whether the processor has AVX512_VNNI, which multiplies and adds 16-bit pairs in one instruction,
// and whether kernels use it: not if tests chose a lesser target. Results are equal to the bit.
bool HasVnni();
bool UsesVnni();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_CPU_FEATURES_H_
