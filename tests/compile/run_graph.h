// SPDX-License-Identifier: Apache-2.0
// Runs an executable on the values of a reference run, in memory of its own.
#ifndef PLUMB_TESTS_COMPILE_RUN_GRAPH_H_
#define PLUMB_TESTS_COMPILE_RUN_GRAPH_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/compile/executable.h"
#include "tests/compile/reference_run.h"

namespace plumb {

// Memory for everything that `executable` requires to be bound, filled from `feeds` and bound.
// Outputs contain NaN until they are written.
class BoundMemory {
 public:
  // Uses `workspace` instead of an own buffer, unless it is null.
  BoundMemory(Executable* executable, const ReferenceTensors& feeds, void* workspace = nullptr);

  // Returns the value in the memory bound to `name`.
  ReferenceTensor Read(const std::string& name) const;
  float* f32(const std::string& name) const { return memory_.at(name).as<float>(); }
  int32_t* i32(const std::string& name) const { return memory_.at(name).as<int32_t>(); }

 private:
  void Add(const std::string& name, const TensorType& type);

  Executable* executable_;
  std::map<std::string, AlignedBuffer> memory_;
  std::map<std::string, TensorType> types_;
  AlignedBuffer workspace_;
};

// Returns the largest |a - b| over all elements, relative to max(1, |b|); infinite if one is not a
// number or the sizes differ.
double LargestDifference(const ReferenceTensor& a, const ReferenceTensor& b);

}  // namespace plumb

#endif  // PLUMB_TESTS_COMPILE_RUN_GRAPH_H_
