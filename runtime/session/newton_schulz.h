// SPDX-License-Identifier: Apache-2.0
// NewtonSchulz: Muon's orthogonalization. Approximates U V^T of a matrix G = U S V^T by a
// polynomial of odd degree in G (Jordan et al. 2024). Each shape has a compiled program, whose
// products use the same engines as those of models. Owns its two matrices and their workspace. A
// run allocates nothing except oneDNN's packing buffers. Thread-compatible.
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
  // Compiles programs for matrices of `shapes`, which may repeat. Does not allocate its matrices
  // yet. Requires: steps >= 1.
  static absl::StatusOr<std::unique_ptr<NewtonSchulz>> Create(const OpRegistry& ops,
                                                              const std::vector<Shape>& shapes,
                                                              int steps);
  int64_t bytes() const { return 2 * matrix_bytes_ + workspace_bytes_; }
  // Allocates the matrices. Call it before the first Run.
  void Allocate();

  float* input() const { return input_.as<float>(); }          // dense
  const float* output() const { return output_.as<float>(); }  // result of Run

  // Computes X = input / (its Frobenius norm + 1e-7), then `steps` times, with the smaller side of
  // X as rows,
  //   A = X X^T;  X = a X + (b A + c A A) X,  a, b, c = 3.4445, -4.7750, 2.0315
  // The input is scaled in place. `shape` is one of Create's. Errors: kResourceExhausted if oneDNN
  // runs out of memory.
  absl::Status Run(const Shape& shape, int threads) const;

 private:
  NewtonSchulz() = default;
  std::vector<std::pair<Shape, std::unique_ptr<Executable>>> programs_;
  int64_t matrix_bytes_ = 0;  // size of the largest
  int64_t workspace_bytes_ = 0;
  AlignedBuffer input_, output_, workspace_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_NEWTON_SCHULZ_H_
