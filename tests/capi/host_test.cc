// SPDX-License-Identifier: Apache-2.0
// plumb uses the threads and the memory that a host provides, and keeps the host's floating-point
// mode and threads otherwise. The tests also fork processes.
#include <dirent.h>
#include <fenv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "tests/capi/host_life.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::HasSubstr;

// Executor of a host, which runs tasks in one of several ways.
struct TestExecutor {
  enum Kind { kThreads, kBackwards, kOnlyTheLast } kind;
  std::atomic<int> jobs{0}, tasks{0};

  plumb_executor Get() {
    auto executor = MakeStruct<plumb_executor>();
    executor.context = this;
    executor.run = [](void* self, int32_t n, void (*task)(void*, int32_t), void* argument) {
      auto* const own = static_cast<TestExecutor*>(self);
      ++own->jobs;
      own->tasks += n;
      if (own->kind == kThreads) {
        std::vector<std::thread> threads;
        for (int32_t i = 1; i < n; ++i) threads.emplace_back(task, argument, i);
        task(argument, 0);
        for (std::thread& thread : threads) thread.join();
        return;
      }
      for (int32_t i = n - 1; i >= 0; --i) {
        task(argument, i);
        if (own->kind == kOnlyTheLast) return;
      }
    };
    return executor;
  }
};

int CountThreads() {
  int threads = 0;
  DIR* const directory = opendir("/proc/self/task");
  if (directory == nullptr) return 0;
  while (const dirent* const entry = readdir(directory)) threads += entry->d_name[0] != '.';
  closedir(directory);
  return threads;
}

// Number of threads before any test: one, or more if a sanitizer has its own.
const int kOwnThreads = [] {
  std::string entry;
  std::thread([&] { entry = "/proc/self/task/" + std::to_string(gettid()); }).join();
  while (access(entry.c_str(), F_OK) == 0) std::this_thread::yield();
  return CountThreads();
}();

// Returns the number of threads once it is kOwnThreads, or after a minute. Linux lists a thread for
// a moment after it was joined.
int RemainingThreads() {
  int threads = CountThreads();
  for (int i = 0; i < 60'000 && threads != kOwnThreads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    threads = CountThreads();
  }
  return threads;
}

TEST(HostTest, RunsOnTheThreadsOfTheHostToTheSameBits) {
  const std::vector<float>& expected = Expected();
  for (const auto kind :
       {TestExecutor::kThreads, TestExecutor::kBackwards, TestExecutor::kOnlyTheLast}) {
    TestExecutor executor{kind};
    const plumb_executor given = executor.Get();
    const RuntimeHandle runtime = MakeHostRuntime(&given, nullptr);
    std::vector<float> floats;
    EXPECT_PLUMB_OK(Live(runtime.get, &floats, nullptr, err));
    EXPECT_EQ(floats, expected);
    EXPECT_GT(executor.jobs, 10);
    EXPECT_GT(executor.tasks, executor.jobs);
    EXPECT_EQ(RemainingThreads(), kOwnThreads) << "a thread of plumb's own";
  }
}

TEST(HostTest, ThreadsEndWithTheLastHandle) {
  Expected();
  EXPECT_EQ(RemainingThreads(), kOwnThreads);
  for (int round = 0; round < 3; ++round) {
    ModelHandle model;
    SpecHandle spec;
    const std::string text = WideModel();
    {
      const RuntimeHandle runtime = MakeHostRuntime(nullptr, nullptr);
      const RuntimeHandle other = MakeHostRuntime(nullptr, nullptr);
      std::vector<float> floats;
      EXPECT_PLUMB_OK(Live(runtime.get, &floats, nullptr, err));
      EXPECT_EQ(floats, Expected());
      EXPECT_PLUMB_OK(plumb_spec_from_text(text.c_str(), "wide", &spec.get, err));
      EXPECT_PLUMB_OK(plumb_model_create(runtime.get, spec.get, &model.get, err));
    }
    EXPECT_GT(CountThreads(), kOwnThreads);  // the model keeps its runtime alive
    plumb_model_free(std::exchange(model.get, nullptr));
    EXPECT_EQ(RemainingThreads(), kOwnThreads);
  }
}

TEST(HostTest, SeveralThreadsCreateAndFreeRuntimes) {
  Expected();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 5; ++round) {
        const RuntimeHandle runtime = MakeHostRuntime(nullptr, nullptr);
        std::vector<float> floats;
        EXPECT_PLUMB_OK(Live(runtime.get, &floats, nullptr, err));
        EXPECT_EQ(floats, Expected());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(RemainingThreads(), kOwnThreads);
}

// Returns the draws of four sessions on one thread, fed alternately, with weights of all formats.
std::vector<int32_t> FourSessions(plumb_model* model, int thread) {
  std::vector<SessionHandle> sessions(4);
  std::vector<int32_t> drawn;
  for (int s = 0; s < 4; ++s) {
    auto options = MakeStruct<plumb_session_options>();
    options.sequences = 1 + s % 2;
    options.weights = s % 3;
    EXPECT_PLUMB_OK(
        plumb_session_create(model, &options, &sessions[static_cast<size_t>(s)].get, err));
  }
  for (int32_t turn = 0; turn < 3; ++turn) {
    for (int32_t s = 0; s < 4; ++s) {
      plumb_session* const session = sessions[static_cast<size_t>(s)].get;
      const int32_t prompt[] = {thread, s, turn};
      EXPECT_PLUMB_OK(plumb_session_feed(session, s % 2, prompt, 3, err));
      plumb_sample_options options = PLUMB_SAMPLE_OPTIONS_INIT;
      options.max_tokens = 6;
      options.seed = static_cast<uint64_t>(100 * thread + 10 * s + turn);
      const auto keep = [](void* user, int32_t token) {
        static_cast<std::vector<int32_t>*>(user)->push_back(token);
        return 0;
      };
      EXPECT_PLUMB_OK(plumb_session_generate(session, s % 2, &options, keep, &drawn, err));
    }
  }
  return drawn;
}

TEST(HostTest, ConcurrentSessionsDrawTheSame) {
  const RuntimeHandle runtime = MakeHostRuntime(nullptr, nullptr);
  SpecHandle spec;
  ModelHandle model;
  const std::string text = WideModel();
  EXPECT_PLUMB_OK(plumb_spec_from_text(text.c_str(), "wide", &spec.get, err));
  EXPECT_PLUMB_OK(plumb_model_create(runtime.get, spec.get, &model.get, err));
  EXPECT_PLUMB_OK(plumb_model_init(model.get, 9, err));
  std::vector<std::vector<int32_t>> alone, together(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] { together[static_cast<size_t>(i)] = FourSessions(model.get, i); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 8; ++i) alone.push_back(FourSessions(model.get, i));
  EXPECT_EQ(together, alone);
  EXPECT_EQ(alone[0].size(), 72u);
}

// Returns the exit code of a child that runs `body`, or 99 if the child hangs.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int state = 0;
  waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 99;
}

TEST(HostTest, AForkAfterUseIsAnError) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "its runtime cannot start threads in a fork";
#endif
  const std::vector<float>& expected = Expected();
  RuntimeHandle runtime = MakeHostRuntime(nullptr, nullptr);
  ModelHandle model;
  SpecHandle spec;
  const std::string text = WideModel();
  EXPECT_PLUMB_OK(plumb_spec_from_text(text.c_str(), "wide", &spec.get, err));
  EXPECT_PLUMB_OK(plumb_model_create(runtime.get, spec.get, &model.get, err));
  std::vector<float> floats;
  EXPECT_PLUMB_OK(Live(runtime.get, &floats, nullptr, err));
  EXPECT_EQ(InChild([&] {
              ErrorHandle error;
              if (plumb_model_init(model.get, 1, &error.get) != PLUMB_STATUS_FAILED_PRECONDITION)
                return 1;
              if (std::strstr(plumb_error_message(error.get), "fork") == nullptr) return 2;
              plumb_model_free(std::exchange(model.get, nullptr));
              plumb_runtime_free(std::exchange(runtime.get, nullptr));
              const RuntimeHandle own = MakeHostRuntime(nullptr, nullptr);
              std::vector<float> again;
              if (Live(own.get, &again, nullptr, nullptr) != PLUMB_OK) return 3;
              return again == expected ? 0 : 4;
            }),
            0);
  // The parent continues.
  EXPECT_PLUMB_OK(plumb_model_init(model.get, 1, err));
}

TEST(HostTest, KeepsTheHostsFloatingPointMode) {
  const std::vector<float>& expected = Expected();
  const RuntimeHandle runtime = MakeHostRuntime(nullptr, nullptr);
  fenv_t before;
  fegetenv(&before);
  feclearexcept(FE_ALL_EXCEPT);
  fesetround(FE_TOWARDZERO);
  feraiseexcept(FE_UNDERFLOW);
  feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW);
  const int traps = fegetexcept();  // none on processors of ARM that cannot trap
  std::vector<float> floats;
  EXPECT_PLUMB_OK(Live(runtime.get, &floats, nullptr, err));
  EXPECT_EQ(fegetround(), FE_TOWARDZERO);
  EXPECT_EQ(fegetexcept(), traps);
  EXPECT_EQ(fetestexcept(FE_ALL_EXCEPT), FE_UNDERFLOW);
  fesetenv(&before);
  EXPECT_EQ(floats, expected);
}

// Creates a model whose placement is in a directory of the host.
plumb_status CreateFromOwnPlacement(const plumb_runtime_options& options, plumb_error** error) {
  static const std::string text =
      "n_layer: 1 n_head: 1 d_model: 4 vocab_size: 5 context_length: 4\n"
      "block { placement: \"of_the_host\" norm: \"rms_norm\" }\n";
  RuntimeHandle runtime;
  SpecHandle spec;
  ModelHandle model;
  plumb_status status = plumb_runtime_create(PLUMB_ABI_VERSION, &options, &runtime.get, error);
  if (status != PLUMB_OK) return status;
  status = plumb_spec_from_text(text.c_str(), "test", &spec.get, error);
  if (status != PLUMB_OK) return status;
  return plumb_model_create(runtime.get, spec.get, &model.get, error);
}

TEST(HostTest, DirectoriesOfTheHostAreSearched) {
  const ScratchDir scratch;
  std::ofstream(scratch.path() + "/of_the_host.pbtxt")
      << "placement { name: \"of_the_host\" each: \"x = x + f(norm(x))\" }\n";
  auto options = MakeStruct<plumb_runtime_options>();
  options.flags = PLUMB_RUNTIME_NO_ENVIRONMENT;
  const auto create = [&](plumb_error** e) { return CreateFromOwnPlacement(options, e); };
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, create), HasSubstr("of_the_host"));
  const std::string path = "/not/there:" + scratch.path();
  options.placement_path = path.c_str();
  EXPECT_PLUMB_OK(create(err));
  options.placement_path = "placements";
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, create),
              HasSubstr("placement_path: \"placements\""));
  options.placement_path = nullptr;
  options.plugin_path = "plugins";
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, create), HasSubstr("plugin_path: \"plugins\""));
  options.plugin_path = "";
  setenv("PLUMB_PLACEMENT_PATH", path.c_str(), 1);
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, create), HasSubstr("of_the_host"));
  options.flags = 0;
  EXPECT_PLUMB_OK(create(err));
  unsetenv("PLUMB_PLACEMENT_PATH");
}

TEST(HostTest, RefusesInvalidHosts) {
  plumb_executor executor = {};
  plumb_allocator allocator = {};
  auto options = MakeStruct<plumb_runtime_options>();
  const auto create = [&](plumb_error** e) {
    plumb_runtime* runtime = nullptr;
    return plumb_runtime_create(PLUMB_ABI_VERSION, &options, &runtime, e);
  };
  options.executor = &executor;
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, create), HasSubstr("struct_size"));
  executor.struct_size = sizeof(executor);
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, create), HasSubstr("executor->run"));
  options.executor = nullptr;
  options.allocator = &allocator;
  allocator.struct_size = sizeof(allocator);
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, create), HasSubstr("allocator->allocate"));
}

}  // namespace
}  // namespace plumb
