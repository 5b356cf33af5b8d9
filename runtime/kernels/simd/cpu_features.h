// SPDX-License-Identifier: Apache-2.0
// Features of the processor that plumb's kernels depend on. Stateless, thread-safe.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_CPU_FEATURES_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_CPU_FEATURES_H_

#include <string>
#include <vector>

namespace plumb {

// Returns the instruction set that plumb's own kernels chose: "AVX3", "AVX2", ...
std::string KernelTarget();

// An instruction set by the name of its family: `has` if the processor has it, and `used` if
// plumb's own kernels use it on this machine.
struct InstructionSet {
  const char* name;
  bool has, used;
};
std::vector<InstructionSet> InstructionSets();

struct ProcessorModel {
  std::string vendor;         // "AuthenticAMD", "GenuineIntel", "ARM"; "" if it is none of these
  int family = 0, model = 0;  // of ARM: implementer and part
};
ProcessorModel HostProcessorModel();

// Returns true if the processor has AVX512_BF16, and if kernels convert to bf16 with it, which they
// do not if tests chose a lower target. Results are bit-identical except for denormals.
bool HasBf16Instructions();
bool UsesBf16Instructions();

// Returns true if AVX512_BF16 multiplies bf16x2 at twice the rate of f32, as on Zen 4 and 5.
// Intel's processors have half the rate of f32 (vdpbf16ps on Sapphire and Emerald Rapids: 87
// compared with 180 GFLOP/s), so there bf16 is widened to f32 in registers.
bool HasFastBf16();
// Returns true if kernels multiply bf16x2: HasFastBf16(), unless tests chose a lower target.
bool UsesBf16Pairs();

// Returns true if the processor has AVX512_VNNI, which multiplies and adds 16-bit pairs in one
// instruction, and if kernels use it, unless tests chose a lower target. Results are bit-identical.
bool HasVnni();
bool UsesVnni();

// Returns true if the processor has AMX with bf16 and int8 tiles, and if kernels use it. The first
// UsesAmx() asks Linux for the permission, which is the process's from then on.
bool HasAmx();
bool UsesAmx();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_CPU_FEATURES_H_
