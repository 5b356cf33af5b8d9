// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr char kMetadata[] = "__metadata__";

// Returns the size of an element in bytes; 0 for a dtype that the format does not define.
int64_t DTypeBytes(absl::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  if (dtype == "F8_E4M3" || dtype == "F8_E5M2") return 1;
  return 0;
}

absl::Status TensorError(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", QuoteName(name), ": ", what));
}

// Returns the size of a tensor in bytes; nullopt if it, or the product of its nonzero dimensions,
// overflows.
absl::optional<int64_t> TensorBytes(const Shape& shape, int64_t element) {
  int64_t product = element;
  bool empty = false;
  for (int64_t dim : shape.dims()) {
    if (dim == 0) {
      empty = true;  // the other dimensions are still checked, since Shape multiplies them too
    } else if (__builtin_mul_overflow(product, dim, &product)) {
      return absl::nullopt;
    }
  }
  return empty ? 0 : product;
}

absl::StatusOr<SafetensorsHeader::Tensor> ParseTensor(const std::string& name, const Json& value,
                                                      int64_t data_bytes) {
  SafetensorsHeader::Tensor tensor;
  tensor.name = name;
  if (!value.is_object()) return TensorError(name, "is not described by an object");

  const Json* dtype = FindMember(value, "dtype");
  if (dtype == nullptr || !dtype->is_string()) return TensorError(name, "has no dtype string");
  tensor.dtype = dtype->get<std::string>();
  const int64_t element = DTypeBytes(tensor.dtype);
  if (element == 0) {
    return TensorError(name, absl::StrCat("unknown dtype ", QuoteName(tensor.dtype)));
  }

  const Json* shape = FindMember(value, "shape");
  if (shape == nullptr || !shape->is_array()) return TensorError(name, "has no shape array");
  std::vector<int64_t> dims;
  dims.reserve(shape->size());
  for (const Json& dim : *shape) {
    const absl::optional<int64_t> size = AsInt64(dim);
    if (!size || *size < 0) {
      return TensorError(name, "its shape holds something other than a whole number >= 0");
    }
    dims.push_back(*size);
  }
  tensor.shape = Shape(absl::MakeConstSpan(dims));
  const absl::optional<int64_t> bytes = TensorBytes(tensor.shape, element);
  if (!bytes) return TensorError(name, "its shape is too large for 64-bit sizes");

  const Json* offsets = FindMember(value, "data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2) {
    return TensorError(name, "has no data_offsets [begin, end]");
  }
  const absl::optional<int64_t> begin = AsInt64((*offsets)[0]);
  const absl::optional<int64_t> end = AsInt64((*offsets)[1]);
  if (!begin || !end || *begin < 0 || *end < *begin) {
    return TensorError(name, "its data_offsets are not 0 <= begin <= end");
  }
  tensor.begin = *begin;
  tensor.end = *end;
  if (*end > data_bytes) {
    return absl::DataLossError(absl::StrCat("tensor ", QuoteName(name), ": its data end at byte ",
                                            *end, ", but the file has only ", data_bytes,
                                            " bytes of data"));
  }
  if (*end - *begin != *bytes) {
    return TensorError(name, absl::StrCat("its data_offsets span ", *end - *begin, " bytes, but ",
                                          tensor.dtype, " of its shape takes ", *bytes));
  }
  return tensor;
}

absl::Status ParseMetadata(const Json& value, std::map<std::string, std::string>* metadata) {
  if (!value.is_object()) return absl::InvalidArgumentError("__metadata__ is not an object");
  for (const auto& [key, text] : value.get_ref<const Json::object_t&>()) {
    if (!text.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("__metadata__: the value of ", QuoteName(key), " is not a string"));
    }
    (*metadata)[key] = text.get<std::string>();
  }
  return absl::OkStatus();
}

// Requires: `tensors` are sorted by the offsets of their data.
absl::Status CheckLayout(const std::vector<SafetensorsHeader::Tensor>& tensors,
                         int64_t data_bytes) {
  int64_t end = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorsHeader::Tensor& tensor = tensors[i];
    if (tensor.begin < end) {
      return TensorError(
          tensor.name, absl::StrCat("its data overlap those of ", QuoteName(tensors[i - 1].name)));
    }
    if (tensor.begin > end) {
      return TensorError(tensor.name, absl::StrCat("there is a hole of ", tensor.begin - end,
                                                   " bytes before its data"));
    }
    end = tensor.end;
  }
  if (end == data_bytes) return absl::OkStatus();
  const std::string last = tensors.empty() ? ""
                                           : absl::StrCat(" after the last tensor, ",
                                                          QuoteName(tensors.back().name), ",");
  return absl::InvalidArgumentError(
      absl::StrCat(data_bytes - end, " bytes of data", last, " belong to no tensor"));
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes) {
  // A header is an object of objects of arrays, so its depth is 3.
  absl::StatusOr<Json> root = ParseStrictJson(json, /*max_depth=*/3);
  if (!root.ok()) return Annotate(root.status(), "the header is not valid: ");
  if (!root->is_object()) return absl::InvalidArgumentError("the header is not a JSON object");

  SafetensorsHeader header;
  for (const auto& [name, value] : root->get_ref<const Json::object_t&>()) {
    if (name == kMetadata) {
      PLUMB_RETURN_IF_ERROR(ParseMetadata(value, &header.metadata));
      continue;
    }
    PLUMB_ASSIGN_OR_RETURN(SafetensorsHeader::Tensor tensor, ParseTensor(name, value, data_bytes));
    header.tensors.push_back(std::move(tensor));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsHeader::Tensor& a, const SafetensorsHeader::Tensor& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  PLUMB_RETURN_IF_ERROR(CheckLayout(header.tensors, data_bytes));
  return header;
}

std::string FormatSafetensorsHeader(const SafetensorsHeader& header, size_t alignment) {
  // The text is assembled here, because the JSON library would sort the tensors by name.
  std::string text = absl::StrCat("{\"", kMetadata, "\":{");
  absl::StrAppend(&text,
                  absl::StrJoin(header.metadata, ",", [](std::string* out, const auto& item) {
                    absl::StrAppend(out, QuoteJson(item.first), ":", QuoteJson(item.second));
                  }));
  text += "}";
  for (const SafetensorsHeader::Tensor& tensor : header.tensors) {
    absl::StrAppend(&text, ",", QuoteJson(tensor.name), ":{\"dtype\":", QuoteJson(tensor.dtype),
                    ",\"shape\":[", absl::StrJoin(tensor.shape.dims(), ","), "],\"data_offsets\":[",
                    tensor.begin, ",", tensor.end, "]}");
  }
  text += "}";
  const size_t size = 8 + text.size();
  text.append((alignment - size % alignment) % alignment, ' ');
  return text;
}

}  // namespace plumb
