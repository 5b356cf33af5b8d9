// Norm instances for tests: of the shipped plugins, built beside the tests, and of the linked-in
// one.
#ifndef PLUMB_TESTS_OPS_NORM_CASES_H_
#define PLUMB_TESTS_OPS_NORM_CASES_H_

#include <memory>
#include <string>

#include "runtime/ops/ops.h"

namespace plumb {

// The `instance` attribute of a norm op: the plugin with this id with default attributes, for rows
// of `dim`. Keeps its plugin alive.
std::shared_ptr<const NormAttr> MakeNormAttr(const std::string& id, int64_t dim);

}  // namespace plumb

#endif  // PLUMB_TESTS_OPS_NORM_CASES_H_
