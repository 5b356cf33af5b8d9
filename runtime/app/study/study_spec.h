// SPDX-License-Identifier: Apache-2.0
// StudySpec: the models and training settings of a study (schema plumb.v1.Study). A value. Private
// to runtime/app.
#ifndef PLUMB_RUNTIME_APP_STUDY_STUDY_SPEC_H_
#define PLUMB_RUNTIME_APP_STUDY_STUDY_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/app/study/study.h"
#include "runtime/base/diagnostics.h"

namespace plumb {

struct StudySpec {
  struct Grid {
    SourceText field;
    std::vector<std::string> values;
  };

  std::vector<std::string> models;  // relative to the study's file
  std::string data, train, init;
  std::vector<SourceText> settings;  // "model.n_layer=4"
  std::vector<Grid> grid;
  StudyMatch match = StudyMatch::kSteps;
  std::optional<int64_t> seeds;  // number of seeds, 1 to N
  std::vector<uint64_t> seed_list;
  std::optional<int64_t> samples;
  int64_t choosing_seeds = 0;
  int64_t probe_every = 0;
  std::vector<std::string> probe_points;

  std::string ToText() const;
};

// Parses `text` in protobuf text format. `file` names it in errors. Reports all values out of range
// at once.
absl::StatusOr<StudySpec> ParseStudySpec(absl::string_view text, const std::string& file);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_STUDY_STUDY_SPEC_H_
