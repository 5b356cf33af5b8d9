// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/simd/cpu_features.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "absl/strings/str_cat.h"
#include "hwy/highway.h"

namespace plumb {

#if defined(__x86_64__)
namespace {

bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

}  // namespace
#endif

std::vector<InstructionSet> InstructionSets() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const std::string target = KernelTarget();
  const bool avx3 = target == "AVX3";
  return {{"AVX2", avx2, target == "AVX2" || avx3},
          {"AVX-512", HasAvx512(), avx3},
          {"AVX512_VNNI", HasVnni(), UsesVnni()},
          {"AVX512_BF16", HasBf16Instructions(), UsesBf16Instructions()},
          {"AMX", HasAmx(), UsesAmx()}};
#elif defined(__aarch64__)
  return {{"NEON", true, true}};
#else
  return {};
#endif
}

std::string KernelTarget() {
  // HWY_DYNAMIC_DISPATCH chooses the best target (lowest bit) that is compiled in and supported.
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

ProcessorModel HostProcessorModel() {
  ProcessorModel found;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0, &a, &b, &c, &d)) return found;
  char vendor[12];
  std::memcpy(vendor, &b, 4);
  std::memcpy(vendor + 4, &d, 4);
  std::memcpy(vendor + 8, &c, 4);
  found.vendor.assign(vendor, sizeof(vendor));
  if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
  const int family = (a >> 8) & 0xf, model = (a >> 4) & 0xf;
  found.family = family == 0xf ? family + static_cast<int>((a >> 20) & 0xff) : family;
  found.model = model | static_cast<int>((a >> 16) & 0xf) << 4;
#elif defined(__aarch64__)
  found.vendor = "ARM";
  if ((getauxval(AT_HWCAP) & HWCAP_CPUID) == 0) return found;
  uint64_t id = 0;  // MIDR_EL1: implementer (bits 24 to 31), part (4 to 15)
  asm("mrs %0, MIDR_EL1" : "=r"(id));
  found.family = static_cast<int>((id >> 24) & 0xff);
  found.model = static_cast<int>((id >> 4) & 0xfff);
#endif
  return found;
}

bool HasBf16Instructions() {
#if defined(__x86_64__)
  return HasAvx512() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool UsesBf16Instructions() { return HasBf16Instructions() && KernelTarget() == "AVX3"; }

bool HasFastBf16() {
  if (!HasBf16Instructions()) return false;
  const std::string vendor = HostProcessorModel().vendor;
  return vendor == "AuthenticAMD" || vendor == "HygonGenuine";
}

bool UsesBf16Pairs() { return HasFastBf16() && KernelTarget() == "AVX3"; }

bool HasVnni() {
#if defined(__x86_64__)
  return HasAvx512() && __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

bool UsesVnni() { return HasVnni() && KernelTarget() == "AVX3"; }

bool HasAmx() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAmx = 1u << 22 | 1u << 24 | 1u << 25;  // bf16, tiles, int8
  return HasVnni() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kAmx) == kAmx;
#else
  return false;
#endif
}

bool UsesAmx() {
#if defined(__x86_64__)
  static const bool permitted = [] {
    constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
    return HasAmx() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return permitted && KernelTarget() == "AVX3";
#else
  return false;
#endif
}

}  // namespace plumb
