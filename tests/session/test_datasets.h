// SPDX-License-Identifier: Apache-2.0
// Small data sets in memory, drawn from a seed.
#ifndef PLUMB_TESTS_SESSION_TEST_DATASETS_H_
#define PLUMB_TESTS_SESSION_TEST_DATASETS_H_

#include <gtest/gtest.h>

#include <string>

#include "runtime/base/rng.h"
#include "runtime/data/data.h"

namespace plumb {

// Returns `count` lines of `shortest`..`longest` of the letters a..e. With the begin/end token
// there are 6 tokens.
inline Dataset Documents(int count, int shortest, int longest, double val_fraction = 0) {
  const RngStream stream(5, "documents");
  uint64_t draw = 0;
  std::string content;
  for (int i = 0; i < count; ++i) {
    const int length = shortest + static_cast<int>(stream.Below(
                                      draw++, static_cast<uint64_t>(longest - shortest + 1)));
    for (int k = 0; k < length; ++k) content += static_cast<char>('a' + stream.Below(draw++, 5));
    content += '\n';
  }
  DatasetOptions options;
  options.format = DatasetOptions::Format::kDocuments;
  options.val_fraction = val_fraction;
  return *Dataset::FromContent(content, "documents.txt", options);
}

// Returns one text of `size` letters, of the first `letters` of the alphabet, with some structure
// to learn.
inline Dataset TextDataset(int size, int letters, double val_fraction = 0) {
  const RngStream stream(5, "text");
  std::string content;
  int state = 0;
  for (int i = 0; i < size; ++i) {
    const int jump = static_cast<int>(stream.Below(static_cast<uint64_t>(i), 3));
    state = i < letters ? i : (state + jump) % letters;  // every letter at least once
    content += static_cast<char>('a' + state);
  }
  DatasetOptions options;
  options.val_fraction = val_fraction;
  return *Dataset::FromContent(content, "text.txt", options);
}

}  // namespace plumb

#endif  // PLUMB_TESTS_SESSION_TEST_DATASETS_H_
