// SPDX-License-Identifier: Apache-2.0
// Runs a test body once for every instruction set that plumb's kernels are compiled for and this
// machine has, so that the fallbacks are tested on new machines too.
#ifndef PLUMB_TESTS_KERNELS_SIMD_TARGETS_H_
#define PLUMB_TESTS_KERNELS_SIMD_TARGETS_H_

#include <functional>
#include <string>

namespace plumb {

// body(name) with each target in force for kernels made in the meantime. Not thread-safe.
void ForEachSimdTarget(const std::function<void(const std::string& name)>& body);

}  // namespace plumb

#endif  // PLUMB_TESTS_KERNELS_SIMD_TARGETS_H_
