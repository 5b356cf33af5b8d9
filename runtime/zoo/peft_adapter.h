// SPDX-License-Identifier: Apache-2.0
// LoRA adapters in the layout of Hugging Face's peft: adapter_config.json, and
// adapter_model.safetensors with the matrices A [rank, in] and B [out, rank] of each adapted module
//   W + scale B A,  scale = lora_alpha / rank, or lora_alpha / sqrt(rank) with use_rslora,
// and the whole weights of modules that were trained without an adapter. Treats every byte as
// untrusted, as CheckpointDirectory does. Stateless.
#ifndef PLUMB_RUNTIME_ZOO_PEFT_ADAPTER_H_
#define PLUMB_RUNTIME_ZOO_PEFT_ADAPTER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/zoo/checkpoint_directory.h"
#include "runtime/zoo/family.h"
#include "runtime/zoo/tensor_pieces.h"

namespace plumb {

// Update scale * up * down of a weight [out, in].
struct LowRankUpdate {
  const float *up, *down;  // [out, rank], [rank, in]
  int64_t out, rank, in;
  double scale;

  // Adds the update to the weight, which is [in, out] if it is `transposed`.
  void AddTo(float* weight, bool transposed) const;
};

// Merges the adapter in `directory` into the weights of the checkpoint, which are then computed in
// f32 when they are read. `pieces`: the model's, from ResolvePieces. Errors: kInvalidArgument with
// a list of all settings and tensors that are not understood or do not fit; kNotFound.
absl::Status MergePeftAdapter(const std::string& directory, const Family& family,
                              absl::Span<const TensorPiece> pieces,
                              CheckpointDirectory* checkpoint);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_PEFT_ADAPTER_H_
