// SPDX-License-Identifier: Apache-2.0
// Study options of the command line, which override a study file if there is one.
#ifndef PLUMB_RUNTIME_APP_STUDY_STUDY_OPTIONS_H_
#define PLUMB_RUNTIME_APP_STUDY_STUDY_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/app/study/study.h"

namespace plumb {

struct StudyOptions {
  std::vector<std::string> files;  // models, or one study
  std::string baseline;            // file or name of the model to list first; "" if not given
  std::string data, train, init;   // "" if not given
  std::vector<std::string> settings, grid;
  std::string match;  // "steps", "flops", "parameters"; "" if not given
  std::string dtype;  // "f32", "bf16"; "" if not given
  int64_t seeds = 0;  // 0: not given
  std::vector<std::string> seed_list;
  int64_t choosing_seeds = 0;  // 0: not given
  int64_t samples = -1;        // -1: not given
  bool probe = false;
  int64_t probe_every = -1;  // -1: not given
  std::vector<std::string> probe_points;
};

// Builds the study; its seeds are 1 to 3 unless others are given. Errors: those of Study::FromFile,
// and malformed settings, grids or seeds.
absl::StatusOr<Study> MakeStudy(const StudyOptions& options);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_STUDY_STUDY_OPTIONS_H_
