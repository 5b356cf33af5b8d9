// SPDX-License-Identifier: Apache-2.0
// What the tests of the spec module share: short models, their errors, and a directory to put files
// in.
#ifndef PLUMB_TESTS_SPEC_SPEC_TEST_UTIL_H_
#define PLUMB_TESTS_SPEC_SPEC_TEST_UTIL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/plugin/registry.h"
#include "runtime/spec/resolve.h"

namespace plumb {

// The dimensions that a model needs, on one line: what follows begins on line 2.
inline constexpr char kDims[] =
    "n_layer: 2 n_head: 2 d_model: 8 d_ff: 16 vocab_size: 11 context_length: 4\n";

inline constexpr char kBlock[] = "block { placement: \"pre\" norm: \"rms_norm\" }\n";

// A model with a placement "p" of these fields, which begin on line 4, and one norm for all slots.
std::string ModelWith(absl::string_view placement_fields);

std::string ShippedPlacements();  // the directory

// Resolves with the norms that plumb ships; `file` is what the text is called.
absl::StatusOr<ResolvedModel> ResolveText(absl::string_view text, PluginRegistry* plugins,
                                          const std::string& file = "m.pbtxt");
absl::StatusOr<ResolvedModel> ResolveText(absl::string_view text);

// The message of the error, or "no error".
std::string ErrorOf(absl::string_view model_text);
// That of a plain model with more in it, from line 2 on.
std::string ResolveError(absl::string_view rest);
// The first line: the others list what this build has.
std::string FirstLine(const std::string& text);
// That of ModelWith.
std::string PlacementError(absl::string_view placement_fields);

// A directory of its own, deleted with everything in it.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file, with the directories that it needs, and returns its path.
  std::string Write(absl::string_view name, absl::string_view content) const;
  // `text` with this directory's path taken out, for errors that are compared.
  std::string Hide(const std::string& text) const;

 private:
  std::string path_;
};

// Everything about a resolved model that formulas and builders see, as text. Equal text, equal
// model.
std::string Print(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_TESTS_SPEC_SPEC_TEST_UTIL_H_
