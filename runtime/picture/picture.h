// SPDX-License-Identifier: Apache-2.0
// DrawModel: draws the data flow of a model's blocks as an SVG file. Stateless.
//
//   model --RecordFlow--> FlowPicture --LayOut--> FlowLayout --Measure--> PictureBox
//         --ToSvg--> text
#ifndef PLUMB_RUNTIME_PICTURE_PICTURE_H_
#define PLUMB_RUNTIME_PICTURE_PICTURE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/picture/flow.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

struct PictureOptions {
  // Layer to show, from 0. If absent, there is one section per kind of layer: layers that differ
  // only in numbers are of one kind, which shows ranges of numbers.
  std::optional<int64_t> layer;
};

// Returns the data flow of the model's formulas. Errors: kInvalidArgument if the layer does not
// exist or the picture would be too large; those of the formulas.
absl::StatusOr<FlowPicture> RecordFlow(const ResolvedModel& model, const PictureOptions& options);

// Returns the picture as an SVG file. Errors: those of RecordFlow.
absl::StatusOr<std::string> DrawModel(const ResolvedModel& model, const PictureOptions& options);

// Returns a data flow as an SVG file without scripts, fonts or references to other files. Follows
// the viewer's light or dark mode; text stays text. Deterministic.
std::string ToSvg(const FlowPicture& picture);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_PICTURE_H_
