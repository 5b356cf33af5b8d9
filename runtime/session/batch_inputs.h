// SPDX-License-Identifier: Apache-2.0
// BatchInputs: what a batch is to a program: tokens, positions, targets, and, of models that have
// them, token types and the lengths of the sequences. Owns the memory that programs of all lengths
// read it from. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_BATCH_INPUTS_H_
#define PLUMB_RUNTIME_SESSION_BATCH_INPUTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/compile/executable.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// All are [rows, seq].
struct BatchIds {
  const int32_t* tokens = nullptr;  // those < 0 at the end of a row are padding
  const int32_t* positions = nullptr;
  const int32_t* targets = nullptr;
  const int32_t* types = nullptr;  // null: 0
};

class BatchInputs {
 public:
  // The memory of one, in bytes.
  static int64_t Bytes(const ResolvedModel& model, int64_t rows, int64_t max_seq);

  BatchInputs(const ResolvedModel& model, int64_t rows, int64_t max_seq);

  // Copies a batch of `seq` tokens a row, at most max_seq, and finds the lengths of its sequences.
  // Padding is read as token 0, and a row without a token as one of length 1.
  void Set(const BatchIds& ids, int64_t seq);
  // Binds those of them that the program reads.
  absl::Status Bind(Executable* executable) const;

  int64_t bytes() const;

 private:
  int64_t rows_;
  AlignedBuffer tokens_, positions_, targets_;
  AlignedBuffer types_, lengths_;  // empty where the model has none
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_BATCH_INPUTS_H_
