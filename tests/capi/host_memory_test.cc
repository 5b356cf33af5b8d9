// SPDX-License-Identifier: Apache-2.0
// All memory of a model's size comes from the host's allocator and is released to it. If the
// allocator fails, the call fails and the handles remain valid.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/capi/host_life.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::HasSubstr;

// Allocator of a host, which counts calls and can fail.
class TestAllocator {
 public:
  plumb_allocator Get() {
    auto allocator = MakeStruct<plumb_allocator>();
    allocator.context = this;
    allocator.allocate = [](void* self, size_t size, size_t alignment) {
      return static_cast<TestAllocator*>(self)->Allocate(size, alignment);
    };
    allocator.release = [](void* self, void* memory, size_t size) {
      static_cast<TestAllocator*>(self)->Release(memory, size);
    };
    return allocator;
  }
  void FailAt(int64_t call) { fails_at_ = call; }  // counted from now on; -1: never
  int64_t calls() const { return calls_; }
  size_t live() const { return live_.size(); }
  // Returns the number of live allocations of that size.
  int64_t CountLive(size_t size) const {
    return std::count_if(live_.begin(), live_.end(),
                         [size](const auto& piece) { return piece.second == size; });
  }

 private:
  void* Allocate(size_t size, size_t alignment) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++calls_;
    if (fails_at_ >= 0 && fails_at_-- == 0) return nullptr;
    EXPECT_EQ(size % alignment, 0u);
    void* const memory = std::aligned_alloc(alignment, size);
    std::fill_n(static_cast<unsigned char*>(memory), size, 0xff);  // not zeros, and NaN as floats
    live_[memory] = size;
    return memory;
  }
  void Release(void* memory, size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = live_.find(memory);
    ASSERT_NE(at, live_.end()) << "memory that is not the host's";
    EXPECT_EQ(at->second, size);
    live_.erase(at);
    std::free(memory);
  }

  std::mutex mutex_;
  std::map<void*, size_t> live_;
  int64_t calls_ = 0, fails_at_ = -1;
};

// Expects that the sizes of caches equal those in the info, in every format.
void ExpectCaches(const std::string& text) {
  TestAllocator allocator;
  const plumb_allocator given = allocator.Get();
  const RuntimeHandle runtime = MakeHostRuntime(nullptr, &given);
  SpecHandle spec;
  ModelHandle model;
  EXPECT_PLUMB_OK(plumb_spec_from_text(text.c_str(), "wide", &spec.get, err));
  EXPECT_PLUMB_OK(plumb_model_create(runtime.get, spec.get, &model.get, err));
  EXPECT_PLUMB_OK(plumb_model_init(model.get, 9, err));
  auto info = MakeStruct<plumb_model_info>();
  EXPECT_PLUMB_OK(plumb_model_get_info(model.get, &info, err));
  ASSERT_GT(info.cache_bytes, 0);
  for (const int32_t weights : {PLUMB_WEIGHTS_F32, PLUMB_WEIGHTS_BF16, PLUMB_WEIGHTS_INT8}) {
    const auto one = static_cast<size_t>(weights == PLUMB_WEIGHTS_BF16 ? info.cache_bytes / 2
                                                                       : info.cache_bytes);
    const int64_t before = allocator.CountLive(5 * one);
    auto options = MakeStruct<plumb_session_options>();
    options.sequences = 5;
    options.weights = weights;
    SessionHandle session;
    EXPECT_PLUMB_OK(plumb_session_create(model.get, &options, &session.get, err));
    const int32_t tokens[] = {1, 2, 3, 4, 5};
    EXPECT_PLUMB_OK(plumb_session_feed_batch(session.get, tokens, 5, err));
    EXPECT_EQ(allocator.CountLive(5 * one), before + 1) << weights;
  }
}

TEST(HostTest, ModelInfoHasTheCacheSize) {
  ExpectCaches(WideModel());
  ExpectCaches(WideModel() + " attention { window: \"5 * (layer % 2)\" }");
}

TEST(HostMemoryTest, EveryAllocationOfTheHostMayFail) {
  TestAllocator allocator;
  const plumb_allocator given = allocator.Get();
  const RuntimeHandle runtime = MakeHostRuntime(nullptr, &given);
  const ScratchDir scratch;
  const std::string path = scratch.path() + "/weights.safetensors";
  {
    SpecHandle spec;
    ModelHandle model;
    const std::string text = WideModel();
    EXPECT_PLUMB_OK(plumb_spec_from_text(text.c_str(), "wide", &spec.get, err));
    EXPECT_PLUMB_OK(plumb_model_create(runtime.get, spec.get, &model.get, err));
    EXPECT_PLUMB_OK(plumb_model_init(model.get, 1, err));
    EXPECT_PLUMB_OK(plumb_model_save(model.get, path.c_str(), nullptr, err));
  }
  for (const char* const weights : {static_cast<const char*>(nullptr), path.c_str()}) {
    allocator.FailAt(-1);
    const int64_t before = allocator.calls();
    {
      std::vector<float> floats;
      EXPECT_PLUMB_OK(Live(runtime.get, &floats, weights, err));
      EXPECT_EQ(floats, Expected());
    }
    EXPECT_EQ(allocator.live(), 0u);
    const int64_t calls = allocator.calls() - before;
    EXPECT_GT(calls, 10);
    for (int64_t i = 0; i < calls; ++i) {
      SCOPED_TRACE(i);
      allocator.FailAt(i);
      std::vector<float> floats;
      ErrorHandle error;
      EXPECT_EQ(Live(runtime.get, &floats, weights, &error.get), PLUMB_STATUS_RESOURCE_EXHAUSTED);
      EXPECT_THAT(plumb_error_message(error.get), HasSubstr("memory"));
      EXPECT_EQ(allocator.live(), 0u);
    }
    allocator.FailAt(-1);
    std::vector<float> floats;
    EXPECT_PLUMB_OK(Live(runtime.get, &floats, weights, err));
    EXPECT_EQ(floats, Expected());
  }
}

// Calls on handles that remain: each allocation fails once, and the same call then succeeds with
// the same result.
TEST(HostMemoryTest, HandlesSurviveFailedAllocations) {
  TestAllocator allocator;
  const plumb_allocator given = allocator.Get();
  const auto live = [&](int64_t fails_at, int* failures) {
    const RuntimeHandle runtime = MakeHostRuntime(nullptr, &given);
    SpecHandle spec;
    ModelHandle model;
    TrainerHandle trainer;
    SessionHandle session;
    Handle<plumb_evaluator, plumb_evaluator_free> evaluator;
    const std::string text = WideModel();
    EXPECT_PLUMB_OK(plumb_spec_from_text(text.c_str(), "wide", &spec.get, err));
    EXPECT_PLUMB_OK(plumb_model_create(runtime.get, spec.get, &model.get, err));
    allocator.FailAt(fails_at);
    const auto again = [&](const auto& call) {
      ErrorHandle error;
      plumb_status status = call(&error.get);
      if (status == PLUMB_STATUS_RESOURCE_EXHAUSTED) {
        ++*failures;
        status = call(nullptr);
      }
      EXPECT_EQ(status, PLUMB_OK) << plumb_error_message(error.get);
    };
    const plumb_trainer_options recipe = Recipe("batch_size: 4 max_steps: 9 seed: 5");
    auto evaluation = MakeStruct<plumb_evaluator_options>();
    evaluation.logits = 1;
    std::vector<int32_t> inputs(256), targets(256);
    for (size_t i = 0; i < 256; ++i) {
      inputs[i] = static_cast<int32_t>(i * 7 % 40);
      targets[i] = static_cast<int32_t>((i * 7 + 3) % 40);
    }
    double loss = 0;
    std::vector<float> floats;
    again([&](plumb_error** e) { return plumb_model_init(model.get, 1, e); });
    again(
        [&](plumb_error** e) { return plumb_trainer_create(model.get, &recipe, &trainer.get, e); });
    for (int step = 0; step < 2; ++step) {
      again([&](plumb_error** e) {
        return plumb_trainer_step(trainer.get, inputs.data(), targets.data(), 256, nullptr, e);
      });
    }
    again([&](plumb_error** e) {
      return plumb_evaluator_create(model.get, &evaluation, &evaluator.get, e);
    });
    for (const size_t n : {size_t{5}, size_t{64}, size_t{5}}) {
      again([&](plumb_error** e) {
        return plumb_evaluator_run(evaluator.get, inputs.data(), targets.data(), n, &loss, e);
      });
      floats.push_back(static_cast<float>(loss));
    }
    for (const int32_t weights : {PLUMB_WEIGHTS_F32, PLUMB_WEIGHTS_INT8}) {
      auto options = MakeStruct<plumb_session_options>();
      options.sequences = 2;
      options.weights = weights;
      plumb_session_free(std::exchange(session.get, nullptr));
      again([&](plumb_error** e) {
        return plumb_session_create(model.get, &options, &session.get, e);
      });
      for (const size_t n : {size_t{3}, size_t{20}, size_t{1}}) {
        again([&](plumb_error** e) {
          return plumb_session_feed(session.get, 1, inputs.data(), n, e);
        });
      }
      const float* const logits = plumb_session_logits(session.get, 1);
      floats.insert(floats.end(), logits, logits + 40);
    }
    allocator.FailAt(-1);
    return floats;
  };
  int failures = 0;
  const int64_t before = allocator.calls();
  const std::vector<float> expected = live(-1, &failures);
  const int64_t calls = allocator.calls() - before;
  EXPECT_EQ(failures, 0);
  for (int64_t i = 0; i < calls; ++i) {
    SCOPED_TRACE(i);
    failures = 0;
    EXPECT_EQ(live(i, &failures), expected);
    EXPECT_EQ(failures, 1);
    EXPECT_EQ(allocator.live(), 0u);
  }
}

}  // namespace
}  // namespace plumb
