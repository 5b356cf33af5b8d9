// SPDX-License-Identifier: Apache-2.0
// Reading of a plugin's description: checks it and copies it into the host's types. No answer of a
// plugin is used before that. Stateless.
#ifndef PLUMB_RUNTIME_PLUGIN_DESCRIPTOR_H_
#define PLUMB_RUNTIME_PLUGIN_DESCRIPTOR_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plumb/ext/combine.h"
#include "plumb/ext/instance.h"
#include "plumb/ext/residual.h"
#include "plumb/norm_plugin.h"

namespace plumb {

// Value that a user wrote: a number, boolean or string. CheckAttrs converts it to the attribute's
// type if possible; an integer attribute then has an int64_t.
using NormAttrValue = std::variant<double, bool, std::string, int64_t>;
using NormAttrs = std::map<std::string, NormAttrValue>;

enum class NormAttrType { kDouble, kInt, kBool, kEnum, kString };

struct NormAttrSpec {
  std::string name;
  std::string doc;
  NormAttrType type = NormAttrType::kDouble;
  bool required = false;
  double min = 0, max = 0;  // inclusive; NaN: unbounded
  NormAttrValue default_value;
  std::vector<std::string> choices;  // kEnum

  std::string TypeName() const;  // "number", "integer", "bool", "one of a, b", "text"
};

// A trainable tensor of an instance, or a buffer of a cross-row norm (running statistics), which is
// stored in checkpoints and has no gradient.
struct NormParam {
  std::string name;  // "weight"
  std::string doc;
  std::vector<int64_t> dims;
  enum class Init { kZeros, kOnes, kConstant, kNormal, kUniform, kFill } init = Init::kOnes;
  double init_a = 0, init_b = 0;  // constant: a; normal: mean a, deviation b; uniform: [a, b)
  bool weight_decay = false;
  double lr_scale = 1;
  // Number that the norm adds to the stored values: 1 if the gain is 1 + weight.
  double offset = 0;
  // Writes the values for kFill; called by NormInstance::Fill.
  plumb_status (*fill)(const plumb_norm_instance*, const plumb_fill_call*) = nullptr;

  std::string InitToString() const;  // "ones", "normal(0, 0.02)", "fill"
};

// Limits on a plugin's answers; larger ones are refused.
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

// Buffer for a plugin's message, which may come back without a NUL.
struct ErrorText {
  char text[512] = "";
  absl::string_view view() const { return {text, strnlen(text, sizeof(text))}; }
};

// Returns the plugin's table in this host's layout, with fields that the plugin does not know set
// to null. Calls no function of the plugin. Errors, without the norm's name: too small, mandatory
// functions missing (all are named), mandatory flags that are unknown or contradictory, a newer
// host required, no f32.
absl::StatusOr<plumb_norm_plugin> ReadTable(const plumb_norm_plugin* table);

// Returns a plugin's string; "" for null. Fails if it is longer than `max_length`. `what` names it:
// "its id".
absl::StatusOr<std::string> ReadText(const char* text, absl::string_view what, size_t max_length);

// Returns the attribute definitions of a table, after checking them.
absl::StatusOr<std::vector<NormAttrSpec>> ReadAttrSchema(const plumb_norm_plugin& table);

// Trainable tensors and buffers of an instance, from its layout.
struct NormTensors {
  std::vector<NormParam> params;
  std::vector<NormParam> buffers;
};

// Returns the tensors of an instance of `dim`, whose names are unique over both kinds, and checks
// all other fields of the layout. `cross_row`: the norm has PLUMB_NORM_CROSS_ROW; other norms have
// no buffers and statistics. `two_inputs`: it has PLUMB_NORM_TWO_INPUTS.
absl::StatusOr<NormTensors> ReadLayout(const plumb_norm_layout& layout, int64_t dim, bool cross_row,
                                       bool two_inputs = false);

// Returns the table's "plumb.norm.residual/1"; null functions if the plugin has none or only half
// of it, or for a norm that is cross-row or has two inputs, which cannot be fused with a sum. Calls
// get_extension; fails if that throws.
absl::StatusOr<plumb_norm_residual> ReadResidual(const plumb_norm_plugin& table);

// Returns the table's "plumb.norm.combine/1"; a null function if the plugin has none or is not a
// cross-row norm. Calls get_extension, as does the next function.
absl::StatusOr<plumb_norm_combine> ReadCombine(const plumb_norm_plugin& table);

// Returns the table's "plumb.norm.instance/1"; a null function if the plugin has none.
absl::StatusOr<plumb_norm_instance_extensions> ReadInstanceExtensions(
    const plumb_norm_plugin& table);

// Returns the residual extension at `found`; null functions if it is null or incomplete.
plumb_norm_residual KnownResidual(const void* found);

// Converts a status that a function of a norm returned. Errors that norm_plugin.h allows keep their
// code, and any other number becomes kInternal. The text is `message`, or names the number if
// `message` is empty. Callers add the norm's name.
absl::Status FromPlugin(plumb_status code, absl::string_view message);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_DESCRIPTOR_H_
