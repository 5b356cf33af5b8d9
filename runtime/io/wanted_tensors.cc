#include "runtime/io/wanted_tensors.h"

#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/mistakes.h"
#include "runtime/base/suggest.h"

namespace plumb {

absl::Status CheckTensorsFit(const SafetensorsFile& file, absl::Span<const WantedTensor> wanted,
                             absl::string_view prefix) {
  std::vector<std::string> mistakes;
  std::set<std::string> known;
  for (const WantedTensor& tensor : wanted) {
    known.insert(tensor.name);
    const TensorEntry* found = file.Find(tensor.name);
    if (found == nullptr) {
      mistakes.push_back(absl::StrCat("missing: ", tensor.name, " f32", tensor.shape.ToString()));
    } else if (found->dtype != "F32" || found->shape != tensor.shape) {
      mistakes.push_back(absl::StrCat("misshapen: ", tensor.name, " is ", found->dtype,
                                      found->shape.ToString(), ", the model has F32",
                                      tensor.shape.ToString()));
    }
  }
  const std::vector<std::string> names(known.begin(), known.end());
  for (const TensorEntry& tensor : file.tensors()) {
    if (!absl::StartsWith(tensor.name, prefix) || known.count(tensor.name) > 0) continue;
    const bool shown = mistakes.size() < kShownMistakes;  // suggestions take their time
    mistakes.push_back(
        absl::StrCat("surplus: ", tensor.name, shown ? DidYouMean(tensor.name, names) : ""));
  }
  if (mistakes.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": does not fit the model:\n  ", ListMistakes(mistakes, "\n  ")));
}

}  // namespace plumb
