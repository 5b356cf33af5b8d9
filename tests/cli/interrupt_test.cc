// SPDX-License-Identifier: Apache-2.0
// Training runs that are stopped from outside, at an arbitrary moment.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Number of steps that no test reaches.
constexpr int kEndless = 1000000;

class InterruptTest : public PlumbTest {
 protected:
  // Trains with a checkpoint every ten steps, and signals the process some steps after step
  // `steps`.
  Finished TrainAndSignal(const std::string& out, size_t steps, int signal) {
    PlumbProcess process(directory(),
                         TrainArguments(out, kEndless, {"--set", "train.checkpoint_interval=10"}));
    WaitForSteps(out, steps, &process);
    process.Signal(signal);
    return process.Wait();
  }

  // Resumes an interrupted run for `more` steps and compares the whole run with an uninterrupted
  // one.
  void ExpectResumesAsIfUnbroken(const std::string& out, size_t more) {
    const std::string last = std::to_string(Losses(out).size() + more);
    const Finished resumed =
        RunPlumb({"train", "--resume", "--out", out, "--data", "names.txt", "--stop-at", last});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    const Finished unbroken = RunPlumb(TrainArguments("unbroken", kEndless, {"--stop-at", last}));
    ASSERT_EQ(unbroken.exit_code, 0) << unbroken.err;
    EXPECT_EQ(Losses(out).size(), std::stoul(last));
    EXPECT_EQ(Losses(out), Losses("unbroken"));
  }
};

TEST_F(InterruptTest, CtrlCWritesACheckpointAndExitsWith130) {
  const Finished result = TrainAndSignal("run", 25, SIGINT);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("interrupted after step "), HasSubstr("--resume")));
  const size_t steps = Losses("run").size();
  EXPECT_GE(steps, 25u);
  EXPECT_THAT(Read("run/latest"), HasSubstr(std::to_string(steps)));
  ExpectResumesAsIfUnbroken("run", 15);
}

TEST_F(InterruptTest, SigtermDoesTheSame) {
  EXPECT_EQ(TrainAndSignal("run", 5, SIGTERM).exit_code, 130);
  ExpectResumesAsIfUnbroken("run", 5);
}

TEST_F(InterruptTest, SighupDoesTheSame) {
  const Finished result = TrainAndSignal("run", 5, SIGHUP);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  ExpectResumesAsIfUnbroken("run", 5);
}

// Under nohup SIGHUP is ignored.
TEST_F(InterruptTest, IgnoredSighupStaysIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  PlumbProcess process(directory(), TrainArguments("run", kEndless));
  std::signal(SIGHUP, before);
  WaitForSteps("run", 5, &process);
  process.Signal(SIGHUP);
  WaitForSteps("run", Losses("run").size() + 20, &process);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait().exit_code, 130);
}

TEST_F(InterruptTest, DeletedDirectoryEndsTheRun) {
  PlumbProcess process(directory(), TrainArguments("run", kEndless));
  WaitForSteps("run", 5, &process);
  std::filesystem::remove_all(directory() + "/run");
  const Finished result = process.Wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("run: was removed or replaced"));
  EXPECT_FALSE(Exists("run"));
}

TEST_F(InterruptTest, AKilledRunResumesFromItsLastCheckpoint) {
  const Finished result = TrainAndSignal("run", 35, SIGKILL);
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_TRUE(Exists("run/latest"));
  // The last line may be incomplete. Lost steps are taken again.
  const Finished mended =
      RunPlumb({"train", "--resume", "--out", "run", "--data", "names.txt", "--stop-at", "1"});
  ASSERT_EQ(mended.exit_code, 0) << mended.err;
  ExpectResumesAsIfUnbroken("run", 25);
}

TEST_F(InterruptTest, ARunKilledBeforeItsFirstCheckpointStartsAgain) {
  const auto kill_early = [&](const std::vector<std::string>& arguments) {
    PlumbProcess process(directory(), arguments);
    WaitForSteps("run", 3, &process);
    process.Signal(SIGKILL);
    EXPECT_EQ(process.Wait().signal, SIGKILL);
    EXPECT_FALSE(Exists("run/latest"));
  };
  const std::vector<std::string> same = TrainArguments("run", kEndless, {"--resume"});
  const std::vector<std::string> without_model = {"train", "--resume", "--out",
                                                  "run",   "--data",   "names.txt"};
  for (std::vector<std::string> command : {same, without_model}) {
    std::filesystem::remove_all(Path("run"));
    std::filesystem::remove_all(Path("unbroken"));
    kill_early(TrainArguments("run", kEndless));
    command.insert(command.end(), {"--stop-at", "12"});
    const Finished resumed = RunPlumb(command);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_THAT(resumed.err, HasSubstr("run: has no checkpoint yet, so the run starts again"));
    ExpectResumesAsIfUnbroken("run", 5);
  }
}

// A job script repeats this command until the run is done.
TEST_F(InterruptTest, ResumeBeginsAMissingRun) {
  const std::vector<std::string> command =
      TrainArguments("run", kEndless, {"--resume", "--stop-at", "5"});
  const Finished begun = RunPlumb(command);
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_THAT(begun.err, HasSubstr("run: holds no run yet, so the run starts from its beginning"));
  ExpectResumesAsIfUnbroken("run", 5);
  // The process was killed before all files of the run were written.
  std::filesystem::create_directory(Path("other"));
  Write("other/run.json", Read("run/run.json"));
  const Finished other =
      RunPlumb(TrainArguments("other", kEndless, {"--resume", "--stop-at", "10"}));
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(Losses("other"), Losses("run"));
  // Without a model no run can start, and a run whose model was deleted does not start again.
  const Finished nothing =
      RunPlumb({"train", "--resume", "--out", "nowhere", "--data", "names.txt"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("nowhere: holds no run"));
  std::filesystem::remove(Path("run/model.pbtxt"));
  EXPECT_EQ(RunPlumb(command).exit_code, 2);
  EXPECT_EQ(Losses("run").size(), 10u);
}

TEST_F(InterruptTest, ARestartBeginsWithTheSameWeights) {
  ASSERT_EQ(RunPlumb(TrainArguments("base", 4)).exit_code, 0);
  const std::vector<std::string> options = {"--init", "base", "--stop-at", "6"};
  ASSERT_EQ(RunPlumb(TrainArguments("unbroken", kEndless, options)).exit_code, 0);
  {
    PlumbProcess process(directory(), TrainArguments("run", kEndless, {"--init", "base"}));
    WaitForSteps("run", 3, &process);
    process.Signal(SIGKILL);
    process.Wait();
  }
  // Meanwhile the run whose weights were the start is trained further.
  ASSERT_EQ(RunPlumb({"train", "--resume", "--out", "base", "--data", "names.txt", "--set",
                      "train.max_steps=8", "--set", "train.keep_checkpoints=0"})
                .exit_code,
            0);
  const Finished other =
      RunPlumb(TrainArguments("run", kEndless, {"--resume", "--init", "unbroken"}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("run: began with the weights of base, not with those of"));
  std::vector<std::string> again = options;
  again.push_back("--resume");
  const Finished restarted = RunPlumb(TrainArguments("run", kEndless, again));
  ASSERT_EQ(restarted.exit_code, 0) << restarted.err;
  EXPECT_EQ(Losses("run"), Losses("unbroken"));
}

// Returns the output of plumb on a terminal.
std::string RunOnTerminal(const std::string& directory, std::vector<std::string> arguments) {
  // The end of a session's leader discards output that is still on its way to the terminal, so the
  // shell, which is the leader, waits until everything is read.
  const std::vector<std::string> shell = {
      "/bin/sh", "-c", "\"$0\" \"$@\"; printf '<end>'; read wait", PLUMB_BUILD_DIR "/bin/plumb"};
  arguments.insert(arguments.begin(), shell.begin(), shell.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int terminal = -1;
  struct winsize size = {};
  size.ws_col = 200;
  size.ws_row = 24;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    if (chdir(directory.c_str()) == 0) execv(argv[0], argv.data());
    _exit(98);
  }
  std::string shown;
  char buffer[4096];
  size_t at = std::string::npos;
  for (ssize_t n; at == std::string::npos && (n = read(terminal, buffer, sizeof(buffer))) > 0;) {
    shown.append(buffer, static_cast<size_t>(n));
    at = shown.rfind("<end>");
  }
  close(terminal);
  waitpid(pid, nullptr, 0);
  EXPECT_NE(at, std::string::npos) << shown;
  return shown.substr(0, at);
}

// Returns false in a sandbox without /dev/pts, which has no pseudo-terminals.
bool HasTerminals() {
  int first = -1, second = -1;
  if (openpty(&first, &second, nullptr, nullptr, nullptr) != 0) return false;
  close(first);
  close(second);
  return true;
}

TEST_F(InterruptTest, TerminalProgressIsOneLine) {
  if (!HasTerminals()) GTEST_SKIP() << "no pseudo-terminals here";
  const std::string shown = RunOnTerminal(directory(), TrainArguments("run", 60));
  EXPECT_THAT(shown, AllOf(HasSubstr("\rstep 1/60 "), HasSubstr("ETA "), HasSubstr("\rstep 60/60 "),
                           HasSubstr("\x1b[K")));
}

TEST_F(InterruptTest, TerminalProgressCountsGroupsThatDoNotFit) {
  if (!HasTerminals()) GTEST_SKIP() << "no pseudo-terminals here";
  std::string grid = "train.learning_rate=0.001";
  for (int i = 2; i <= 18; ++i) grid += "," + std::to_string(i) + "e-3";
  const std::string shown = RunOnTerminal(
      directory(), {"compare", "pre.pbtxt", "--data", "names.txt", "--grid", grid, "--set",
                    "train.max_steps=2", "--seeds", "1", "--samples", "0", "--out", "study"});
  EXPECT_THAT(shown, AllOf(HasSubstr("  and 2 more; the table at the end has all\r\n"),
                           HasSubstr("pre, learning_rate=18e-3  ")));
}

TEST_F(InterruptTest, ErrorsOnATerminalAreRed) {
  if (!HasTerminals()) GTEST_SKIP() << "no pseudo-terminals here";
  EXPECT_THAT(RunOnTerminal(directory(), {"describe", "nowhere.pbtxt"}),
              HasSubstr("\x1b[1;31merror:\x1b[0m nowhere.pbtxt"));
}

TEST_F(InterruptTest, TerminalSampleEqualsTheFile) {
  if (!HasTerminals()) GTEST_SKIP() << "no pseudo-terminals here";
  ASSERT_EQ(RunPlumb(TrainArguments("run", 30)).exit_code, 0);
  const std::vector<std::string> arguments = {"sample", "run", "--num", "1", "--prompt", "ad"};
  std::string plain = RunPlumb(arguments).out;
  plain.insert(plain.size() - 1, "\r");  // inserted by the terminal
  EXPECT_EQ(RunOnTerminal(directory(), arguments), plain);
}

}  // namespace
}  // namespace plumb::cli
