// SPDX-License-Identifier: Apache-2.0
// ModelWork: the minimal FLOPs and bytes of a model's passes, independent of the implementation,
// for comparison with measured times. Pure.
#ifndef PLUMB_RUNTIME_SESSION_WORK_H_
#define PLUMB_RUNTIME_SESSION_WORK_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/graph/graph.h"
#include "runtime/session/program.h"

namespace plumb {

struct ModelWork {
  // FLOPs of the matrix products of one forward pass over [batch, seq]: linear layers (2 per weight
  // and token; only the experts that a token chose) and attention, counted as if every token
  // attended to all `seq` tokens (Chowdhery et al. 2022, PaLM, appendix B), or to its whole window.
  // A training step is three times that. A prompt needs logits of its last token only, so the last
  // layer's queries and all that follows are counted for one token.
  double forward_flops = 0;
  // Bytes of the parameters that a forward pass reads: all but embedding tables that are not also
  // the head, and at most one expert per token of each mixture.
  int64_t weight_bytes = 0;
};

// Counts a program with `options`. For kCached, attention covers the tokens of the call only.
absl::StatusOr<ModelWork> CountWork(const ModelContext& context, const BuildOptions& options);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_WORK_H_
