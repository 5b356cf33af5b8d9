// The kernel of matmul and its fused forms: a GEMV where the rows are few, a GEMM elsewhere.
#ifndef PLUMB_RUNTIME_OPS_MATMUL_KERNEL_H_
#define PLUMB_RUNTIME_OPS_MATMUL_KERNEL_H_

#include <memory>

#include "runtime/graph/op.h"
#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/gemm/gemm_policy.h"

namespace plumb {

std::unique_ptr<Kernel> MakeMatmulKernel(GemmSpec spec, const GemmPolicy& policy);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_MATMUL_KERNEL_H_
