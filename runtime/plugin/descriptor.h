// SPDX-License-Identifier: Apache-2.0
// What a plugin says of itself, checked and copied into the host's types: nothing that a plugin
// answers is used before it has passed here. Stateless.
#ifndef PLUMB_RUNTIME_PLUGIN_DESCRIPTOR_H_
#define PLUMB_RUNTIME_PLUGIN_DESCRIPTOR_H_

#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plumb/norm_plugin.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

// Longest answers that are believed.
inline constexpr size_t kMaxNormIdLength = 63;
inline constexpr size_t kMaxNormTextLength = 4096;
inline constexpr uint32_t kMaxNormAttrs = 64;
inline constexpr uint32_t kMaxNormParams = 64;
inline constexpr uint32_t kMaxNormBuffers = 64;
inline constexpr int64_t kMaxNormParamElements = int64_t{1} << 31;
inline constexpr int64_t kMaxNormScratchBytes = int64_t{64} << 20;
inline constexpr int64_t MaxNormSavedPerRow(int64_t dim) { return 16 * dim + 64; }
inline constexpr int64_t MaxNormSavedPerCall(int64_t dim) { return 16 * dim + 64; }
inline constexpr int64_t MaxNormPartialElems(int64_t dim) { return 16 * dim + 64; }
inline constexpr int64_t MaxNormScratchPerRow(int64_t dim) { return 256 * dim + 4096; }

// Text that a plugin may write into, read back whatever it did to it.
struct ErrorText {
  char text[512] = "";
  absl::string_view view() const { return {text, strnlen(text, sizeof(text))}; }
};

// The plugin's table as this host knows it; what the plugin is too old to have is null. Errors,
// without the norm's name: too small, mandatory functions missing (all named), mandatory flags that
// this host does not understand or that contradict each other, a newer host needed, no f32. Calls
// nothing.
absl::StatusOr<plumb_norm_plugin> ReadTable(const plumb_norm_plugin* table);

// A plugin's string; null is "". Error: longer than `max_length`. `what` names it: "its id".
absl::StatusOr<std::string> ReadText(const char* text, absl::string_view what, size_t max_length);

absl::StatusOr<std::vector<NormAttrSpec>> ReadAttrSchema(const plumb_norm_plugin& table);

// What a layout says of the trainable tensors and the buffers of an instance.
struct NormTensors {
  std::vector<NormParam> params;
  std::vector<NormParam> buffers;
};

// The tensors of an instance of `dim`, their names unique over both kinds; also checks everything
// else that the layout says. `cross_row`: the norm has PLUMB_NORM_CROSS_ROW; without it there are
// no buffers and no statistics. `two_inputs`: it has PLUMB_NORM_TWO_INPUTS.
absl::StatusOr<NormTensors> ReadLayout(const plumb_norm_layout& layout, int64_t dim, bool cross_row,
                                       bool two_inputs = false);

// The table's "plumb.norm.residual/1"; null where the plugin has none, has half of it, or is a
// cross-row norm, whose rows cannot be added and normalized in one go, or one of two inputs. Calls
// get_extension; an exception that leaves it is an error.
absl::StatusOr<plumb_norm_residual> ReadResidual(const plumb_norm_plugin& table);

// The table's "plumb.norm.combine/1"; null where the plugin has none or is no cross-row norm. Calls
// get_extension, as does the next.
absl::StatusOr<plumb_norm_combine> ReadCombine(const plumb_norm_plugin& table);

// The table's "plumb.norm.instance/1"; null where the plugin has none.
absl::StatusOr<plumb_norm_instance_extensions> ReadInstanceExtensions(
    const plumb_norm_plugin& table);

// What `found` points to as a residual extension: null functions when it is null or not whole.
plumb_norm_residual KnownResidual(const void* found);

// A status that a plugin returned, with its message if it gave one.
absl::Status FromPlugin(plumb_status code, absl::string_view message);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_DESCRIPTOR_H_
