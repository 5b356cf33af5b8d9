// SPDX-License-Identifier: Apache-2.0
// Differences between descriptions in protobuf text format. Stateless functions.
#ifndef PLUMB_RUNTIME_STUDY_TEXT_FIELDS_H_
#define PLUMB_RUNTIME_STUDY_TEXT_FIELDS_H_

#include <string>
#include <utility>
#include <vector>

namespace plumb {

// Field of protobuf text, such as "norm[0].name", with its value in each of several texts, "" where
// a text does not have it.
using FieldValues = std::pair<std::string, std::vector<std::string>>;

// Returns the scalar fields that differ between texts, in the order in which they appear.
std::vector<FieldValues> Differences(const std::vector<std::string>& texts);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_TEXT_FIELDS_H_
