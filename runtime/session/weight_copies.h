// WeightCopies: the weights of a ParameterStore as programs of a WeightFormat read them. What
// stands in the store as such a program takes it is read there, in place: vectors and the states of
// norms always, matrices where program and store are of one format. Other matrices are copied.
// Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_WEIGHT_COPIES_H_
#define PLUMB_RUNTIME_SESSION_WEIGHT_COPIES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/compile/executable.h"
#include "runtime/model/build.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"

namespace plumb {

class WeightCopies {
 public:
  // Makes the copies, on at most `threads` threads. `parameters`, of that model, must outlive them.
  WeightCopies(const ModelContext& context, WeightFormat format, const ParameterStore& parameters,
               int threads = 1);

  WeightFormat format() const { return format_; }
  const ParameterStore& parameters() const { return *parameters_; }

  // Makes the copies anew, after the store has changed. Allocates nothing, except one block of rows
  // when split weights are quantized to int8.
  void Refresh();

  // Binds all weights to a program that was built with this format.
  absl::Status BindWeights(Executable* executable) const;
  // The weights, and the states of norms from the store.
  absl::Status Bind(Executable* executable) const;

  // What the matrices of a step that reads all of them take from memory: copies, scales included,
  // or what of the store is read in place.
  int64_t matrix_bytes() const { return matrix_bytes_; }

  // What the copies take beside the store.
  int64_t bytes() const { return buffer_.size(); }

 private:
  // A matrix that is not read in place.
  struct Copy {
    size_t entry;  // of the store's layout
    DType dtype;
    int64_t rows, width;
    int64_t begin;         // byte of buffer_
    int64_t scales_begin;  // the same, of an int8 copy's scales
  };
  void RefreshInt8(const Copy& copy);

  const WeightFormat format_;
  const ParameterStore* parameters_;
  const int threads_;
  std::vector<Copy> copies_;
  std::vector<size_t> in_place_;  // entries of the store's layout
  int64_t matrix_bytes_ = 0;
  AlignedBuffer buffer_;  // the copies
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_WEIGHT_COPIES_H_
