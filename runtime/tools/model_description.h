// ModelDescription from the text of plumb_model_describe. Pure. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_MODEL_DESCRIPTION_H_
#define PLUMB_RUNTIME_TOOLS_MODEL_DESCRIPTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/tools/model.h"

namespace plumb {

// Fields that it does not know are left out. kInternal for a text that is no JSON.
absl::StatusOr<ModelDescription> ReadDescription(const std::string& json);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_MODEL_DESCRIPTION_H_
