// SPDX-License-Identifier: Apache-2.0
// GradientSums: the gradients of the unit that is computed, and the sums of the units before it, of
// one rank: the nodes of the UnitTree as far as its units reach. Owns their memory, each in the
// layout of the parameters. Allocates in its constructor only. Thread-compatible.
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
  // `wire`: kBF16: every gradient and every sum is rounded to bf16.
  GradientSums(const ParameterLayout& layout, int64_t units, const UnitRange& range, DType wire);

  static int64_t Bytes(int64_t elements, int64_t units, const UnitRange& range) {
    return (1 + SumsToKeep(units, range)) * elements * SizeOf(DType::kF32);
  }
  int64_t bytes() const;

  // Where a pass leaves the gradients of its unit.
  float* pass() const { return pass_.as<float>(); }

  // Before the first unit of a step.
  void Begin() { next_ = range_.begin; }
  // Adds the unit that was computed to the sums. REQUIRES: it is not the last of the range.
  void Add(int threads);
  // Adds the last unit of the range to the sums, of elements `part` only. `squares` (may be null):
  // [parameters] of the layout, of which those that lie in `part`, each whole, get the sum of the
  // squares of their last sum.
  // REQUIRES: the units before were added.
  void AddLast(const ElementRange& part, int threads, double* squares) const;

  // After AddLast: the largest nodes of the tree that lie in the range, in order, and their sums.
  const std::vector<UnitRange>& nodes() const { return nodes_; }
  float* sum(size_t node) const { return sums_[node]; }

  // Elements `part` of one sum += those of another, rounded as the wire wants it; `to` and `from`
  // point at the first of them.
  void AddTo(const float* from, const ElementRange& part, int threads, float* to,
             double* squares) const;

 private:
  // What happens after a unit: sums are added to those before them.
  void Fold(float* top, size_t below, int sums, const ElementRange& part, int threads,
            double* squares) const;
  void RoundToWire(float* data, int64_t n, int threads) const;
  template <class Body>
  void ForEachParameter(const ElementRange& part, const Body& body) const;

  const ParameterLayout layout_;
  const DType wire_;
  struct Unit {
    size_t below = 0;  // sums on the stack before it
    int sums = 0;      // that it completes
  };
  // Of one unit of the range.
  Unit UnitAt(int64_t unit) const;

  int64_t all_units_;
  UnitRange range_;
  std::vector<UnitRange> nodes_;
  std::vector<float*> sums_;  // of nodes_
  AlignedBuffer pass_;
  std::vector<AlignedBuffer> stack_;
  int64_t next_ = 0;  // unit
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_GRADIENT_SUMS_H_
