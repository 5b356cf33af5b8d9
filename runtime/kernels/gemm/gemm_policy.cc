#include "runtime/kernels/gemm/gemm_policy.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/suggest.h"
#include "runtime/kernels/simd/cpu_features.h"
#include "runtime/onednn/gemm.h"
#include "runtime/onednn/version.h"

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

// The table, by processor: whether bf16x2 products are faster than f32.
struct Bf16Row {
  bool pairs;
  const char* why;
};
Bf16Row Bf16RowOf(const GemmProcessor& p) {
  if (p.bf16_tiles) return {true, "AMX multiplies bf16 at eight times the rate of f32"};
  if (!p.bf16_pairs) return {false, "oneDNN finds no AVX512_BF16 here"};
  if (p.IsAmd()) {
    return {true, "AVX512_BF16 has twice the rate of f32 here"};
  }
  return {false, "AVX512_BF16 without AMX has half the rate of f32 here"};
}

}  // namespace

GemmProcessor HostGemmProcessor() {
  GemmProcessor p;
  const ProcessorModel model = HostProcessorModel();
  p.vendor = model.vendor;
  p.family = model.family;
  p.model = model.model;
  const OneDnnIsa isa = EffectiveOneDnnIsa();
  p.onednn_version = OneDnnVersion();
  p.onednn_isa = isa.name;
  p.bf16_pairs = isa.bf16 && OneDnnHasBf16Gemm();
  p.bf16_tiles = isa.amx && OneDnnHasBf16Gemm();
  p.kernel_target = KernelTarget();
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
  if (choice == GemmChoice::kPairs) return processor.bf16_pairs || processor.bf16_tiles;
  return Bf16RowOf(processor).pairs;
}

std::string GemmPolicy::Bf16Reason() const {
  if (choice == GemmChoice::kAuto || choice == GemmChoice::kOneDnn) {
    return Bf16RowOf(processor).why;
  }
  if (choice == GemmChoice::kPairs && !MultipliesBf16()) return Bf16RowOf(processor).why;
  return absl::StrCat("as asked for: ", GemmChoiceName(choice));
}

std::string GemmPolicy::ToString() const {
  return absl::StrCat(
      "oneDNN ", processor.onednn_version, " ", processor.onednn_isa, ", bf16 ",
      MultipliesBf16() ? "in pairs" : "widened to f32",
      choice == GemmChoice::kAuto ? "" : absl::StrCat(", --gemm ", GemmChoiceName(choice)),
      "; kernels ", processor.kernel_target, "; ", processor.vendor, " family ", processor.family,
      " model ", processor.model);
}

GemmPolicy HostGemmPolicy(GemmChoice choice) { return {HostGemmProcessor(), choice}; }

}  // namespace plumb
