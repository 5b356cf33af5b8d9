// SPDX-License-Identifier: Apache-2.0
// Tests of callbacks in plumb.hpp: those of the host, their exceptions, and how they stop a call.
#include <gmock/gmock.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "plumb.hpp"
#include "tests/capi/hpp_models.h"

namespace {

using plumb::Code;
using plumb::Next;
using testing::ElementsAreArray;
using testing::HasSubstr;

struct Thrown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(HppCallbacksTest, ProbesSeeTensorsOfAStep) {
  plumb::Model model = MakeModel();
  plumb::Trainer trainer = plumb::Trainer::Create(model, {"batch_size: 1 max_steps: 4"}).value();
  EXPECT_THAT(model.ProbePoints().value(), testing::HasSubstr("\nlogits\n"));
  std::vector<std::string> seen;
  trainer
      .SetProbe(2, {"logits"},
                [&](const plumb::ProbeInfo& info) {
                  seen.push_back(std::to_string(info.step) + " " + info.name);
                  EXPECT_EQ(info.elements, 8 * 5);
                })
      .value();
  plumb::Trainer moved = std::move(trainer);
  moved.Run(Fill).value();
  EXPECT_THAT(seen, ElementsAreArray({"1 logits", "2 logits", "4 logits"}));
  EXPECT_EQ(moved.SetProbe(1, {"no.such"}, [](const plumb::ProbeInfo&) {}).error().code(),
            Code::kInvalidArgument);
  moved.SetProbe(1, {}, [](const plumb::ProbeInfo&) { throw Thrown("probe"); }).value();
  const std::vector<std::int32_t> ids(8, 1);
  EXPECT_THROW(static_cast<void>(moved.Step(ids, ids)), Thrown);
  moved.SetProbe(0, {}, [](const plumb::ProbeInfo&) {}).value();
  EXPECT_TRUE(moved.Step(ids, ids).ok());
}

TEST(HppCallbacksTest, CallbackExceptionsPropagate) {
  plumb::Model model = MakeModel();
  plumb::Trainer trainer = plumb::Trainer::Create(model, {"batch_size: 1"}).value();
  EXPECT_THROW(static_cast<void>(trainer.Run([](auto, auto, auto) { throw Thrown("batch"); })),
               Thrown);
  EXPECT_EQ(trainer.Steps(), 0);
  EXPECT_THROW(
      static_cast<void>(trainer.Run(Fill, [](const plumb::StepInfo&) { throw Thrown("step"); })),
      Thrown);
  EXPECT_EQ(trainer.Steps(), 1);
  plumb::Session session = plumb::Session::Create(model).value();
  session.Feed(0, {1}).value();
  const auto throws = [](std::int32_t) { throw Thrown("token"); };
  EXPECT_THROW(static_cast<void>(session.Generate(0, {}, throws)), Thrown);
  // The exception crosses two calls of the C API.
  EXPECT_THROW(static_cast<void>(trainer.Run(Fill,
                                             [&](const plumb::StepInfo&) {
                                               session.Truncate(0, 0).value();
                                               session.Feed(0, {1}).value();
                                               static_cast<void>(session.Generate(0, {}, throws));
                                             })),
               Thrown);
  // The next call is not affected.
  EXPECT_TRUE(trainer.Step(std::vector<std::int32_t>(8, 1), std::vector<std::int32_t>(8, 2)).ok());
}

TEST(HppCallbacksTest, CallbacksAndOtherThreadsEndARun) {
  plumb::Model model = MakeModel();
  plumb::Trainer trainer =
      plumb::Trainer::Create(model, {"batch_size: 1 max_steps: 1000000000"}).value();
  const auto ended = trainer.Run(
      Fill, [](const plumb::StepInfo& info) { return info.step == 2 ? Next::kStop : Next::kGoOn; });
  EXPECT_EQ(ended.error().code(), Code::kCancelled);
  EXPECT_EQ(trainer.Steps(), 2);
  EXPECT_EQ(trainer.Run([](auto, auto, auto) { return Next::kStop; }).error().code(),
            Code::kCancelled);
  std::atomic<bool> runs{false};
  std::thread other([&] {
    while (!runs) std::this_thread::yield();
    trainer.Cancel();
  });
  const auto cancelled = trainer.Run(Fill, [&](const plumb::StepInfo&) { runs = true; });
  other.join();
  EXPECT_EQ(cancelled.error().code(), Code::kCancelled);
  plumb::Session session = plumb::Session::Create(model).value();
  session.Feed(0, {1}).value();
  EXPECT_EQ(session.Generate(0, {}, [&](std::int32_t) { session.Cancel(); }).error().code(),
            Code::kCancelled);
}

// A norm over tokens causes a warning.
TEST(HppCallbacksTest, TheLogCallbackMayThrow) {
  std::string told;
  plumb::RuntimeOptions options;
  options.log = [&](plumb::LogLevel level, std::string_view message) {
    EXPECT_EQ(level, plumb::LogLevel::kWarning);
    if (told == "throw") throw Thrown("log");
    told += message;
  };
  plumb::Runtime runtime = MakeRuntime(std::move(options));
  std::string warned = kHppModel;
  warned.replace(warned.find("rms_norm"), 8, "over_tokens");
  warned += "norm { name: \"over_tokens\" plugin: \"batch_norm\" allow_cross_token: true }\n";
  const auto create = [&] {
    return plumb::Model::Create(runtime, plumb::Spec::FromText(warned).value());
  };
  create().value();
  EXPECT_THAT(told, HasSubstr("later tokens"));
  told = "throw";
  EXPECT_THROW(static_cast<void>(create()), Thrown);
  told.clear();
  EXPECT_TRUE(create().ok());
}

// They are used until the last handle is freed, in whatever order handles are freed or assigned.
TEST(HppCallbacksTest, UsesHostMemoryAndThreads) {
  std::atomic<std::ptrdiff_t> bytes{0};
  std::atomic<int> tasks{0};
  bool has_memory = true;
  plumb::RuntimeOptions options;
  options.allocate = [&](std::size_t size, std::size_t alignment) -> void* {
    if (!has_memory) throw Thrown("memory");
    bytes += static_cast<std::ptrdiff_t>(size);
    return std::aligned_alloc(alignment, size);
  };
  options.release = [&](void* memory, std::size_t size) {
    bytes -= static_cast<std::ptrdiff_t>(size);
    std::free(memory);
  };
  options.run = [&](std::int32_t n, const std::function<void(std::int32_t)>& task) {
    for (std::int32_t i = n; i-- > 0; ++tasks) task(i);
  };
  {
    plumb::Model model = [&] {
      plumb::Runtime runtime = MakeRuntime(options);
      plumb::Spec spec = plumb::Spec::FromText(kHppModel).value();
      spec.Set("d_model", 128).value();  // enough work for two threads
      plumb::Model made = plumb::Model::Create(runtime, spec).value();
      made.Init(1).value();
      return made;
    }();
    EXPECT_GT(bytes, 0);
    plumb::Trainer trainer = plumb::Trainer::Create(model, {"batch_size: 64"}).value();
    const std::vector<std::int32_t> ids(trainer.StepTokens(), 1);
    static_cast<void>(trainer.Step(ids, ids).value());
    EXPECT_GT(tasks, 0);
    has_memory = false;
    EXPECT_THROW(static_cast<void>(plumb::Session::Create(model)), Thrown);
    // The old model is freed by the functions of its runtime; the new model's runtime has none.
    model = MakeModel();
  }
  EXPECT_EQ(bytes, 0);
  options.release = nullptr;
  EXPECT_EQ(plumb::Runtime::Create(options).error().code(), Code::kInvalidArgument);
}

}  // namespace
