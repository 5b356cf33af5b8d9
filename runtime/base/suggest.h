// "did you mean": the nearest name to a misspelt one.
#ifndef PLUMB_RUNTIME_BASE_SUGGEST_H_
#define PLUMB_RUNTIME_BASE_SUGGEST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plumb {

// `; did you mean "layer"?`, or "" when nothing is near enough to be meant.
std::string DidYouMean(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_SUGGEST_H_
