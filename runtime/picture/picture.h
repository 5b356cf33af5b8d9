// DrawModel: the data flow of a model's blocks as an SVG file. Pure.
//
//   model --RecordFlow--> FlowPicture --LayOut--> FlowLayout --ToSvg--> text
#ifndef PLUMB_RUNTIME_PICTURE_PICTURE_H_
#define PLUMB_RUNTIME_PICTURE_PICTURE_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/picture/record.h"
#include "runtime/spec/resolved_model.h"

namespace plumb {

// Errors: as RecordFlow.
absl::StatusOr<std::string> DrawModel(const ResolvedModel& model, const PictureOptions& options);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_PICTURE_H_
