// SPDX-License-Identifier: Apache-2.0
// GemmPolicy: chooses the GEMM engine by a table of processors, without measuring. Values.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_GEMM_POLICY_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_GEMM_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/onednn/library.h"

namespace plumb {

// Properties of the processor that the choice depends on. Tests construct them for others.
struct GemmProcessor {
  std::string vendor;  // "AuthenticAMD", "GenuineIntel"
  int family = 0, model = 0;
  std::string kernel_target;  // instruction set of plumb's own kernels: "AVX3"
  bool has_bf16 = false;      // AVX512_BF16
  bool uses_amx = false;      // tiles of bf16, which the operating system permits

  bool IsAmd() const { return vendor == "AuthenticAMD" || vendor == "HygonGenuine"; }
  bool IsZen4() const { return IsAmd() && family == 25; }  // also true for Zen 3
};
GemmProcessor HostGemmProcessor();

// Values of `--gemm`.
enum class GemmChoice {
  kAuto,
  kOneDnn,  // oneDNN computes every product that is not a GEMV
  kSmall,   // plumb's own engine computes every product
  kPairs,   // like kAuto, but bf16 operands are multiplied as bf16 if that is possible
  kWiden,   // like kAuto, but bf16 operands are widened to f32
};
// Parses "auto", "onednn", "small", "pairs" or "widen". Errors: kInvalidArgument with a suggestion.
absl::StatusOr<GemmChoice> ParseGemmChoice(absl::string_view name);
absl::string_view GemmChoiceName(GemmChoice choice);

struct GemmPolicy {
  GemmProcessor processor;
  GemmChoice choice = GemmChoice::kAuto;
  // oneDNN's properties; if unset, this machine's, which is loaded when a choice first needs it.
  std::optional<OneDnnLibrary> given_library;

  const OneDnnLibrary& library() const {
    return given_library.has_value() ? *given_library : OneDnn();
  }

  // Returns true if plumb's own AMX kernel multiplies bf16 operands.
  bool UsesTiles() const {
    return processor.uses_amx && (choice == GemmChoice::kAuto || choice == GemmChoice::kPairs);
  }

  // Returns true if bf16 operands are multiplied as bf16. Bf16Reason() returns why or why not:
  //   AMX                                         tiles: eight times the rate of f32
  //   AVX512_BF16, AMD (Zen 4, 5)                 pairs: twice the rate of f32
  //   AVX512_BF16, Intel (Sapphire, Emerald
  //     Rapids and Cooper Lake without AMX)       widened: vdpbf16ps has half the rate of f32 FMA
  //   neither                                     widened
  bool MultipliesBf16() const;
  const char* Bf16Products() const;  // "in tiles", "in pairs" or "widened to f32"
  std::string Bf16Reason() const;

  // Returns a problem with oneDNN if it was needed so far, else "". Loads nothing.
  std::string Problem() const;

  // Returns one line for people and run.json: "oneDNN 2.6.3 avx512_core_bf16, bf16 in pairs;
  // kernels AVX3; AuthenticAMD family 26 model 2". Equal lines imply equal bits. Loads the library.
  std::string ToString() const;
};
GemmPolicy HostGemmPolicy(GemmChoice choice = GemmChoice::kAuto);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_GEMM_POLICY_H_
