// WeightCopies: the weights of a ParameterStore as programs of a WeightFormat read them. Matrices
// that such a program takes as bf16 or int8 are copied into that form; all else (vectors, the
// states of norms, and everything in f32) is read from the store in place. Thread-compatible.
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

  // Makes the copies anew, after the store has changed. Allocates nothing.
  void Refresh();

  // Binds all weights to a program that was built with this format.
  absl::Status BindWeights(Executable* executable) const;
  // The weights, and the states of norms from the store.
  absl::Status Bind(Executable* executable) const;

  // Where the bf16 copies stand: element i of the store's data() is copied to element i here, if it
  // is of a matrix (the rest is never read). So whoever writes the store may write the copies in
  // the same pass over memory, instead of calling Refresh. Null unless the format is kBf16.
  uint16_t* bf16_data() const { return bf16_.as<uint16_t>(); }

  // What the matrices of a step that reads all of them take from memory: copies, scales included,
  // or the store's own floats.
  int64_t matrix_bytes() const { return matrix_bytes_; }

  // What the copies take beside the store.
  int64_t bytes() const { return bf16_.size() + int8_.size() + scales_.size(); }

 private:
  // A matrix that is not read in place.
  struct Copy {
    size_t entry;  // of the store's layout
    int64_t rows, width;
    int64_t begin;         // int8: in int8_
    int64_t scales_begin;  // int8: in scales_
  };

  const WeightFormat format_;
  const ParameterStore* parameters_;
  const int threads_;
  std::vector<Copy> copies_;
  std::vector<size_t> in_place_;  // entries of the store's layout
  int64_t matrix_bytes_ = 0;
  AlignedBuffer bf16_;           // uint16_t, in the store's layout
  AlignedBuffer int8_, scales_;  // int8_t; float
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_WEIGHT_COPIES_H_
