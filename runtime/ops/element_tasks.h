// ElementTasks: elementwise work on n elements, cut by shape alone into ranges that start on cache
// lines. A value.
#ifndef PLUMB_RUNTIME_OPS_ELEMENT_TASKS_H_
#define PLUMB_RUNTIME_OPS_ELEMENT_TASKS_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/parallel.h"

namespace plumb {

class ElementTasks {
 public:
  // `cost`: scalar operations an element.
  ElementTasks(int64_t n, int64_t cost)
      : n_(n), lines_((n + kLine - 1) / kLine), tasks_(TaskCount(lines_, n * cost)) {}

  // body(begin, end) for every range.
  template <class Body>
  void Run(int threads, const Body& body) const {
    if (tasks_ == 1) {
      body(int64_t{0}, n_);
      return;
    }
    ParallelFor(tasks_, threads, [&](int64_t i) {
      const Range lines = TaskRange(lines_, tasks_, i);
      body(lines.begin * kLine, std::min(n_, lines.end * kLine));
    });
  }

 private:
  static constexpr int64_t kLine = 32;  // elements: one cache line of bf16, two of f32
  int64_t n_;
  int64_t lines_;
  int64_t tasks_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_ELEMENT_TASKS_H_
