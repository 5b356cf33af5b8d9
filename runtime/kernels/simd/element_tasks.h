// SPDX-License-Identifier: Apache-2.0
// ElementTasks: partitions elementwise work on n elements, by shape alone, into ranges that start
// on cache lines. A value.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_ELEMENT_TASKS_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_ELEMENT_TASKS_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"

namespace plumb {

class ElementTasks {
 public:
  // `cost` is the number of scalar operations per element.
  ElementTasks(int64_t n, int64_t cost)
      : n_(n), lines_(CeilDiv(n, kLineElements)), tasks_(TaskCount(lines_, n * cost)) {}

  // Calls body(begin, end) for every range.
  template <class Body>
  void Run(int threads, const Body& body) const {
    if (tasks_ == 1) {
      body(int64_t{0}, n_);
      return;
    }
    ParallelFor(tasks_, threads, [&](int64_t i) {
      const Range lines = TaskRange(lines_, tasks_, i);
      body(lines.begin * kLineElements, std::min(n_, lines.end * kLineElements));
    });
  }

 private:
  static constexpr int64_t kLineElements = 32;  // one cache line of bf16, two of f32
  int64_t n_;
  int64_t lines_;
  int64_t tasks_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_ELEMENT_TASKS_H_
