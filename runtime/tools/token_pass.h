// RunTokens: all that a model computes for given tokens, over plumb.h. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_TOKEN_PASS_H_
#define PLUMB_RUNTIME_TOOLS_TOKEN_PASS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "plumb.h"
#include "runtime/tools/handles.h"
#include "runtime/tools/model.h"

namespace plumb {

// A TokenBatch side by side, [rows, seq], as plumb_evaluator_run takes it.
struct PassBatch {
  int64_t rows = 0, seq = 0;
  std::vector<int32_t> inputs, targets, types;  // types: empty: 0
  bool has_targets = false;
};

// Errors: as Model::Run for what is given.
absl::StatusOr<PassBatch> ToPassBatch(const TokenBatch& batch, const plumb_model* model);

// An evaluator of such a batch, which is told its types.
absl::StatusOr<EvaluatorHandle> MakePassEvaluator(plumb_model* model, const PassBatch& batch,
                                                  bool logits, bool gradients);

// As Model::Run.
absl::StatusOr<Model::Outputs> RunTokens(plumb_model* model, const TokenBatch& batch,
                                         bool with_gradients);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_TOKEN_PASS_H_
