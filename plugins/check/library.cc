#include "plugins/check/library.h"

#include <dlfcn.h>

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "plugins/check/guarded.h"

namespace plumb::check {
namespace {

// What v1.0 had, for ever.
constexpr uint32_t kTableSizeV1 = 160;
constexpr uint32_t kAttrDefSizeV1 = 72;
constexpr uint32_t kMaxStride = 4096;
constexpr uint32_t kMaxAttrs = 64;
constexpr uint32_t kKnownMandatoryFlags = PLUMB_NORM_CROSS_ROW | PLUMB_NORM_CROSS_ROW_EVAL |
                                          PLUMB_NORM_STOCHASTIC | PLUMB_NORM_TWO_INPUTS;

std::string MissingFunctions(const plumb_norm_plugin& table) {
  std::vector<std::string> missing;
  const auto want = [&missing](bool given, const char* name) {
    if (!given) missing.emplace_back(name);
  };
  want(table.create != nullptr, "create");
  want(table.destroy != nullptr, "destroy");
  want(table.layout != nullptr, "layout");
  want(table.forward != nullptr, "forward");
  want(table.backward != nullptr, "backward");
  if ((table.flags & PLUMB_NORM_CROSS_ROW) != 0) {
    want(table.stats_partial != nullptr, "stats_partial");
    want(table.stats_combine != nullptr, "stats_combine");
    want(table.stats_finalize != nullptr, "stats_finalize");
  }
  return absl::StrJoin(missing, ", ");
}

}  // namespace

absl::StatusOr<void*> Open(const std::string& path) {
  // A name without a slash would be looked for in the system's directories.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  const Trace trace(Function::kLoad);
  void* library = GuardedBy(Function::kLoad, [&file] {
    return dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  });
  if (library != nullptr) return library;
  const char* given = dlerror();
  absl::string_view why = given == nullptr ? "the loader gives no reason" : given;
  if (absl::ConsumePrefix(&why, file)) absl::ConsumePrefix(&why, ": ");
  return absl::FailedPreconditionError(why);
}

absl::StatusOr<plumb_norm_plugin_v1_fn> EntryOf(void* library) {
  void* entry = dlsym(library, PLUMB_NORM_ENTRY_SYMBOL);
  if (entry == nullptr) {
    return absl::FailedPreconditionError("does not export " PLUMB_NORM_ENTRY_SYMBOL);
  }
  return reinterpret_cast<plumb_norm_plugin_v1_fn>(entry);
}

const plumb_norm_plugin* NormAt(plumb_norm_plugin_v1_fn entry, uint32_t index) {
  return Guarded(Function::kEntry, 0, [entry, index] { return entry(index); });
}

std::string TableProblem(const plumb_norm_plugin& table) {
  if (table.struct_size < kTableSizeV1) {
    return absl::StrFormat("its table has struct_size %d; norm ABI 1.0 has %d", table.struct_size,
                           kTableSizeV1);
  }
  if (table.min_host_minor > PLUMB_NORM_ABI_MINOR) {
    return absl::StrFormat("it needs norm ABI %d.%d, and this is %d.%d", PLUMB_NORM_ABI_MAJOR,
                           table.min_host_minor, PLUMB_NORM_ABI_MAJOR, PLUMB_NORM_ABI_MINOR);
  }
  const uint32_t foreign = table.flags & 0xffff0000u & ~kKnownMandatoryFlags;
  if (foreign != 0) {
    return absl::StrFormat("it sets mandatory flags that norm ABI %d.%d does not have: %#x",
                           PLUMB_NORM_ABI_MAJOR, PLUMB_NORM_ABI_MINOR, foreign);
  }
  if (const std::string missing = MissingFunctions(table); !missing.empty()) {
    return absl::StrCat("it lacks mandatory functions: ", missing);
  }
  if ((table.flags & PLUMB_NORM_CROSS_ROW) == 0 &&
      (table.stats_partial != nullptr || table.stats_combine != nullptr ||
       table.stats_finalize != nullptr)) {
    return "it has stats functions without the flag CROSS_ROW";
  }
  if ((table.dtypes & PLUMB_F32) == 0) return "it does not offer f32, which every norm must";
  if (table.n_attrs == 0) return "";
  if (table.n_attrs > kMaxAttrs) {
    return absl::StrFormat("it has %d attributes; the most is %d", table.n_attrs, kMaxAttrs);
  }
  if (table.attrs == nullptr) {
    return absl::StrFormat("it counts %d attributes but gives none", table.n_attrs);
  }
  if (table.attr_stride < kAttrDefSizeV1 || table.attr_stride > kMaxStride ||
      table.attr_stride % 8 != 0) {
    return absl::StrFormat("its attr_stride is %d; norm ABI 1.0 has %d", table.attr_stride,
                           kAttrDefSizeV1);
  }
  return "";
}

}  // namespace plumb::check
