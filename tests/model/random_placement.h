// SPDX-License-Identifier: Apache-2.0
// Models with random formulas: small stacks whose placement uses every construct of the language.
// Most are valid, some are damaged. The same seed gives the same text.
#ifndef PLUMB_TESTS_MODEL_RANDOM_PLACEMENT_H_
#define PLUMB_TESTS_MODEL_RANDOM_PLACEMENT_H_

#include <cstdint>
#include <string>

namespace plumb {

std::string RandomModel(uint64_t seed);

}  // namespace plumb

#endif  // PLUMB_TESTS_MODEL_RANDOM_PLACEMENT_H_
