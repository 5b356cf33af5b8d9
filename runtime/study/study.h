// SPDX-License-Identifier: Apache-2.0
// Studies (plumb.v1.Study): models that are trained in the same way, with the same seeds, for
// comparison. The message is the value that everything else takes. Stateless functions,
// thread-safe.
#ifndef PLUMB_RUNTIME_STUDY_STUDY_H_
#define PLUMB_RUNTIME_STUDY_STUDY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plumb/v1/study.schema.h"

namespace plumb {

// Study whose paths are valid in the current directory, with the places of its settings and of the
// fields of its grid, for errors: "study.pbtxt:3:6" or "--set train.max_steps=200".
struct Study {
  v1::Study fields;
  std::vector<std::string> set_places, grid_places;
};

// Parses a study in protobuf's text format; `file` names it in errors, which are those of
// ReadStudy. Its paths stay as they are.
absl::StatusOr<Study> ParseStudy(absl::string_view text, const std::string& file);

// Reads a study. Its paths are relative to it. Errors: with "file:line:column", all at once if
// possible.
absl::StatusOr<Study> ReadStudy(const std::string& path);

// Field of a study that an option of a command sets, or for a repeated field adds to.
struct StudyChange {
  std::string option, field, value;  // "--seeds", "seeds", "20"
};

// Makes the study of a command line: `files` are models, or one study, to which the changes are
// applied in order. Changes of "seed" and "probe_point" replace those of the file. Three of them
// are no fields: "dtype" sets the recipe's, "probe" sets probe_every to its default, and "baseline"
// moves a model, a file, its name without ".pbtxt", or a value of the grid that makes models, to
// the first place. Errors: those of ReadStudy, and malformed values with their option.
absl::StatusOr<Study> MakeStudy(const std::vector<std::string>& files,
                                const std::vector<StudyChange>& changes);

// Returns the seeds that a study lists, or those from 1 to its number of seeds, by default 3.
std::vector<uint64_t> GetSeeds(const v1::Study& study);

// Splits "train.max_steps=200" at its "=". Requires: there is one.
std::pair<std::string, std::string> SplitSetting(const std::string& setting);

// Returns true if a grid's field is a setting with which every model is trained: a field of the
// recipe, or a size of the model ("model.n_layer"). Other fields of the model make another model of
// each value.
bool IsSetting(const std::string& field);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_STUDY_H_
