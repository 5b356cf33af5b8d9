// SPDX-License-Identifier: Apache-2.0
// PackedWeights: the weights of a ParameterStore as programs of a WeightFormat read them, packed or
// quantized. Vectors, the states of norms, and matrices that the store holds in that format are
// read in place; other matrices are converted to a buffer of this class. Thread-compatible.
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
  // Packs on at most `threads` threads. `parameters`, of that model, must outlive this.
  PackedWeights(const ModelContext& context, WeightFormat format, const ParameterStore& parameters,
                int threads = 1);

  WeightFormat format() const { return format_; }
  const ParameterStore& parameters() const { return *parameters_; }

  // Packs again, after the store has changed. Allocates nothing, except one block of rows when
  // split weights are quantized to int8.
  void Refresh();

  // Binds all weights to a program that was built with this format.
  absl::Status BindWeights(Executable* executable) const;
  // The weights, and the states of norms from the store.
  absl::Status Bind(Executable* executable) const;

  // Bytes that a step reads of all matrices, packed (scales included) or in place.
  int64_t matrix_bytes() const { return matrix_bytes_; }

  // Bytes in addition to the store.
  int64_t bytes() const { return buffer_.size(); }

 private:
  // A matrix, or one of each expert, that is not read in place.
  struct Packed {
    size_t entry;  // of the store's layout
    DType dtype;
    int64_t matrices;
    int64_t rows, width;   // of one
    int64_t begin;         // byte of buffer_
    int64_t scales_begin;  // the same, of the scales of int8
  };
  void RefreshInt8(const Packed& packed, int64_t matrix);

  const WeightFormat format_;
  const ParameterStore* parameters_;
  const int threads_;
  std::vector<Packed> packed_;
  struct InPlace {
    size_t entry;      // of the store's layout
    uint16_t* narrow;  // in a file that has it as bf16; else null
  };
  std::vector<InPlace> in_place_;
  int64_t matrix_bytes_ = 0;
  AlignedBuffer buffer_;  // of the packed matrices
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PACKED_WEIGHTS_H_
