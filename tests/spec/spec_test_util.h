// SPDX-License-Identifier: Apache-2.0
// Shared parts of the tests of the spec module: short models, their errors, and a directory for
// files.
#ifndef PLUMB_TESTS_SPEC_SPEC_TEST_UTIL_H_
#define PLUMB_TESTS_SPEC_SPEC_TEST_UTIL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/plugin/registry.h"
#include "runtime/spec/resolve.h"

namespace plumb {

// Dimensions that a model needs, on one line, so that the following text begins on line 2.
inline constexpr char kDims[] =
    "n_layer: 2 n_head: 2 d_model: 8 d_ff: \"16\" vocab_size: 11 context_length: 4\n";

inline constexpr char kBlock[] = "block { placement: \"pre\" norm: \"rms_norm\" }\n";

// Returns a model with a placement "p" of these fields, which begin on line 4, and one norm for all
// slots.
std::string ModelWith(absl::string_view placement_fields);

std::string ShippedPlacements();  // the directory of the shipped placements

// Resolves a model with the shipped norms. Errors use `file` as the name of the text.
absl::StatusOr<ResolvedModel> ResolveText(absl::string_view text, PluginRegistry* plugins,
                                          const std::string& file = "m.pbtxt");
absl::StatusOr<ResolvedModel> ResolveText(absl::string_view text);

// Returns the message of the error, or "no error".
std::string GetError(absl::string_view model_text);
// Returns the error of a plain model with further text from line 2 on.
std::string ResolveError(absl::string_view rest);
// Returns the first line. The others list the names of this build.
std::string FirstLine(const std::string& text);
// Returns the error of ModelWith.
std::string PlacementError(absl::string_view placement_fields);

// Temporary directory, which is deleted with all its files.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file and the directories that it needs. Returns its path.
  std::string Write(absl::string_view name, absl::string_view content) const;
  // Returns `text` without this directory's path, for comparisons of errors.
  std::string Hide(const std::string& text) const;

 private:
  std::string path_;
};

// Returns all properties of a resolved model that formulas and builders use, as text. Models are
// equal if their texts are.
std::string Print(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_TESTS_SPEC_SPEC_TEST_UTIL_H_
