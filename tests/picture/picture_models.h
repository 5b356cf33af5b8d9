// SPDX-License-Identifier: Apache-2.0
// Models whose pictures are tested.
#ifndef PLUMB_TESTS_PICTURE_PICTURE_MODELS_H_
#define PLUMB_TESTS_PICTURE_PICTURE_MODELS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/picture/picture.h"
#include "tests/app/test_models.h"

namespace plumb {

// The data flow of a small model.
absl::StatusOr<FlowPicture> FlowOf(const TinyModel& model, const PictureOptions& options = {});
FlowPicture FlowOfPlacement(const std::string& placement, int n_layer = 2);
// Of a placement of the test's own: `body` is what stands in its braces.
FlowPicture FlowOfBody(const std::string& body, int n_layer = 2);

struct NamedFlow {
  std::string name;
  FlowPicture picture;
};
// All shipped placements, formulas with many lines across each other, and graphs that no formula
// need be.
std::vector<NamedFlow> FlowsOfAllSorts();

// A graph of three streams with so many nodes between.
FlowSection LargeSection(int inner);

}  // namespace plumb

#endif  // PLUMB_TESTS_PICTURE_PICTURE_MODELS_H_
