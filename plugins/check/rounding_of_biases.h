// Part of X4: how bf16 rounds what is known to the bit.
#ifndef PLUMB_PLUGINS_CHECK_ROUNDING_OF_BIASES_H_
#define PLUMB_PLUGINS_CHECK_ROUNDING_OF_BIASES_H_

#include <string>

#include "plumb/norm_plugin.h"

namespace plumb::check {

// Rows of zeros: y is 0, or a bias as it stands, which bf16 rounds exactly: to even between two
// numbers, to infinity beyond the largest; and a NaN stays one, whatever its bits. What is wrong,
// or
// ""; also of norms without f32, over rows, or of two inputs, of which nothing is known.
std::string RoundingOfBiases(const plumb_norm_plugin& norm);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_ROUNDING_OF_BIASES_H_
