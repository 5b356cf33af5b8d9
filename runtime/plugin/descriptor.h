// What a plugin says of itself, checked and copied into the host's types: nothing that a plugin
// answers is used before it has passed here. Stateless.
#ifndef PLUMB_RUNTIME_PLUGIN_DESCRIPTOR_H_
#define PLUMB_RUNTIME_PLUGIN_DESCRIPTOR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumb/norm_plugin.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

// Longest answers that are believed.
inline constexpr size_t kMaxNormIdLength = 63;
inline constexpr size_t kMaxNormTextLength = 4096;
inline constexpr uint32_t kMaxNormAttrs = 64;
inline constexpr uint32_t kMaxNormParams = 64;
inline constexpr int64_t kMaxNormParamElements = int64_t{1} << 31;
inline constexpr int64_t kMaxNormScratchBytes = int64_t{64} << 20;
inline constexpr int64_t MaxNormSavedPerRow(int64_t dim) { return 16 * dim + 64; }
inline constexpr int64_t MaxNormScratchPerRow(int64_t dim) { return 256 * dim + 4096; }

// The plugin's table as this host knows it; what the plugin is too old to have is null. Errors,
// without the norm's name: too small, mandatory functions missing (all named), mandatory flags that
// this host does not understand, a newer host needed, no f32. Calls nothing.
absl::StatusOr<plumb_norm_plugin> ReadTable(const plumb_norm_plugin* table);

// A plugin's string; null is "". Error: longer than `max_length`. `what` names it: "its id".
absl::StatusOr<std::string> ReadText(const char* text, absl::string_view what, size_t max_length);

absl::StatusOr<std::vector<NormAttrSpec>> ReadAttrSchema(const plumb_norm_plugin& table);

// The parameters of an instance of `dim`; also checks everything else that the layout says.
absl::StatusOr<std::vector<NormParam>> ReadLayout(const plumb_norm_layout& layout, int64_t dim);

// A status that a plugin returned, with its message if it gave one.
absl::Status FromPlugin(plumb_status code, absl::string_view message);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_DESCRIPTOR_H_
