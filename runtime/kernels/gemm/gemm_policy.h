// SPDX-License-Identifier: Apache-2.0
// The choice of GEMM engine, by a table of processors, without timing anything. Values.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_GEMM_POLICY_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_GEMM_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

// The inputs of the choice. Tests write those of other processors by hand.
struct GemmProcessor {
  std::string vendor;  // "AuthenticAMD", "GenuineIntel"
  int family = 0, model = 0;
  std::string kernel_target;  // instruction set of plumb's own kernels: "AVX3"
  bool has_bf16 = false;      // AVX512_BF16

  bool IsAmd() const { return vendor == "AuthenticAMD" || vendor == "HygonGenuine"; }
  bool IsZen4() const { return IsAmd() && family == 25; }  // or 3
};
GemmProcessor HostGemmProcessor();

// oneDNN, as far as the choice depends on it.
struct GemmLibrary {
  std::string problem;      // why it cannot be used; "" if it can
  std::string version;      // "2.6.3"
  std::string isa;          // what it uses of the processor: "avx512_core_bf16"
  bool bf16_pairs = false;  // multiplies bf16 pairs (AVX512_BF16)
  bool bf16_tiles = false;  // and tiles (AMX)

  bool usable() const { return problem.empty(); }
};
// This machine's, as ONEDNN_MAX_CPU_ISA leaves it. Loads it at the first call.
const GemmLibrary& HostGemmLibrary();

// The values of `--gemm`.
enum class GemmChoice {
  kAuto,
  kOneDnn,  // every product that is not a GEMV is oneDNN's
  kSmall,   // every one is plumb's own
  kPairs,   // as kAuto; bf16 operands are multiplied as bf16, where oneDNN can
  kWiden,   // as kAuto; bf16 operands are widened to f32
};
// "auto", "onednn", "small", "pairs", "widen". kInvalidArgument with a suggestion for another.
absl::StatusOr<GemmChoice> ParseGemmChoice(absl::string_view name);
absl::string_view GemmChoiceName(GemmChoice choice);

struct GemmPolicy {
  GemmProcessor processor;
  GemmChoice choice = GemmChoice::kAuto;
  // Unset: this machine's, which is loaded when a choice first depends on it.
  std::optional<GemmLibrary> given_library;

  const GemmLibrary& library() const {
    return given_library.has_value() ? *given_library : HostGemmLibrary();
  }

  // Whether bf16 operands are multiplied as they are, and if so or if not, why:
  //   AMX                                         pairs: eight times the rate of f32
  //   AVX512_BF16, AMD (Zen 4, 5)                 pairs: twice the rate of f32
  //   AVX512_BF16, Intel (Sapphire, Emerald
  //     Rapids and Cooper Lake without AMX)       widened: vdpbf16ps has half the rate of f32 FMA
  //   neither                                     widened
  bool MultipliesBf16() const;
  std::string Bf16Reason() const;

  // What is not as it should be, of what was needed until now; "" where all is well. Loads nothing.
  std::string Problem() const;

  // One line for people and run.json: "oneDNN 2.6.3 avx512_core_bf16, bf16 in pairs; kernels AVX3;
  // AuthenticAMD family 26 model 2". Equal lines: equal bits. Loads the library.
  std::string ToString() const;
};
GemmPolicy HostGemmPolicy(GemmChoice choice = GemmChoice::kAuto);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_GEMM_POLICY_H_
