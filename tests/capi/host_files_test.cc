// SPDX-License-Identifier: Apache-2.0
// Paths of a host that are not files, and limits of the system that stop writing, are errors. plumb
// raises no signal that the host did not request, and every call returns.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/capi/host_life.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class HostFilesTest : public CapiTest {
 protected:
  HostFilesTest() : model_(Create(WideModel())), recipe_(Recipe(kRecipe)) {
    EXPECT_PLUMB_OK(plumb_model_init(model_.get, 1, err));
    EXPECT_PLUMB_OK(plumb_trainer_create(model_.get, &recipe_, &trainer_.get, err));
    EXPECT_EQ(mkfifo(pipe_.c_str(), 0600), 0);
  }

  auto SaveModel(const std::string& path) const {
    return [&, path](plumb_error** e) {
      return plumb_model_save(model_.get, path.c_str(), nullptr, e);
    };
  }
  auto SaveTrainer(const std::string& path) const {
    return [&, path](plumb_error** e) { return plumb_trainer_save(trainer_.get, path.c_str(), e); };
  }

  const ScratchDir scratch_;
  const std::string pipe_ = scratch_.File("pipe");
  const ModelHandle model_;
  const plumb_trainer_options recipe_;
  TrainerHandle trainer_;
};

TEST_F(HostFilesTest, FileSizeLimitIsAnErrorWithoutSignal) {
  const std::string path = scratch_.Write("weights", "old");
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {4096, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  // SIGXFSZ has its default action, which ends the process.
  const std::string model = Fails(PLUMB_STATUS_RESOURCE_EXHAUSTED, SaveModel(path));
  const std::string trainer = Fails(PLUMB_STATUS_RESOURCE_EXHAUSTED, SaveTrainer(path));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THAT(model, AllOf(StartsWith(path), HasSubstr("File too large")));
  EXPECT_EQ(trainer, model);
  EXPECT_EQ(ReadFile(path).value(), "old");
  EXPECT_EQ(ListDirectory(scratch_.path()).value().size(), 2u) << "a temporary is left";
  EXPECT_PLUMB_OK(plumb_model_save(model_.get, path.c_str(), nullptr, err));
}

TEST_F(HostFilesTest, ClosedReaderIsAnErrorWithoutSignal) {
  const int reader = open(pipe_.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ErrorHandle error;
  plumb_status status = PLUMB_OK;
  std::thread writer(
      [&] { status = plumb_model_save(model_.get, pipe_.c_str(), nullptr, &error.get); });
  char first;
  while (read(reader, &first, 1) != 1) std::this_thread::yield();
  close(reader);  // before everything was written, which exceeds a pipe's capacity
  writer.join();
  EXPECT_EQ(status, PLUMB_STATUS_UNAVAILABLE);
  EXPECT_THAT(plumb_error_message(error.get), HasSubstr("Broken pipe"));
}

TEST_F(HostFilesTest, PipesWithoutOtherEndAreErrors) {
  const auto is_pipe = AllOf(StartsWith(pipe_), HasSubstr("is a pipe that nobody reads from"));
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, SaveModel(pipe_)), is_pipe);
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, SaveTrainer(pipe_)), is_pipe);
  const auto read_spec = [&](plumb_error** e) {
    plumb_spec* none = nullptr;
    return plumb_spec_from_file(pipe_.c_str(), &none, e);
  };
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, read_spec),
              HasSubstr("is a pipe that nobody writes to"));
  for (const bool maps : {false, true}) {
    const ModelHandle other = Create(WideModel());
    const auto read = [&](plumb_error** e) {
      return maps ? plumb_model_map(other.get, pipe_.c_str(), e)
                  : plumb_model_load(other.get, pipe_.c_str(), nullptr, e);
    };
    EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, read), HasSubstr("is not a regular file"));
  }
  const auto load_trainer = [&](plumb_error** e) {
    return plumb_trainer_load(trainer_.get, pipe_.c_str(), e);
  };
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, load_trainer),
              HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace plumb
