// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/gemm_policy.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/diagnostics.h"
#include "runtime/kernels/simd/cpu_features.h"

namespace plumb {
namespace {

struct NamedChoice {
  GemmChoice choice;
  const char* name;
};
constexpr NamedChoice kChoices[] = {{GemmChoice::kAuto, "auto"},
                                    {GemmChoice::kOneDnn, "onednn"},
                                    {GemmChoice::kSmall, "small"},
                                    {GemmChoice::kPairs, "pairs"},
                                    {GemmChoice::kWiden, "widen"}};

// Row of the table by processor: true if products of bf16 are faster than of f32, and the reason.
struct Bf16Row {
  bool pairs;
  const char* why;
};
Bf16Row FindBf16Row(const GemmPolicy& policy) {
  if (!policy.processor.has_bf16) return {false, "the processor has no AVX512_BF16"};
  constexpr Bf16Row kAmx = {true, "AMX multiplies bf16 at eight times the rate of f32"};
  if (policy.UsesTiles()) return kAmx;
  const OneDnnLibrary& library = policy.library();
  if (!library.usable()) return {false, "oneDNN, which would multiply them, is not there"};
  if (!library.bf16_pairs()) return {false, "oneDNN finds no AVX512_BF16 here"};
  if (policy.processor.uses_amx) return kAmx;
  if (policy.processor.IsAmd()) return {true, "AVX512_BF16 has twice the rate of f32 here"};
  return {false, "AVX512_BF16 without AMX has half the rate of f32 here"};
}

}  // namespace

GemmProcessor HostGemmProcessor() {
  GemmProcessor p;
  const ProcessorModel model = HostProcessorModel();
  p.vendor = model.vendor;
  p.family = model.family;
  p.model = model.model;
  p.kernel_target = KernelTarget();
  p.has_bf16 = HasBf16Instructions();
  p.uses_amx = UsesAmx();
  return p;
}

absl::StatusOr<GemmChoice> ParseGemmChoice(absl::string_view name) {
  std::vector<std::string> names;
  for (const NamedChoice& each : kChoices) {
    if (name == each.name) return each.choice;
    names.push_back(each.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown engine \"", name, "\"; there are auto, onednn, small, pairs and widen",
                   DidYouMean(name, names)));
}

absl::string_view GemmChoiceName(GemmChoice choice) {
  for (const NamedChoice& each : kChoices) {
    if (each.choice == choice) return each.name;
  }
  return "auto";
}

bool GemmPolicy::MultipliesBf16() const {
  if (choice == GemmChoice::kWiden || choice == GemmChoice::kSmall) return false;
  if (choice == GemmChoice::kPairs) return UsesTiles() || library().bf16_pairs();
  return FindBf16Row(*this).pairs;
}

const char* GemmPolicy::Bf16Products() const {
  if (!MultipliesBf16()) return "widened to f32";
  return UsesTiles() ? "in tiles" : "in pairs";
}

std::string GemmPolicy::Bf16Reason() const {
  if (choice == GemmChoice::kAuto || choice == GemmChoice::kOneDnn) {
    return FindBf16Row(*this).why;
  }
  if (choice == GemmChoice::kPairs && !MultipliesBf16()) return FindBf16Row(*this).why;
  return absl::StrCat("as asked for: ", GemmChoiceName(choice));
}

std::string GemmPolicy::Problem() const {
  const bool needed = given_library.has_value() || OneDnnIfLoaded() != nullptr;
  if (!needed || choice == GemmChoice::kSmall || library().usable()) return "";
  return absl::StrCat("oneDNN cannot be used (", library().problem,
                      "): plumb multiplies all matrices by its own engine, as with small, which is "
                      "slower for large ones");
}

std::string GemmPolicy::ToString() const {
  const std::string onednn = library().usable()
                                 ? absl::StrCat("oneDNN ", library().version, " ", library().isa)
                                 : "no oneDNN";
  return absl::StrCat(
      onednn, ", bf16 ", Bf16Products(),
      choice == GemmChoice::kAuto ? "" : absl::StrCat(", gemm ", GemmChoiceName(choice)),
      "; kernels ", processor.kernel_target, "; ", processor.vendor, " family ", processor.family,
      " model ", processor.model);
}

GemmPolicy HostGemmPolicy(GemmChoice choice) { return {HostGemmProcessor(), choice, {}}; }

}  // namespace plumb
