// SPDX-License-Identifier: Apache-2.0
// ElementwiseKernel: an op whose element i is a function of the elements i of its inputs, and of
// nothing else. Immutable.
#ifndef PLUMB_RUNTIME_OPS_ELEMENTWISE_KERNEL_H_
#define PLUMB_RUNTIME_OPS_ELEMENTWISE_KERNEL_H_

#include <cstdint>

#include "runtime/graph/op.h"
#include "runtime/kernels/simd/element_tasks.h"

namespace plumb {

// Elements [begin, end) of operands that are all f32 or all bf16, `in` and `out` as the op's. A
// result may be any of the inputs: each vector is read before it is written.
using ElementwiseFn = void (*)(const void* const* in, void* const* out, int64_t begin, int64_t end);

class ElementwiseKernel : public Kernel {
 public:
  // `cost`: scalar operations an element, roughly.
  ElementwiseKernel(int64_t elements, int64_t cost, ElementwiseFn fn)
      : tasks_(elements, cost), fn_(fn) {}

  absl::Status Run(const KernelArgs& args) const override {
    tasks_.Run(args.threads,
               [&](int64_t begin, int64_t end) { fn_(args.in, args.out, begin, end); });
    return absl::OkStatus();
  }

 private:
  ElementTasks tasks_;
  ElementwiseFn fn_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_ELEMENTWISE_KERNEL_H_
