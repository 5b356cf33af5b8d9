// SPDX-License-Identifier: Apache-2.0
// Tests of plumb_runtime_describe: the fields that its schema lists, and the effects of the host's
// state.
#include <gmock/gmock.h>

#include <cfenv>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plumb.h"
#include "tests/capi/capi_fixture.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace plumb {
namespace {

using Report = nlohmann::json;
using testing::Contains;
using testing::HasSubstr;

class DescribeRuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto options = MakeStruct<plumb_runtime_options>();
    options.threads = 3;
    ASSERT_EQ(plumb_runtime_create(&options, &runtime_, nullptr), PLUMB_OK);
  }
  void TearDown() override { plumb_runtime_free(runtime_); }

  Report Describe() const {
    size_t needed = 0;
    EXPECT_EQ(plumb_runtime_describe(runtime_, nullptr, 0, &needed, nullptr), PLUMB_OK);
    std::vector<char> text(needed + 1024);
    EXPECT_EQ(plumb_runtime_describe(runtime_, text.data(), text.size(), &needed, nullptr),
              PLUMB_OK);
    EXPECT_LT(needed, text.size());
    return Report::parse(text.data(), nullptr, false);
  }
  static std::vector<std::string> Whats(const Report& report) {
    std::vector<std::string> whats;
    for (const Report& problem : report["problems"]) whats.push_back(problem["what"]);
    return whats;
  }

  plumb_runtime* runtime_ = nullptr;
};

TEST_F(DescribeRuntimeTest, HasTheFieldsOfTheSchema) {
  const Report report = Describe();
  ASSERT_TRUE(report.is_object());
  const std::vector<std::vector<const char*>> fields = {
      {"plumb", "version", "c_abi", "norm_abi"},
      {"processor", "name", "vendor", "family", "model", "instruction_sets", "kernels", "gemm"},
      {"onednn", "wanted", "state", "file", "version", "isa", "problem"},
      {"libraries"},
      {"openmp"},
      {"threads", "machine", "affinity", "quota", "available", "used", "because"},
      {"plugins", "directories", "others", "dropped"},
      {"placements", "directories"},
      {"environment"},
      {"memory", "limit", "available", "limited_by", "machine", "control_group", "ulimit_v",
       "ulimit_d", "stack", "huge_pages"},
      {"disk", "directory", "free"},
      {"floating_point", "rounding", "flush_to_zero", "denormals_are_zero"},
      {"problems"}};
  EXPECT_EQ(report.size(), fields.size());
  for (const std::vector<const char*>& group : fields) {
    ASSERT_TRUE(report.contains(group[0])) << group[0];
    for (size_t i = 1; i < group.size(); ++i) {
      EXPECT_TRUE(report[group[0]].contains(group[i])) << group[0] << "." << group[i];
    }
  }
  EXPECT_EQ(report["plumb"]["version"], plumb_version());
  EXPECT_EQ(report["plumb"]["c_abi"], plumb_abi_version());
  EXPECT_EQ(report["threads"]["used"], 3);
  EXPECT_EQ(report["threads"]["because"], "as asked for");
}

TEST_F(DescribeRuntimeTest, SaysTheCallersFloatingPointMode) {
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const Report upward = Describe();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(upward["floating_point"]["rounding"], "upward");
  EXPECT_THAT(Whats(upward), Contains("the calling thread rounds upward"));
#if defined(__SSE2__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8000u);
  const Report flushing = Describe();
  EXPECT_EQ(_mm_getcsr() & 0x8000u, 0x8000u) << "it is the host's";
  _mm_setcsr(before);
  EXPECT_EQ(flushing["floating_point"]["flush_to_zero"], true);
  EXPECT_THAT(Whats(flushing), Contains(HasSubstr("flushes denormals")));
#endif
  EXPECT_EQ(Describe()["floating_point"]["flush_to_zero"], false);
}

TEST_F(DescribeRuntimeTest, CutsTheTextAndWantsARuntime) {
  char text[8];
  size_t needed = 0;
  ASSERT_EQ(plumb_runtime_describe(runtime_, text, sizeof(text), &needed, nullptr), PLUMB_OK);
  EXPECT_EQ(text[7], '\0');
  EXPECT_GT(needed, 500u);
  plumb_error* error = nullptr;
  EXPECT_EQ(plumb_runtime_describe(nullptr, text, sizeof(text), &needed, &error),
            PLUMB_STATUS_INVALID_ARGUMENT);
  EXPECT_THAT(plumb_error_message(error), HasSubstr("runtime"));
  plumb_error_free(error);
}

}  // namespace
}  // namespace plumb
