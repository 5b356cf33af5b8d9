#include "runtime/tools/handles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "tests/api/test_models.h"

namespace plumb {
namespace {

absl::StatusOr<ModelHandle> MakeModel(plumb_runtime* runtime, const std::string& text) {
  const auto spec = MakeHandle<SpecHandle>(plumb_spec_from_text, text.data(), text.size(), "tiny");
  if (!spec.ok()) return spec.status();
  return MakeHandle<ModelHandle>(plumb_model_create, runtime, spec->get());
}

TEST(HandlesTest, ErrorsKeepTheirCodeAndMessage) {
  const auto spec = MakeHandle<SpecHandle>(plumb_spec_from_file, "/nowhere.pbtxt");
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(spec.status().message().find("/nowhere.pbtxt"), std::string::npos);
}

// What plumb.h says is no memory is what the tools say is none, wherever it was caught.
TEST(HandlesTest, MemoryThatIsNotThereIsThrown) {
  auto allocator = Sized<plumb_allocator>();
  bool refuses = false;
  allocator.context = &refuses;
  allocator.allocate = [](void* context, size_t size, size_t alignment) {
    return *static_cast<bool*>(context) ? nullptr : std::aligned_alloc(alignment, size);
  };
  allocator.release = [](void*, void* memory, size_t) { std::free(memory); };
  auto options = Sized<plumb_runtime_options>();
  options.flags = PLUMB_NO_ENVIRONMENT;
  options.allocator = &allocator;
  const auto runtime = MakeHandle<RuntimeHandle>(plumb_runtime_create, &options);
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const auto model = MakeModel(runtime->get(), TinyModel().Text());
  ASSERT_TRUE(model.ok()) << model.status();
  refuses = true;
  EXPECT_THROW(CallPlumb(plumb_model_init, model->get(), uint64_t{1}).IgnoreError(),
               std::bad_alloc);
  refuses = false;
  EXPECT_TRUE(CallPlumb(plumb_model_init, model->get(), uint64_t{1}).ok());
}

// Longer than the buffer that is tried first.
TEST(HandlesTest, ALongTextComesWhole) {
  const std::unique_ptr<HostRuntime> runtime = MakeHostRuntime();
  TinyModel tiny;
  tiny.n_layer = 200;
  const absl::StatusOr<ModelHandle> model = MakeModel(runtime->handle(), tiny.Text());
  ASSERT_TRUE(model.ok()) << model.status();
  const absl::StatusOr<std::string> points = TextOf(plumb_model_probe_points, model->get());
  ASSERT_TRUE(points.ok()) << points.status();
  EXPECT_GT(points->size(), size_t{64} << 10);
  EXPECT_EQ(points->back(), '\n');
  EXPECT_THAT(*points, testing::HasSubstr("param.layers.199."));
}

}  // namespace
}  // namespace plumb
