// SPDX-License-Identifier: Apache-2.0
// Runs a test once for every instruction set that plumb's kernels are compiled for and this machine
// supports, so that the fallbacks are tested on new machines, too.
#ifndef PLUMB_TESTS_KERNELS_SIMD_TARGETS_H_
#define PLUMB_TESTS_KERNELS_SIMD_TARGETS_H_

#include <functional>
#include <string>

namespace plumb {

// Calls body(name) for each target, to which kernels created in the body are restricted. Not
// thread-safe.
void ForEachSimdTarget(const std::function<void(const std::string& name)>& body);

}  // namespace plumb

#endif  // PLUMB_TESTS_KERNELS_SIMD_TARGETS_H_
