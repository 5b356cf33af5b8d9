// SPDX-License-Identifier: Apache-2.0
// ReadModelValues: values of a family's scalars and words that a model's description has. It is
// ModelText (family_template.h) in reverse: the pieces of the family are compared with the
// description. Stateless.
#ifndef PLUMB_RUNTIME_ZOO_MODEL_VALUES_H_
#define PLUMB_RUNTIME_ZOO_MODEL_VALUES_H_

#include <map>
#include <string>
#include <vector>

#include "plumb/v1/model.schema.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family.h"

namespace plumb {

struct ModelValues {
  ConfigValues known;               // without values that the description does not determine
  std::vector<std::string> unread;  // for users: parts of the family that the description lacks
};

// Returns the values. `facts` are those of ConfigForModel (family_template.h). A wrong guess is
// possible if conditions of the family are ambiguous, so that the caller must compare the models.
ModelValues ReadModelValues(const Family& family, const v1::Model& model,
                            const std::map<std::string, double>& facts);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_MODEL_VALUES_H_
