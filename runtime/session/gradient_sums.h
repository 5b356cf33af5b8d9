// SPDX-License-Identifier: Apache-2.0
// GradientSums: the gradients of the current unit, and the sums of the units before it, of one
// rank: those nodes of the UnitTree in its range. Owns their memory, each in the layout of
// the parameters without the frozen ones. Allocates in its constructor only. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_GRADIENT_SUMS_H_
#define PLUMB_RUNTIME_SESSION_GRADIENT_SUMS_H_

#include <cstdint>
#include <vector>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/tensor_type.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/unit_tree.h"

namespace plumb {

// Elements [begin, end) of the flat buffers.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

class GradientSums {
 public:
  GradientSums(const ParameterLayout& layout, int64_t units, const UnitRange& range);

  static int64_t Bytes(int64_t elements, int64_t units, const UnitRange& range) {
    return (1 + SumsToKeep(units, range)) * elements * SizeOf(DType::kF32);
  }
  int64_t bytes() const;
  const ParameterLayout& layout() const { return layout_; }

  // Buffer into which a pass writes the gradients of its unit.
  float* pass() const { return pass_.as<float>(); }

  // Begins a step.
  void Begin() { next_ = range_.begin; }
  // Adds the current unit to the sums. Requires: it is not the last of the range.
  void Add(int threads);
  // Adds the last unit, elements `part` only. Sets squares[i] to the sum of squares of the last sum
  // of each parameter i that is entirely in `part`; `squares` [parameters of the layout] may be
  // null. Requires: all other units of the range were added.
  void AddLast(const ElementRange& part, int threads, double* squares) const;

  // Maximal nodes of the tree in the range, in order, and their sums, which AddLast completes.
  const std::vector<UnitRange>& nodes() const { return nodes_; }
  float* sum(size_t node) const { return sums_[node]; }

  // Adds elements `part` of one sum to another. `to` and `from` point at the first of them.
  // `squares` as in AddLast.
  void AddTo(const float* from, const ElementRange& part, int threads, float* to,
             double* squares) const;

 private:
  // Adds `top` to the topmost sum, that one to the sum below it, and so on for `sums` additions.
  void Fold(float* top, size_t below, int sums, const ElementRange& part, int threads,
            double* squares) const;
  template <class Body>
  void ForEachParameter(const ElementRange& part, const Body& body) const;

  const ParameterLayout layout_;
  struct Unit {
    size_t below = 0;  // sums on the stack before the unit
    int sums = 0;      // additions that it completes
  };
  // Returns what adding a unit of the range does to the stack.
  Unit UnitAt(int64_t unit) const;

  int64_t all_units_;
  UnitRange range_;
  std::vector<UnitRange> nodes_;
  std::vector<float*> sums_;  // indexed like nodes_
  AlignedBuffer pass_;
  std::vector<AlignedBuffer> stack_;
  int64_t next_ = 0;  // next unit to be added
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_GRADIENT_SUMS_H_
