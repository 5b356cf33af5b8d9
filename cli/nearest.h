// "did you mean": the nearest of some words to a misspelt one.
#ifndef PLUMB_CLI_NEAREST_H_
#define PLUMB_CLI_NEAREST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plumb::cli {

// `; did you mean "train"?`, or "" when none is near enough to be meant.
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& words);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_NEAREST_H_
