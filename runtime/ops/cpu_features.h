// The instruction set that plumb's own kernels chose on this machine: "AVX3", "AVX2", ...
#ifndef PLUMB_RUNTIME_OPS_CPU_FEATURES_H_
#define PLUMB_RUNTIME_OPS_CPU_FEATURES_H_

#include <string>

namespace plumb {
std::string KernelTarget();
}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_CPU_FEATURES_H_
