// SPDX-License-Identifier: Apache-2.0
// Tests of the walk over a model with a backend that fails. The calls of a walk are in
// cases/walks.txt.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/spec/interpret.h"
#include "tests/spec/spec_test_util.h"

namespace plumb {
namespace {

// Backend that fails. Its error must be returned together with the formula.
class RefusesNorms : public NullBackend {
 public:
  absl::StatusOr<TensorHandle> Norm(const NormSite& site, absl::Span<const TensorHandle>) override {
    return absl::InvalidArgumentError(absl::StrCat(site.name, " cannot be"));
  }
};

TEST(RunStackTest, ErrorsOfTheBackendPointIntoTheFormula) {
  const absl::StatusOr<ResolvedModel> model =
      ResolveText(ModelWith("each: \"x = x + f(norm(x))\""));
  ASSERT_TRUE(model.ok()) << model.status();
  RefusesNorms backend;
  EXPECT_EQ(std::string(RunStack(*model, &backend).message()),
            "m.pbtxt:4:1: placement \"p\", each, attention: layers.0.attention.norm cannot be\n"
            "  x = x + f(norm(x))\n"
            "            ^");
}

}  // namespace
}  // namespace plumb
