// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/descriptor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/plugin/guarded_call.h"

namespace plumb {
namespace {

// Size of the v1.0 table, the min size for a plugin of any minor version.
constexpr size_t kTableSizeV1 = 160;
constexpr size_t kAttrDefSizeV1 = 72;
constexpr size_t kTensorDefSizeV1 = 80;
constexpr size_t kMaxStride = 4096;
constexpr size_t kMaxNameLength = 63;
constexpr size_t kMaxChoices = 64;
constexpr uint32_t kHintFlags = 0x0000ffffu;
constexpr uint32_t kUnderstoodMandatoryFlags =
    PLUMB_NORM_CROSS_ROW | PLUMB_NORM_CROSS_ROW_EVAL | PLUMB_NORM_TWO_INPUTS;

absl::Status Refused(absl::string_view why) { return absl::FailedPreconditionError(why); }

std::string DescribeFlag(int bit) {
  return (1u << bit) == PLUMB_NORM_STOCHASTIC ? "STOCHASTIC: norms that draw random numbers"
                                              : "unknown to this version";
}

absl::Status CheckFlags(uint32_t flags) {
  const uint32_t foreign = flags & ~kHintFlags & ~kUnderstoodMandatoryFlags;
  if (foreign != 0) {
    std::vector<std::string> names;
    for (int bit = 16; bit < 32; ++bit) {
      if (foreign & (1u << bit))
        names.push_back(absl::StrFormat("bit %d (%s)", bit, DescribeFlag(bit)));
    }
    return Refused(absl::StrCat("needs what this plumb does not support: mandatory flag ",
                                absl::StrJoin(names, ", ")));
  }
  const bool cross_row = (flags & PLUMB_NORM_CROSS_ROW) != 0;
  if (!cross_row && (flags & PLUMB_NORM_CROSS_ROW_EVAL) != 0) {
    return Refused("has the flag CROSS_ROW_EVAL without CROSS_ROW");
  }
  if (cross_row && (flags & PLUMB_NORM_IDENTITY) != 0) {
    return Refused("calls itself the identity and a cross-row norm");
  }
  if ((flags & PLUMB_NORM_TWO_INPUTS) != 0 && (cross_row || (flags & PLUMB_NORM_IDENTITY) != 0)) {
    return Refused(absl::StrCat("has the flag TWO_INPUTS together with ",
                                cross_row ? "CROSS_ROW" : "IDENTITY"));
  }
  return absl::OkStatus();
}

// Checks that `table` has the functions that its flags require, and no others.
absl::Status CheckFunctions(const plumb_norm_plugin& table) {
  struct Function {
    const char* name;
    bool given;
  };
  const Function always[] = {{"create", table.create != nullptr},
                             {"destroy", table.destroy != nullptr},
                             {"layout", table.layout != nullptr},
                             {"forward", table.forward != nullptr},
                             {"backward", table.backward != nullptr}};
  const Function stats[] = {{"stats_partial", table.stats_partial != nullptr},
                            {"stats_combine", table.stats_combine != nullptr},
                            {"stats_finalize", table.stats_finalize != nullptr}};
  const bool cross_row = (table.flags & PLUMB_NORM_CROSS_ROW) != 0;
  std::vector<std::string> missing, unwanted;
  for (const Function& function : always) {
    if (!function.given) missing.push_back(function.name);
  }
  for (const Function& function : stats) {
    if (cross_row && !function.given) missing.push_back(function.name);
    if (!cross_row && function.given) unwanted.push_back(function.name);
  }
  if (!missing.empty()) {
    return Refused(absl::StrCat("lacks the mandatory ",
                                missing.size() == 1 ? "function " : "functions ",
                                absl::StrJoin(missing, ", ")));
  }
  if (!unwanted.empty()) {
    return Refused(
        absl::StrCat("has ", absl::StrJoin(unwanted, ", "), " without the flag CROSS_ROW"));
  }
  return absl::OkStatus();
}

bool IsName(const std::string& name) {
  return !name.empty() && name[0] >= 'a' && name[0] <= 'z' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

absl::StatusOr<std::string> ReadName(const char* text, absl::string_view what) {
  absl::StatusOr<std::string> name = ReadText(text, what, kMaxNameLength);
  if (name.ok() && !IsName(*name))
    return Refused(absl::StrCat(what, " is not of the form [a-z][a-z0-9_]*"));
  return name;
}

// Returns element `i` of a plugin's array, whose elements may be longer than ours: copies the part
// that both know.
template <class T>
T ReadElement(const T* array, uint32_t stride, uint32_t i) {
  T element{};
  std::memcpy(&element, reinterpret_cast<const char*>(array) + size_t{stride} * i,
              std::min<size_t>(stride, sizeof(T)));
  return element;
}

absl::Status CheckStride(absl::string_view what, const void* array, uint32_t count, uint32_t stride,
                         size_t smallest) {
  if (count == 0) return absl::OkStatus();
  if (array == nullptr)
    return Refused(absl::StrCat("counts ", count, " ", what, " but gives none"));
  if (stride < smallest || stride > kMaxStride || stride % 8 != 0) {
    return Refused(absl::StrCat("gives its ", what, " the impossible stride ", stride));
  }
  return absl::OkStatus();
}

absl::Status ReadChoices(const plumb_attr_def& def, NormAttrSpec* spec) {
  if (def.choices != nullptr) {
    for (size_t i = 0; def.choices[i] != nullptr; ++i) {
      if (i == kMaxChoices) return Refused("has too many choices");
      PLUMB_ASSIGN_OR_RETURN(std::string choice,
                             ReadText(def.choices[i], "a choice", kMaxNameLength));
      spec->choices.push_back(std::move(choice));
    }
  }
  if (spec->choices.empty()) return Refused("has no choices");
  return absl::OkStatus();
}

absl::Status CheckNumber(double value, const NormAttrSpec& spec) {
  if (!std::isfinite(value) || value < spec.min || value > spec.max) {
    return Refused(absl::StrCat("has a default outside its range: ", value));
  }
  return absl::OkStatus();
}

absl::Status ReadTypeAndDefault(const plumb_attr_def& def, NormAttrSpec* spec) {
  if (def.type == PLUMB_ATTR_F64 || def.type == PLUMB_ATTR_I64) {
    spec->min = def.min;
    spec->max = def.max;
    if (def.min > def.max) return Refused("has an empty range");
  }
  switch (def.type) {
    case PLUMB_ATTR_F64:
      spec->type = NormAttrType::kDouble;
      spec->default_value = def.def.f;
      return spec->required ? absl::OkStatus() : CheckNumber(def.def.f, *spec);
    case PLUMB_ATTR_I64:
      spec->type = NormAttrType::kInt;
      spec->default_value = def.def.i;
      return spec->required ? absl::OkStatus() : CheckNumber(static_cast<double>(def.def.i), *spec);
    case PLUMB_ATTR_BOOL:
      spec->type = NormAttrType::kBool;
      spec->default_value = def.def.i != 0;
      return absl::OkStatus();
    case PLUMB_ATTR_ENUM:
    case PLUMB_ATTR_STRING:
      break;
    default:
      return Refused(absl::StrCat("has the unknown type ", def.type));
  }
  PLUMB_ASSIGN_OR_RETURN(std::string text, ReadText(def.def.s, "the default", kMaxNormTextLength));
  if (def.type == PLUMB_ATTR_ENUM) {
    spec->type = NormAttrType::kEnum;
    PLUMB_RETURN_IF_ERROR(ReadChoices(def, spec));
    if (!spec->required &&
        std::find(spec->choices.begin(), spec->choices.end(), text) == spec->choices.end()) {
      return Refused(absl::StrCat("has a default that is not one of its choices: \"", text, "\""));
    }
  } else {
    spec->type = NormAttrType::kString;
  }
  spec->default_value = std::move(text);
  return absl::OkStatus();
}

absl::Status ReadInit(const plumb_tensor_def& def, NormParam* param) {
  param->init_a = def.init_a;
  param->init_b = def.init_b;
  switch (def.init) {
    case PLUMB_INIT_ZEROS:
      param->init = NormParam::Init::kZeros;
      return absl::OkStatus();
    case PLUMB_INIT_ONES:
      param->init = NormParam::Init::kOnes;
      return absl::OkStatus();
    case PLUMB_INIT_CONST:
      param->init = NormParam::Init::kConstant;
      if (!std::isfinite(def.init_a)) return Refused("starts at a value that is not finite");
      return absl::OkStatus();
    case PLUMB_INIT_NORMAL:
      param->init = NormParam::Init::kNormal;
      if (!std::isfinite(def.init_a) || !std::isfinite(def.init_b) || def.init_b < 0) {
        return Refused("starts from an impossible normal distribution");
      }
      return absl::OkStatus();
    case PLUMB_INIT_UNIFORM:
      param->init = NormParam::Init::kUniform;
      if (!std::isfinite(def.init_a) || !std::isfinite(def.init_b) || def.init_a > def.init_b) {
        return Refused("starts from an impossible uniform distribution");
      }
      return absl::OkStatus();
    case PLUMB_INIT_FILL:
      param->init = NormParam::Init::kFill;
      param->fill = def.fill;
      if (def.fill == nullptr) return Refused("is to be filled and has no fill function");
      return absl::OkStatus();
    default:
      return Refused(
          absl::StrFormat("starts from initial values of kind %d, which norm ABI %d.%d, that of "
                          "this plumb, has not",
                          def.init, PLUMB_NORM_ABI_MAJOR, PLUMB_NORM_ABI_MINOR));
  }
}

absl::Status ReadParam(const plumb_tensor_def& def, NormParam* param) {
  PLUMB_ASSIGN_OR_RETURN(param->doc, ReadText(def.doc, "its doc", kMaxNormTextLength));
  if (def.ndim > 4) return Refused(absl::StrCat("has ", def.ndim, " dimensions; 4 is the most"));
  int64_t elements = 1;
  for (uint32_t i = 0; i < def.ndim; ++i) {
    const int64_t size = def.dims[i];
    if (size < 1 || size > kMaxNormParamElements / elements) {
      return Refused(absl::StrCat("has an impossible size, ", size, " in dimension ", i));
    }
    elements *= size;
    param->dims.push_back(size);
  }
  if (!std::isfinite(def.lr_scale) || def.lr_scale < 0) {
    return Refused("has an impossible factor on the learning rate");
  }
  if (!std::isfinite(def.offset)) return Refused("has an offset that is not finite");
  param->lr_scale = def.lr_scale;
  param->offset = def.offset;
  param->weight_decay = (def.flags & PLUMB_PARAM_WEIGHT_DECAY) != 0;
  return ReadInit(def, param);
}

absl::Status CheckStatistics(const plumb_norm_layout& layout, int64_t dim, bool cross_row) {
  if (!cross_row) {
    if (layout.n_buffers == 0 && layout.saved_per_call == 0 && layout.partial_elems == 0) {
      return absl::OkStatus();
    }
    return Refused("asks for buffers or statistics of a whole call without being a cross-row norm");
  }
  if (layout.partial_elems == 0) {
    return Refused("is a cross-row norm and takes no statistics: its partial_elems is 0");
  }
  if (layout.partial_elems > MaxNormPartialElems(dim)) {
    return Refused(absl::StrFormat("takes statistics of %d numbers; the most for dim %d is %d",
                                   layout.partial_elems, dim, MaxNormPartialElems(dim)));
  }
  if (layout.saved_per_call > MaxNormSavedPerCall(dim)) {
    return Refused(absl::StrFormat("asks to save %d numbers a call; the most for dim %d is %d",
                                   layout.saved_per_call, dim, MaxNormSavedPerCall(dim)));
  }
  return absl::OkStatus();
}

absl::Status CheckSizes(const plumb_norm_layout& layout, int64_t dim, bool two_inputs) {
  if (layout.saved_per_row > MaxNormSavedPerRow(dim)) {
    return Refused(absl::StrFormat("asks to save %d numbers a row; the most for dim %d is %d",
                                   layout.saved_per_row, dim, MaxNormSavedPerRow(dim)));
  }
  if (layout.scratch_bytes > kMaxNormScratchBytes) {
    return Refused(absl::StrFormat("asks for %d bytes of scratch; the most is %d",
                                   layout.scratch_bytes, kMaxNormScratchBytes));
  }
  if (layout.scratch_bytes_per_row > static_cast<size_t>(MaxNormScratchPerRow(dim))) {
    return Refused(absl::StrFormat("asks for %d bytes of scratch a row; the most for dim %d is %d",
                                   layout.scratch_bytes_per_row, dim, MaxNormScratchPerRow(dim)));
  }
  const uint32_t operands = PLUMB_BACKWARD_READS_X | PLUMB_BACKWARD_READS_Y | (two_inputs ? PLUMB_BACKWARD_READS_X2 : 0);
  if ((layout.backward_needs & ~operands) != 0) {
    return Refused("needs an operand in backward that this host does not know");
  }
  return absl::OkStatus();
}

// Returns the parameters or buffers of a layout; `what` is their kind.
absl::StatusOr<std::vector<NormParam>> ReadTensors(absl::string_view what,
                                                   const plumb_tensor_def* defs, uint32_t count,
                                                   uint32_t stride, uint32_t max,
                                                   std::set<std::string>* names) {
  if (count > max) {
    return Refused(absl::StrFormat("has %d %ss; the most is %d", count, what, max));
  }
  PLUMB_RETURN_IF_ERROR(
      CheckStride(absl::StrCat(what, "s"), defs, count, stride, kTensorDefSizeV1));
  std::vector<NormParam> tensors;
  for (uint32_t i = 0; i < count; ++i) {
    const plumb_tensor_def def = ReadElement(defs, stride, i);
    NormParam tensor;
    PLUMB_ASSIGN_OR_RETURN(tensor.name,
                           ReadName(def.name, absl::StrCat("the name of ", what, " ", i)));
    const std::string where = absl::StrCat(what, " ", tensor.name, " ");
    if (!names->insert(tensor.name).second) return Refused(absl::StrCat(where, "is there twice"));
    PLUMB_RETURN_IF_ERROR(Annotate(ReadParam(def, &tensor), where));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Returns the plugin's extension with this id, or null.
absl::StatusOr<const void*> FindExtension(const plumb_norm_plugin& table, const char* id) {
  const void* found = nullptr;
  if (table.get_extension == nullptr) return found;
  PLUMB_RETURN_IF_ERROR(Guarded("get_extension", [&] { found = table.get_extension(id); }));
  return found;
}

}  // namespace

absl::StatusOr<plumb_norm_plugin> ReadTable(const plumb_norm_plugin* table) {
  if (table == nullptr) return Refused("gives no table");
  const uint32_t size = table->struct_size;
  if (size < kTableSizeV1) {
    return Refused(
        absl::StrFormat("gives a table of %d bytes; norm ABI 1.0 has %d", size, kTableSizeV1));
  }
  plumb_norm_plugin copy{};
  std::memcpy(&copy, table, std::min<size_t>(size, sizeof(copy)));
  if (copy.min_host_minor > PLUMB_NORM_ABI_MINOR) {
    return Refused(absl::StrFormat("needs norm ABI %d.%d, and this plumb has %d.%d",
                                   PLUMB_NORM_ABI_MAJOR, copy.min_host_minor, PLUMB_NORM_ABI_MAJOR,
                                   PLUMB_NORM_ABI_MINOR));
  }
  PLUMB_RETURN_IF_ERROR(CheckFlags(copy.flags));
  PLUMB_RETURN_IF_ERROR(CheckFunctions(copy));
  if ((copy.dtypes & PLUMB_DTYPE_F32) == 0) return Refused("does not offer f32, which every norm must");
  return copy;
}

absl::StatusOr<std::string> ReadText(const char* text, absl::string_view what, size_t max_length) {
  if (text == nullptr) return std::string();
  const size_t length = strnlen(text, max_length + 1);
  if (length > max_length) {
    return Refused(absl::StrCat(what, " is longer than ", max_length, " characters"));
  }
  return std::string(text, length);
}

absl::StatusOr<std::vector<NormAttrSpec>> ReadAttrSchema(const plumb_norm_plugin& table) {
  if (table.n_attrs > kMaxNormAttrs) {
    return Refused(
        absl::StrFormat("has %d attributes; the most is %d", table.n_attrs, kMaxNormAttrs));
  }
  PLUMB_RETURN_IF_ERROR(
      CheckStride("attributes", table.attrs, table.n_attrs, table.attr_stride, kAttrDefSizeV1));
  std::vector<NormAttrSpec> specs;
  std::set<std::string> names;
  for (uint32_t i = 0; i < table.n_attrs; ++i) {
    const plumb_attr_def def = ReadElement(table.attrs, table.attr_stride, i);
    NormAttrSpec spec;
    PLUMB_ASSIGN_OR_RETURN(spec.name,
                           ReadName(def.name, absl::StrCat("the name of attribute ", i)));
    const std::string where = absl::StrCat("attribute ", spec.name, " ");
    if (!names.insert(spec.name).second) return Refused(absl::StrCat(where, "is there twice"));
    absl::StatusOr<std::string> doc = ReadText(def.doc, "its doc", kMaxNormTextLength);
    if (!doc.ok()) return Annotate(doc.status(), where);
    spec.doc = *std::move(doc);
    spec.required = (def.flags & PLUMB_ATTR_FLAG_REQUIRED) != 0;
    PLUMB_RETURN_IF_ERROR(Annotate(ReadTypeAndDefault(def, &spec), where));
    specs.push_back(std::move(spec));
  }
  return specs;
}

absl::StatusOr<NormTensors> ReadLayout(const plumb_norm_layout& layout, int64_t dim, bool cross_row,
                                       bool two_inputs) {
  PLUMB_RETURN_IF_ERROR(CheckStatistics(layout, dim, cross_row));
  PLUMB_RETURN_IF_ERROR(CheckSizes(layout, dim, two_inputs));
  NormTensors tensors;
  std::set<std::string> names;
  PLUMB_ASSIGN_OR_RETURN(tensors.params, ReadTensors("parameter", layout.params, layout.n_params,
                                                     layout.tensor_stride, kMaxNormParams, &names));
  PLUMB_ASSIGN_OR_RETURN(
      tensors.buffers, ReadTensors("buffer", layout.buffers, layout.n_buffers, layout.tensor_stride,
                                   kMaxNormBuffers, &names));
  return tensors;
}

plumb_norm_residual KnownResidual(const void* found) {
  plumb_norm_residual known{};
  const auto* residual = static_cast<const plumb_norm_residual*>(found);
  if (residual == nullptr || !PLUMB_HAS(plumb_norm_residual, residual, backward) ||
      residual->forward == nullptr || residual->backward == nullptr) {
    return known;
  }
  std::memcpy(&known, residual, std::min<size_t>(residual->struct_size, sizeof(known)));
  return known;
}

absl::StatusOr<plumb_norm_residual> ReadResidual(const plumb_norm_plugin& table) {
  if ((table.flags & (PLUMB_NORM_CROSS_ROW | PLUMB_NORM_TWO_INPUTS)) != 0) {
    return plumb_norm_residual{};
  }
  PLUMB_ASSIGN_OR_RETURN(const void* found, FindExtension(table, PLUMB_EXT_RESIDUAL));
  return KnownResidual(found);
}

absl::StatusOr<plumb_norm_combine> ReadCombine(const plumb_norm_plugin& table) {
  plumb_norm_combine known{};
  if ((table.flags & PLUMB_NORM_CROSS_ROW) == 0) return known;
  PLUMB_ASSIGN_OR_RETURN(const void* found, FindExtension(table, PLUMB_EXT_COMBINE));
  const auto* combine = static_cast<const plumb_norm_combine*>(found);
  if (combine == nullptr || !PLUMB_HAS(plumb_norm_combine, combine, combine)) return known;
  std::memcpy(&known, combine, std::min<size_t>(combine->struct_size, sizeof(known)));
  return known;
}

absl::StatusOr<plumb_norm_instance_extensions> ReadInstanceExtensions(
    const plumb_norm_plugin& table) {
  plumb_norm_instance_extensions known{};
  PLUMB_ASSIGN_OR_RETURN(const void* found, FindExtension(table, PLUMB_EXT_INSTANCE));
  const auto* extensions = static_cast<const plumb_norm_instance_extensions*>(found);
  if (extensions == nullptr || !PLUMB_HAS(plumb_norm_instance_extensions, extensions, get)) {
    return known;
  }
  std::memcpy(&known, extensions, std::min<size_t>(extensions->struct_size, sizeof(known)));
  return known;
}

absl::Status FromPlugin(plumb_status code, absl::string_view message) {
  if (code == PLUMB_OK) return absl::OkStatus();
  const std::string text = message.empty()
                               ? absl::StrCat("failed with status ", code, " and gave no reason")
                               : std::string(message);
  switch (code) {
    case PLUMB_STATUS_CANCELLED:
    case PLUMB_STATUS_INVALID_ARGUMENT:
    case PLUMB_STATUS_NOT_FOUND:
    case PLUMB_STATUS_RESOURCE_EXHAUSTED:
    case PLUMB_STATUS_FAILED_PRECONDITION:
    case PLUMB_STATUS_OUT_OF_RANGE:
    case PLUMB_STATUS_UNIMPLEMENTED:
      return absl::Status(static_cast<absl::StatusCode>(code), text);
    default:
      return absl::InternalError(text);
  }
}

}  // namespace plumb
