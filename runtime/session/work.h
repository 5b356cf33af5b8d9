// SPDX-License-Identifier: Apache-2.0
// ModelWork: the least FLOPs and bytes of a model's passes, independent of the implementation, for
// comparison with measured times. Pure.
#ifndef PLUMB_RUNTIME_SESSION_WORK_H_
#define PLUMB_RUNTIME_SESSION_WORK_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/graph/graph.h"
#include "runtime/session/program.h"

namespace plumb {

struct ModelWork {
  // Multiplications and additions of the matrix products of one forward pass over [batch, seq]:
  // linear layers (2 a weight and token; of experts, a token has those that it chose) and
  // attention, counted as if every token attended to all `seq` tokens (Chowdhery et al. 2022, PaLM,
  // appendix B), or to as many as its window has. A training step is three times that. Of a prompt,
  // whose logits are the last token's, the last layer's queries and what follows them are counted
  // for that token alone.
  double forward_flops = 0;
  // Bytes of all parameters that a forward pass reads whole: everything but tables of embeddings
  // that are not the head too. Of experts as many as tokens can choose: those of one token, where
  // there is one.
  int64_t weight_bytes = 0;
};

// Of a program with `options`; of kCached, attention sees the tokens of the call alone.
absl::StatusOr<ModelWork> CountWork(const ModelContext& context, const BuildOptions& options);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_WORK_H_
