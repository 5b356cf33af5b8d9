#include "runtime/onednn/version.h"

#include <dnnl.h>

#include "absl/strings/str_cat.h"

namespace plumb {

std::string OneDnnVersion() {
  const dnnl_version_t* version = dnnl_version();
  return absl::StrCat(version->major, ".", version->minor, ".", version->patch);
}

OneDnnIsa EffectiveOneDnnIsa() {
  // Sets of bits, in versions 2 and 3: a later instruction set has all bits of those before it.
  struct Named {
    unsigned bits;
    const char* name;
  };
  constexpr Named kNames[] = {{dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
                              {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
                              {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
                              {dnnl_cpu_isa_avx512_core, "avx512_core"},
                              {dnnl_cpu_isa_avx2, "avx2"},
                              {dnnl_cpu_isa_avx, "avx"},
                              {dnnl_cpu_isa_sse41, "sse41"}};
  const unsigned isa = dnnl_get_effective_cpu_isa();
  const auto has = [isa](unsigned bits) { return (isa & bits) == bits; };
  OneDnnIsa found;
  found.name = "generic";
  for (const Named& each : kNames) {
    if (!has(each.bits)) continue;
    found.name = each.name;
    break;
  }
  found.bf16 = has(dnnl_cpu_isa_avx512_core_bf16);
  found.amx = has(dnnl_cpu_isa_avx512_core_amx);
  return found;
}

}  // namespace plumb
