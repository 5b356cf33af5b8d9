// SPDX-License-Identifier: Apache-2.0
// Tests of plumb_runtime_describe: the fields that its schema lists.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plumb.h"
#include "tests/capi/capi_fixture.h"

namespace plumb {
namespace {

using Report = nlohmann::json;
using testing::HasSubstr;

class DescribeRuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto options = MakeStruct<plumb_runtime_options>();
    options.threads = 3;
    ASSERT_EQ(plumb_runtime_create(PLUMB_ABI_VERSION, &options, &runtime_, nullptr), PLUMB_OK);
  }
  void TearDown() override { plumb_runtime_free(runtime_); }

  Report Describe() const {
    return Report::parse(GetText(plumb_runtime_describe, runtime_), nullptr, false);
  }

  plumb_runtime* runtime_ = nullptr;
};

TEST_F(DescribeRuntimeTest, HasTheFieldsOfTheSchema) {
  const Report report = Describe();
  ASSERT_TRUE(report.is_object());
  const std::vector<std::vector<const char*>> fields = {
      {"plumb", "version", "compiler", "c_abi", "norm_abi"},
      {"processor", "name", "vendor", "family", "model", "instruction_sets", "kernels", "gemm"},
      {"onednn", "wanted", "state", "file", "version", "isa", "problem"},
      {"threads", "machine", "available", "used", "because"},
      {"plugins", "directories", "others", "dropped"},
      {"placements", "directories"},
      {"memory", "limit", "available", "limited_by"},
      {"problems"}};
  EXPECT_EQ(report.size(), fields.size());
  for (const std::vector<const char*>& group : fields) {
    ASSERT_TRUE(report.contains(group[0])) << group[0];
    for (size_t i = 1; i < group.size(); ++i) {
      EXPECT_TRUE(report[group[0]].contains(group[i])) << group[0] << "." << group[i];
    }
  }
  EXPECT_EQ(report["plumb"]["version"], plumb_version());
  EXPECT_EQ(report["plumb"]["c_abi"], PLUMB_ABI_VERSION);
  EXPECT_EQ(report["threads"]["used"], 3);
  EXPECT_EQ(report["threads"]["because"], "as asked for");
}

TEST_F(DescribeRuntimeTest, RequiresARuntimeAndAText) {
  char* text = nullptr;
  plumb_error* error = nullptr;
  EXPECT_EQ(plumb_runtime_describe(nullptr, &text, &error), PLUMB_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(plumb_runtime_describe(runtime_, nullptr, nullptr), PLUMB_STATUS_INVALID_ARGUMENT);
  EXPECT_EQ(text, nullptr);
  EXPECT_THAT(plumb_error_message(error), HasSubstr("runtime"));
  plumb_error_free(error);
}

}  // namespace
}  // namespace plumb
