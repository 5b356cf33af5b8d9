// A model's tensors as a table for people: layers that repeat share a line.
#ifndef PLUMB_CLI_TENSOR_TABLE_H_
#define PLUMB_CLI_TENSOR_TABLE_H_

#include <string>
#include <vector>

#include "runtime/tools/model.h"

namespace plumb::cli {

// Lines such as "  layers.0..7.attention.q.weight  [16, 16] x 8  uniform(-0.25, 0.25)  2,048",
// columns aligned, in the order of each line's first tensor.
std::string TensorTable(const std::vector<TensorInfo>& tensors);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_TENSOR_TABLE_H_
