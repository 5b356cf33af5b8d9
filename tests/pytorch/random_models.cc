// SPDX-License-Identifier: Apache-2.0
// Prints models with random formulas for random_test.py, each after a line "# seed N".
//
//   random_models FIRST_SEED COUNT
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "tests/model/random_placement.h"

int main(int argc, char** argv) {
  if (argc != 3) return EXIT_FAILURE;
  const uint64_t first = std::strtoull(argv[1], nullptr, 10);
  const uint64_t count = std::strtoull(argv[2], nullptr, 10);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    std::cout << "# seed " << seed << "\n" << plumb::RandomModel(seed) << "\n";
  }
  return EXIT_SUCCESS;
}
