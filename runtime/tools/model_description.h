// Reads a ModelDescription from the text of plumb_model_describe. Pure. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_MODEL_DESCRIPTION_H_
#define PLUMB_RUNTIME_TOOLS_MODEL_DESCRIPTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/tools/model.h"

namespace plumb {

// Returns the description, without fields that it does not know. Errors: kInternal for a text that
// is not JSON, or lacks a field.
absl::StatusOr<ModelDescription> ReadDescription(const std::string& text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_MODEL_DESCRIPTION_H_
