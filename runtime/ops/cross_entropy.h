// SPDX-License-Identifier: Apache-2.0
// Code shared by the kernels and the references of cross_entropy and cross_entropy_grad, and these
// references. Stateless.
#ifndef PLUMB_RUNTIME_OPS_CROSS_ENTROPY_H_
#define PLUMB_RUNTIME_OPS_CROSS_ENTROPY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/graph/attrs.h"
#include "runtime/graph/op.h"

namespace plumb {

// The objective, if it is not the cross-entropy itself:
//   1/n sum_r ((1 - e) (lse_r - x_r[t_r]) + e mean_j (lse_r - x_rj) + z lse_r^2)
// with label smoothing e (Szegedy et al. 2016, as in torch.nn.functional.cross_entropy) and the
// z-loss z, which keeps the softmax's normalizer near 1 (Chowdhery et al., PaLM, section 5).
struct Objective {
  double label_smoothing;
  double z_loss;

  explicit Objective(const Attrs& attrs)
      : label_smoothing(attrs.GetDouble("label_smoothing", 0)),
        z_loss(attrs.GetDouble("z_loss", 0)) {}
  bool IsCrossEntropy() const { return label_smoothing == 0 && z_loss == 0; }
};

// Returns the number of rows with a target; kOutOfRange if a target is not in the vocabulary.
absl::StatusOr<int64_t> CountTargets(const int32_t* targets, int64_t rows, int64_t vocabulary);

absl::Status ReferenceCrossEntropy(const ReferenceArgs& args);
absl::Status ReferenceCrossEntropyGrad(const ReferenceArgs& args);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_CROSS_ENTROPY_H_
