// SPDX-License-Identifier: Apache-2.0
// Weights that published checkpoints store in fewer than 16 bits: FP8 (e4m3) in blocks that share
// a scale (DeepSeek-V3, Kimi K2, Qwen3), and MXFP4 (gpt-oss). Stateless.
#ifndef PLUMB_RUNTIME_ZOO_QUANTIZED_WEIGHTS_H_
#define PLUMB_RUNTIME_ZOO_QUANTIZED_WEIGHTS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/zoo/checkpoint_directory.h"

namespace plumb {

// Key of config.json that describes the weights.
inline constexpr char kQuantization[] = "quantization_config";

struct Quantization {
  enum Method { kNone, kFp8Blocks, kMxfp4 };
  Method method = kNone;
  int64_t block_rows = 0, block_columns = 0;  // of kFp8Blocks
};

// Reads `quantization_config`. `file` names config.json in errors. Errors: kInvalidArgument, with
// the way to weights that plumb reads, if it is of another method.
absl::StatusOr<Quantization> ReadQuantization(const nlohmann::json& config,
                                              const std::string& file);

// Replaces quantized weights of the checkpoint, and their scales, by weights that are computed when
// they are read: from FP8 in f32, from MXFP4 in bf16, which has all of its numbers. Errors:
// kInvalidArgument with a list of all weights whose scales do not fit them.
absl::Status Dequantize(const Quantization& quantization, CheckpointDirectory* checkpoint);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_QUANTIZED_WEIGHTS_H_
