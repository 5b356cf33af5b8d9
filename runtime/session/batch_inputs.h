// SPDX-License-Identifier: Apache-2.0
// BatchInputs: the inputs of a program for one batch: tokens, positions, targets and, if the model
// has them, token types and sequence lengths. Owns the memory that the programs of all lengths
// read. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_BATCH_INPUTS_H_
#define PLUMB_RUNTIME_SESSION_BATCH_INPUTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/compile/executable.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// Inputs of one batch, each [rows, seq].
struct BatchIds {
  const int32_t* tokens = nullptr;  // negative ids at the end of a row are padding
  const int32_t* positions = nullptr;
  const int32_t* targets = nullptr;
  const int32_t* types = nullptr;  // null: all 0
};

class BatchInputs {
 public:
  // Returns the bytes that one BatchInputs allocates.
  static int64_t Bytes(const ResolvedModel& model, int64_t rows, int64_t max_seq);

  BatchInputs(const ResolvedModel& model, int64_t rows, int64_t max_seq);

  // Copies a batch of `seq` tokens per row, at most max_seq, and computes the lengths of its
  // sequences. Padding is replaced by token 0, and an empty row has length 1.
  void Set(const BatchIds& ids, int64_t seq);
  // Binds the inputs that the program reads.
  absl::Status Bind(Executable* executable) const;

  int64_t bytes() const;

 private:
  int64_t rows_;
  AlignedBuffer tokens_, positions_, targets_;
  AlignedBuffer types_, lengths_;  // empty if the model has none
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_BATCH_INPUTS_H_
