// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/quantized_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/bf16.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/strict_json.h"
#include "runtime/zoo/tensor_pieces.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr char kScaleInv[] = "_scale_inv", kBlocks[] = "_blocks", kScales[] = "_scales";
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Returns the numbers of e4m3 (OCP FP8, without infinities) by their bits.
std::array<float, 256> Fp8Values() {
  std::array<float, 256> values;
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
    const int hidden = exponent > 0 ? 8 : 0;
    const float size =
        std::ldexp(static_cast<float>(hidden + mantissa), std::max(exponent, 1) - 7 - 3);
    const float value = (bits & 127) == 127 ? kNan : size;
    values[static_cast<size_t>(bits)] = bits < 128 ? value : -value;
  }
  return values;
}

// Returns weight[r][c] * scale[r / block_rows][c / block_columns] in f32.
std::string DequantizeFp8(const TensorEntry& weight, const TensorEntry& scales,
                          const Quantization& blocks) {
  const std::array<float, 256> values = Fp8Values();
  const int64_t rows = weight.shape[0], columns = weight.shape[1];
  std::string data(static_cast<size_t>(rows * columns) * sizeof(float), '\0');
  float scale = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      if (c % blocks.block_columns == 0) {
        const int64_t at = r / blocks.block_rows * scales.shape[1] + c / blocks.block_columns;
        scale = static_cast<float>(ElementAt(scales.dtype, scales.data, at));
      }
      const auto at = static_cast<size_t>(r * columns + c);
      const float value = values[static_cast<unsigned char>(weight.data[at])] * scale;
      std::memcpy(&data[at * sizeof(value)], &value, sizeof(value));
    }
  }
  return data;
}

// Returns [experts, in, out] in bf16 of blocks [experts, out, groups, 16], whose bytes are two e2m1
// numbers each, the lower bits first, and scales [experts, out, groups], powers of two.
std::string DequantizeMxfp4(const TensorEntry& blocks, const TensorEntry& scales) {
  constexpr std::array<float, 16> kValues = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                             -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  const int64_t out = blocks.shape[1], groups = blocks.shape[2], in = groups * 32;
  const auto byte = [](const TensorEntry& entry, int64_t at) {
    return static_cast<unsigned char>(entry.data[static_cast<size_t>(at)]);
  };
  std::string data(static_cast<size_t>(blocks.shape[0] * in * out) * sizeof(uint16_t), '\0');
  float scale = 0;
  for (int64_t row = 0; row < blocks.shape[0] * out; ++row) {
    const int64_t first = row / out * in * out + row % out;  // the element for the first input
    for (int64_t i = 0; i < in; ++i) {
      const int exponent = byte(scales, row * groups + i / 32);
      if (i % 32 == 0) scale = exponent == 255 ? kNan : std::ldexp(1.0f, exponent - 127);
      const int pair = byte(blocks, row * in / 2 + i / 2);
      const int bits = i % 2 == 0 ? pair & 15 : pair >> 4;
      const uint16_t element = Bf16FromFloat(kValues[static_cast<size_t>(bits)] * scale);
      std::memcpy(&data[static_cast<size_t>(first + i * out) * sizeof(element)], &element,
                  sizeof(element));
    }
  }
  return data;
}

// Returns the computed tensor that replaces `weight`. Errors: its scales do not fit.
absl::StatusOr<CheckpointTensor> Replacement(const CheckpointTensor& weight,
                                             const CheckpointTensor* scale,
                                             const Quantization& quantization) {
  const Shape &shape = weight.entry->shape, &scales = scale->entry->shape;
  const bool is_fp8 = quantization.method == Quantization::kFp8Blocks;
  TensorEntry entry;
  bool fits;
  if (is_fp8) {
    const std::string& dtype = scale->entry->dtype;
    const auto blocks = [](int64_t size, int64_t block) { return (size + block - 1) / block; };
    fits = shape.rank() == 2 && (dtype == "F32" || dtype == "BF16" || dtype == "F16") &&
           scales == Shape{blocks(shape[0], quantization.block_rows),
                           blocks(shape[1], quantization.block_columns)};
    entry = {weight.entry->name, "F32", shape, {}};
  } else {
    fits = shape.rank() == 4 && shape[3] == 16 && scale->entry->dtype == "U8" &&
           scales == Shape{shape[0], shape[1], shape[2]};
    if (fits) {
      entry = {std::string(absl::StripSuffix(weight.entry->name, kBlocks)),
               "BF16",
               Shape{shape[0], shape[2] * 32, shape[1]},
               {}};
    }
  }
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        QuoteName(weight.entry->name), " is ", weight.entry->dtype, shape.ToString(), ", and ",
        QuoteName(scale->entry->name), " ", scale->entry->dtype, scales.ToString()));
  }
  CheckpointTensor made;
  made.file = weight.file;
  made.computed_from = absl::StrCat(weight.entry->name, " and ", scale->entry->name);
  made.entry = std::make_shared<TensorEntry>(std::move(entry));
  made.compute = [weight = weight.entry, scale = scale->entry, quantization, is_fp8] {
    return is_fp8 ? DequantizeFp8(*weight, *scale, quantization) : DequantizeMxfp4(*weight, *scale);
  };
  return made;
}

// Returns the name of the scales of a weight in these bits, "" for another tensor.
std::string ScaleOf(const TensorEntry& entry, Quantization::Method method) {
  if (method == Quantization::kFp8Blocks && entry.dtype == "F8_E4M3") {
    return absl::StrCat(entry.name, kScaleInv);
  }
  if (method == Quantization::kMxfp4 && entry.dtype == "U8" &&
      absl::EndsWith(entry.name, kBlocks)) {
    return absl::StrCat(absl::StripSuffix(entry.name, kBlocks), kScales);
  }
  return "";
}

}  // namespace

absl::StatusOr<Quantization> ReadQuantization(const Json& config, const std::string& file) {
  const Json* found = FindMember(config, kQuantization);
  if (found == nullptr || found->is_null()) return Quantization{};
  const std::string method = TextMember(*found, "quant_method");
  if (method == "mxfp4") return Quantization{Quantization::kMxfp4};
  const Json* block = FindMember(*found, "weight_block_size");
  const std::string format = TextMember(*found, "fmt");
  if (method == "fp8" && (format.empty() || format == "e4m3") && block != nullptr &&
      block->is_array() && block->size() == 2) {
    const int64_t rows = AsInt64((*block)[0]).value_or(0),
                  columns = AsInt64((*block)[1]).value_or(0);
    if (rows > 0 && columns > 0) return Quantization{Quantization::kFp8Blocks, rows, columns};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      file, ": ", kQuantization, ": weights of the method ", QuoteName(method),
      " are not read; those of fp8 with fmt e4m3 and a weight_block_size, and of mxfp4, are. ",
      method == "bitsandbytes"
          ? "Save the model in 16 bits, in transformers by "
            "AutoModelForCausalLM.from_pretrained(DIR).dequantize().save_pretrained(OUT)"
          : "Import the model in 16 or 32 bits that it was made of"));
}

absl::Status Dequantize(const Quantization& quantization, CheckpointDirectory* checkpoint) {
  if (quantization.method == Quantization::kNone) return absl::OkStatus();
  std::set<const CheckpointTensor*> scales;
  std::vector<CheckpointTensor> tensors = checkpoint->tensors();
  std::vector<std::string> errors;
  for (CheckpointTensor& tensor : tensors) {
    const std::string name = ScaleOf(*tensor.entry, quantization.method);
    const CheckpointTensor* scale = name.empty() ? nullptr : checkpoint->Find(name);
    if (scale == nullptr) continue;  // a weight without scales is one of a type that is not read
    scales.insert(scale);
    absl::StatusOr<CheckpointTensor> made = Replacement(tensor, scale, quantization);
    if (made.ok()) {
      tensor = *std::move(made);
    } else {
      errors.emplace_back(made.status().message());
    }
  }
  if (!errors.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint->path(),
                                                   ": weights and scales that do not fit:\n  ",
                                                   ListDiagnostics(errors, "\n  ")));
  }
  std::vector<CheckpointTensor> kept;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (scales.count(&checkpoint->tensors()[i]) == 0) kept.push_back(std::move(tensors[i]));
  }
  checkpoint->SetTensors(std::move(kept));
  return absl::OkStatus();
}

}  // namespace plumb
