// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/plumb_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace plumb::cli {
namespace {

constexpr char kNames[] =
    "ada\nalan\nalonzo\nbarbara\nclaude\ncynthia\ndana\ndonald\nedsger\nemmy\nfrances\ngrace\n"
    "hedy\nivan\njohn\nkathleen\nken\nleslie\nlynn\nmargaret\nniklaus\nradia\nshafi\nsophie\n";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

// Runs plumb in the child process. Does not return.
void Exec(const std::string& directory, const std::vector<std::string>& arguments,
          const std::string& out_path, const std::string& err_path, const ResourceLimit& limit) {
  std::vector<char*> argv = {const_cast<char*>("plumb")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  unsetenv("PLUMB_PLUGIN_PATH");
  // A shell that runs the tests in the background may have set these to be ignored.
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  const int in = open("/dev/null", O_RDONLY);
  const int out = open(out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int err = open(err_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (in < 0 || out < 0 || err < 0 || chdir(directory.c_str()) != 0) _exit(99);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (limit.resource >= 0) {
    const struct rlimit core = {0, 0}, value = {limit.bytes, limit.bytes};
    setrlimit(RLIMIT_CORE, &core);
    if (setrlimit(static_cast<__rlimit_resource>(limit.resource), &value) != 0) _exit(97);
  }
  execv(PLUMB_BINARY, argv.data());
  _exit(98);
}

}  // namespace

std::string PlumbBinary() { return PLUMB_BINARY; }

PlumbProcess::PlumbProcess(const std::string& directory, const std::vector<std::string>& arguments,
                           const std::string& out_path, const ResourceLimit& limit)
    : out_path_(out_path.empty() ? directory + "/.stdout" : out_path),
      err_path_(directory + "/.stderr") {
  pid_ = fork();
  if (pid_ == 0) Exec(directory, arguments, out_path_, err_path_, limit);
}

PlumbProcess::~PlumbProcess() {
  if (!Running()) return;
  Signal(SIGKILL);
  Wait();
}

void PlumbProcess::Signal(int signal) const { kill(pid_, signal); }

bool PlumbProcess::Running() {
  if (!ended_ && waitpid(pid_, &wait_status_, WNOHANG) != 0) ended_ = true;
  return !ended_;
}

Finished PlumbProcess::Wait() {
  if (!ended_) waitpid(pid_, &wait_status_, 0);
  ended_ = true;
  Finished finished;
  if (WIFEXITED(wait_status_)) finished.exit_code = WEXITSTATUS(wait_status_);
  if (WIFSIGNALED(wait_status_)) finished.signal = WTERMSIG(wait_status_);
  if (out_path_.rfind("/dev/", 0) != 0) finished.out = ReadAll(out_path_);
  finished.err = ReadAll(err_path_);
  return finished;
}

PlumbTest::PlumbTest() {
  std::string pattern = testing::TempDir() + "/plumb_cli_XXXXXX";
  directory_ = mkdtemp(pattern.data());
  for (const char* name : {"pre", "post", "no_norm"}) {
    std::filesystem::copy_file(
        std::string(PLUMB_SOURCE_DIR "/examples/why_normalise/") + name + ".pbtxt",
        Path(std::string(name) + ".pbtxt"));
  }
  std::filesystem::copy_file(PLUMB_SOURCE_DIR "/examples/why_normalise/train.pbtxt",
                             Path("train.pbtxt"));
  Write("names.txt", kNames);
}

PlumbTest::~PlumbTest() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

Finished PlumbTest::RunPlumb(const std::vector<std::string>& arguments,
                             const ResourceLimit& limit) {
  return PlumbProcess(directory_, arguments, "", limit).Wait();
}

std::vector<std::string> PlumbTest::TrainArguments(const std::string& out, int steps,
                                                   const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"train",   "pre.pbtxt",
                                        "--train", "train.pbtxt",
                                        "--data",  "names.txt",
                                        "--out",   out,
                                        "--set",   "train.max_steps=" + std::to_string(steps)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void PlumbTest::Write(const std::string& name, const std::string& content) const {
  std::ofstream(Path(name), std::ios::binary) << content;
}

std::string PlumbTest::Read(const std::string& name) const { return ReadAll(Path(name)); }

std::string PlumbTest::ReadWithoutTimes(const std::string& name) const {
  std::string content = Read(name);
  const std::string key = ",\"seconds_per_step\":";
  const size_t begin = content.find(key);
  if (begin != std::string::npos) content.erase(begin, content.find(']', begin) + 1 - begin);
  return content;
}

bool PlumbTest::Exists(const std::string& name) const {
  return std::filesystem::exists(Path(name));
}

nlohmann::json PlumbTest::ReadJson(const std::string& name) const {
  return nlohmann::json::parse(Read(name), nullptr, /*allow_exceptions=*/false);
}

std::vector<double> PlumbTest::Losses(const std::string& run) const {
  std::istringstream lines(Read(run + "/metrics.csv"));
  std::vector<double> losses;
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line.rfind("step,loss,", 0), 0u) << line;
  while (std::getline(lines, line)) {
    int step = 0;
    float loss = 0;
    EXPECT_EQ(std::sscanf(line.c_str(), "%d,%f,", &step, &loss), 2) << line;
    losses.push_back(loss);
    EXPECT_EQ(step, static_cast<int>(losses.size()));
  }
  return losses;
}

void PlumbTest::WaitForSteps(const std::string& run, size_t steps, PlumbProcess* process) const {
  const auto lines = [&] {
    const std::string text = Read(run + "/metrics.csv");
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  };
  while (process->Running() && lines() <= steps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace plumb::cli
