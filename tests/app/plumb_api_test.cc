// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/plumb_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "runtime/client/model.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

TEST(PlumbApiTest, ErrorsKeepTheirCodeAndMessage) {
  const absl::Status status = ToStatus(api::Spec::FromFile("/nowhere.pbtxt")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nowhere.pbtxt"), std::string::npos);
}

// An allocation failure that plumb.h reports becomes the error of the tools, wherever it was
// caught.
TEST(PlumbApiTest, AllocationFailureBecomesAnError) {
  bool refuses = false;
  api::RuntimeOptions options;
  options.use_environment = false;
  options.plugin_path = PLUMB_TEST_PLUGIN_DIR;
  options.allocate = [&refuses](size_t size, size_t alignment) {
    return refuses ? nullptr : std::aligned_alloc(alignment, size);
  };
  options.release = [](void* memory, size_t) { std::free(memory); };
  const auto runtime = HostRuntime::Create(options);
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  auto model = TryModel(runtime->get(), TinyModel().Text());
  ASSERT_TRUE(model.ok()) << model.status();
  refuses = true;
  EXPECT_THROW(ToStatus(model->Init(1)).IgnoreError(), std::bad_alloc);
  const absl::Status status = OrOutOfMemory("the parameters", [&] { return model->Init(1); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("out of memory for the parameters; "));
  refuses = false;
  EXPECT_TRUE(model->Init(1).ok());
}

// The text is longer than the buffer that is tried first.
TEST(PlumbApiTest, ReadsTextsBeyondTheFirstBuffer) {
  const std::unique_ptr<HostRuntime> runtime = MakeHostRuntime();
  TinyModel tiny;
  tiny.n_layer = 200;
  const auto model = TryModel(runtime.get(), tiny.Text());
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string points = model->ProbePoints().value();
  EXPECT_GT(points.size(), size_t{64} << 10);
  EXPECT_EQ(points.back(), '\n');
  EXPECT_THAT(points, testing::HasSubstr("param.layers.199."));
}

TEST(ModelSourceTest, IsAValue) {
  const ModelSource source = {TinyModel().Text(), "tiny.pbtxt", {}};
  ModelSource other = source;
  other.settings = {{"n_layer", "3"}, {"vocab_size", "0"}};
  const auto spec = source.Parse(), changed = other.Parse();
  ASSERT_TRUE(spec.ok() && changed.ok()) << spec.status() << changed.status();
  EXPECT_EQ(GetVocabSize(*changed), 0);
  EXPECT_EQ(GetVocabSize(*spec), 5);
  EXPECT_THAT(changed->Text().value(), HasSubstr("n_layer: 3"));
  EXPECT_THAT(spec->Text().value(), HasSubstr("n_layer: 2"));
  other.settings = {{"n_layers", "3"}};
  EXPECT_THAT(std::string(other.Parse().status().message()), HasSubstr("model.n_layers"));
  EXPECT_THAT(std::string(ModelSource{"n_layer: x", "bad.pbtxt", {}}.Parse().status().message()),
              HasSubstr("bad.pbtxt:1:"));
  EXPECT_EQ(ReadSpec("/missing.pbtxt").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace plumb
