// SPDX-License-Identifier: Apache-2.0
// Runs the built `plumb` and observes what a shell sees: exit code, stdout, stderr, files.
#ifndef PLUMB_TESTS_CLI_PLUMB_PROCESS_H_
#define PLUMB_TESTS_CLI_PLUMB_PROCESS_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plumb::cli {

// Returns the path of the tested program.
std::string PlumbBinary();

struct Finished {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string out, err;
};

// Resource limit of the process, like one of ulimit: RLIMIT_AS and others; -1: none.
struct ResourceLimit {
  int resource = -1;
  uint64_t bytes = 0;
};

// Process that runs plumb in `directory`. Its stdout and stderr go to files, or stdout to
// `out_path`.
class PlumbProcess {
 public:
  PlumbProcess(const std::string& directory, const std::vector<std::string>& arguments,
               const std::string& out_path = "", const ResourceLimit& limit = {});
  PlumbProcess(const PlumbProcess&) = delete;
  PlumbProcess& operator=(const PlumbProcess&) = delete;
  ~PlumbProcess();  // kills the process if it still runs

  void Signal(int signal) const;
  bool Running();
  Finished Wait();

 private:
  pid_t pid_;
  std::string out_path_, err_path_;
  int wait_status_ = 0;
  bool ended_ = false;
};

// Fixture with a directory of its own, which holds example models and a few names to train on.
// Relative paths, including those in plumb's arguments, are relative to it.
class PlumbTest : public testing::Test {
 protected:
  PlumbTest();
  ~PlumbTest() override;

  Finished RunPlumb(const std::vector<std::string>& arguments, const ResourceLimit& limit = {});
  // Returns the arguments of a training run of `steps` steps on names.txt into `out`.
  static std::vector<std::string> TrainArguments(const std::string& out, int steps,
                                                 const std::vector<std::string>& more = {});

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& content) const;
  std::string Read(const std::string& name) const;  // "" if the file does not exist
  // Returns report.html without its seconds; other files as they are.
  std::string ReadWithoutTimes(const std::string& name) const;
  bool Exists(const std::string& name) const;
  nlohmann::json ReadJson(const std::string& name) const;

  // Returns the losses in a run's metrics.csv. Fails the test unless the steps are 1, 2, 3, ...
  std::vector<double> Losses(const std::string& run) const;
  // Waits until a run's metrics.csv has `steps` lines or `process` ends.
  void WaitForSteps(const std::string& run, size_t steps, PlumbProcess* process) const;

  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
};

}  // namespace plumb::cli

#endif  // PLUMB_TESTS_CLI_PLUMB_PROCESS_H_
