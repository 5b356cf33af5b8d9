#include "runtime/picture/picture.h"

#include "runtime/base/status.h"
#include "runtime/picture/svg.h"

namespace plumb {

absl::StatusOr<std::string> DrawModel(const ResolvedModel& model, const PictureOptions& options) {
  PLUMB_ASSIGN_OR_RETURN(const FlowPicture picture, RecordFlow(model, options));
  return ToSvg(picture);
}

}  // namespace plumb
