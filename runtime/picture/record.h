// RecordFlow: a model's formulas to the data flow that a picture shows. Pure.
#ifndef PLUMB_RUNTIME_PICTURE_RECORD_H_
#define PLUMB_RUNTIME_PICTURE_RECORD_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "runtime/picture/flow.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

struct PictureOptions {
  // The one layer to show, from 0. Without it, a section for each kind of layer: layers that do the
  // same with other numbers are of one kind, whose numbers are ranges.
  std::optional<int64_t> layer;
};

// Errors: kInvalidArgument for a layer that is not there and for what is too large to be seen; the
// formulas' own.
absl::StatusOr<FlowPicture> RecordFlow(const ResolvedModel& model, const PictureOptions& options);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_RECORD_H_
