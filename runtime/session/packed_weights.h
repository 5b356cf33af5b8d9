// SPDX-License-Identifier: Apache-2.0
// PackedWeights: the weights of a ParameterStore in the form that programs of a WeightFormat read:
// packed or quantized. Vectors, the states of norms, and matrices that the store has in that format
// are read in place; other matrices are converted to a buffer of this class. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_PACKED_WEIGHTS_H_
#define PLUMB_RUNTIME_SESSION_PACKED_WEIGHTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/compile/executable.h"
#include "runtime/model/build.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"

namespace plumb {

class PackedWeights {
 public:
  // Packs on at most `threads` threads. `parameters` belongs to the context's model and must
  // outlive this.
  PackedWeights(const ModelContext& context, WeightFormat format, const ParameterStore& parameters,
                int threads = 1);

  WeightFormat format() const { return format_; }
  const ParameterStore& parameters() const { return *parameters_; }

  // Packs again, after the store has changed. Allocates nothing, except one block of rows when
  // split or 16-bit weights are quantized to int8.
  void Refresh();

  // Binds all weights to a program that was built with this format.
  absl::Status BindWeights(Executable* executable) const;
  // Binds the weights, and the store's norm states.
  absl::Status Bind(Executable* executable) const;

  // Returns the bytes that a step reads of all matrices, packed (with scales) or in place.
  int64_t matrix_bytes() const { return matrix_bytes_; }

  // Returns the bytes allocated in addition to the store.
  int64_t bytes() const { return buffer_.size(); }

 private:
  // A matrix, or the matrices of all experts, that is not read in place.
  struct Packed {
    size_t entry;  // in the store's layout
    DType dtype;
    int64_t matrices;
    int64_t rows, width;   // size of one matrix
    int64_t begin;         // offset in buffer_
    int64_t scales_begin;  // offset of int8's scales in buffer_
  };
  void RefreshInt8(const Packed& packed, int64_t matrix);

  const WeightFormat format_;
  const ParameterStore* parameters_;
  const int threads_;
  std::vector<Packed> packed_;
  struct InPlace {
    size_t entry;      // in the store's layout
    uint16_t* narrow;  // the bf16 in a file, if it has them; else null
  };
  std::vector<InPlace> in_place_;
  int64_t matrix_bytes_ = 0;
  AlignedBuffer buffer_;  // packed matrices
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PACKED_WEIGHTS_H_
