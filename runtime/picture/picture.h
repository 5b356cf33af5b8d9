// SPDX-License-Identifier: Apache-2.0
// DrawModel: the data flow of a model's blocks as an SVG file. Pure.
//
//   model --RecordFlow--> FlowPicture --LayOut--> FlowLayout --ToSvg--> text
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
  // The one layer to show, from 0. Without it, a section for each kind of layer: layers that do the
  // same with other numbers are of one kind, whose numbers are ranges.
  std::optional<int64_t> layer;
};

// Returns the data flow that a picture of the model's formulas shows.
// Errors: kInvalidArgument for a layer that is not there and for what is too large to be seen; the
// formulas' own.
absl::StatusOr<FlowPicture> RecordFlow(const ResolvedModel& model, const PictureOptions& options);

// Returns the picture as an SVG file. Errors: those of RecordFlow.
absl::StatusOr<std::string> DrawModel(const ResolvedModel& model, const PictureOptions& options);

// Returns a data flow as one SVG file without scripts, fonts or other files: light or dark as its
// viewer is, text as text. Deterministic.
std::string ToSvg(const FlowPicture& picture);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_PICTURE_H_
