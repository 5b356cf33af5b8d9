// SPDX-License-Identifier: Apache-2.0
// Models of random formulas: small stacks whose placement uses every construct of the language,
// most of them right, some of them damaged. The same seed writes the same text.
#ifndef PLUMB_TESTS_MODEL_RANDOM_PLACEMENT_H_
#define PLUMB_TESTS_MODEL_RANDOM_PLACEMENT_H_

#include <cstdint>
#include <string>

namespace plumb {

std::string RandomModel(uint64_t seed);

}  // namespace plumb

#endif  // PLUMB_TESTS_MODEL_RANDOM_PLACEMENT_H_
