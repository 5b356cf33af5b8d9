// SPDX-License-Identifier: Apache-2.0
// Models for the tests of pictures.
#ifndef PLUMB_TESTS_PICTURE_PICTURE_MODELS_H_
#define PLUMB_TESTS_PICTURE_PICTURE_MODELS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/picture/picture.h"
#include "tests/app/test_models.h"

namespace plumb {

// Returns the data flow of a small model.
absl::StatusOr<FlowPicture> MakeFlow(const TinyModel& model, const PictureOptions& options = {});
FlowPicture FlowOfPlacement(const std::string& placement, int n_layer = 2);
// Returns the data flow of a placement with this body.
FlowPicture FlowOfBody(const std::string& body, int n_layer = 2);

struct NamedFlow {
  std::string name;
  FlowPicture picture;
};
// Returns all shipped placements, formulas with many crossing lines, and random graphs that need
// not come from a formula.
std::vector<NamedFlow> FlowsOfAllSorts();

// Returns a random graph of three streams with this number of inner nodes.
FlowSection LargeSection(int inner);

}  // namespace plumb

#endif  // PLUMB_TESTS_PICTURE_PICTURE_MODELS_H_
