// SPDX-License-Identifier: Apache-2.0
// ProgramKernelOf: the kernels of ops that programs know, where such an op is a node of its own.
#ifndef PLUMB_RUNTIME_OPS_PROGRAM_KERNEL_H_
#define PLUMB_RUNTIME_OPS_PROGRAM_KERNEL_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/graph/op.h"

namespace plumb {

// Returns what makes kernels of the op `name`: a program of that op alone.
std::function<absl::StatusOr<std::unique_ptr<Kernel>>(const OpTypes&)> ProgramKernelOf(
    const char* name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_PROGRAM_KERNEL_H_
