// SPDX-License-Identifier: Apache-2.0
// NewtonSchulz: Muon's orthogonalization: of a matrix G = U S V^T approximately U V^T, by a
// polynomial of odd degree in G (Jordan et al. 2024). A compiled program for each shape: its
// products are those of models, by the same engines. Owns its two matrices and their workspace. A
// run allocates nothing, oneDNN's packing buffers apart. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_NEWTON_SCHULZ_H_
#define PLUMB_RUNTIME_SESSION_NEWTON_SCHULZ_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/tensor_type.h"
#include "runtime/compile/executable.h"
#include "runtime/graph/op.h"

namespace plumb {

class NewtonSchulz {
 public:
  // For matrices of `shapes`, equal ones any number of times; `steps` >= 1. Allocates none of its
  // matrices yet.
  static absl::StatusOr<std::unique_ptr<NewtonSchulz>> Create(const OpRegistry& ops,
                                                              const std::vector<Shape>& shapes,
                                                              int steps);
  int64_t bytes() const { return 2 * matrix_bytes_ + workspace_bytes_; }
  // Before the first Run.
  void Allocate();

  float* input() const { return input_.as<float>(); }          // the matrix goes here, dense
  const float* output() const { return output_.as<float>(); }  // and comes out here

  // X = input / (its Frobenius norm + 1e-7); `steps` times, with the smaller side of X as rows,
  //   A = X X^T;  X = a X + (b A + c A A) X,  a, b, c = 3.4445, -4.7750, 2.0315
  // The input is scaled in place. `shape` is one of Create's. kResourceExhausted where oneDNN finds
  // no memory.
  absl::Status Run(const Shape& shape, int threads) const;

 private:
  NewtonSchulz() = default;
  std::vector<std::pair<Shape, std::unique_ptr<Executable>>> programs_;
  int64_t matrix_bytes_ = 0;  // of the largest
  int64_t workspace_bytes_ = 0;
  AlignedBuffer input_, output_, workspace_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_NEWTON_SCHULZ_H_
