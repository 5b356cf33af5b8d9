// SPDX-License-Identifier: Apache-2.0
// Norm plugins with faults, or that do not return: plumb names the call, the norm and the file.

#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kNorm[] = "org.example.base";

class PluginFaultTest : public PlumbTest {
 protected:
  PluginFaultTest() {
    Write("model.pbtxt",
          std::string("n_layer: 2 n_head: 2 d_model: 16 d_ff: \"32\" context_length: 16 "
                      "vocab_size: 27\n mlp { activation: RELU }\n norm { name: \"n\" plugin: \"") +
              kNorm + "\" }\n block { placement: \"pre\" norm: \"n\" }\n");
    // Each test has its own copy, with permissions that do not depend on the umask of the build.
    std::filesystem::copy_file(PLUMB_MUTANT_DIR "/misbehaving.so", Plugin());
    std::filesystem::permissions(Plugin(), std::filesystem::perms::owner_all);
  }
  ~PluginFaultTest() override { unsetenv("PLUMB_TEST_MISBEHAVE"); }

  std::string Plugin() const { return Path("misbehaving.so"); }

  static void Ask(const std::string& what) { setenv("PLUMB_TEST_MISBEHAVE", what.c_str(), 1); }

  std::vector<std::string> Train(const std::string& threads) {
    return {"train", "model.pbtxt",       "--data",    "names.txt", "--out",    "run",
            "--set", "train.max_steps=3", "--threads", threads,     "--plugin", Plugin()};
  }

  void ExpectNamed(const Finished& result, int signal, const std::string& function) {
    EXPECT_EQ(result.signal, signal) << result.exit_code << "\n" << result.err;
    const std::string real = std::filesystem::canonical(Plugin()).string();
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("error: signal " + std::to_string(signal) + " in " + function +
                                "() of the norm \"" + kNorm + "\""),
                      HasSubstr("\nin " + real + "\n"), HasSubstr("plumb plugin check " + real)));
  }
};

TEST_F(PluginFaultTest, NamesTheFunctionInWhichAFaultIs) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer handles faults";
#endif
  for (const auto& [function, name] : {std::pair("load", "dlopen"),
                                       {"entry", "plumb_norm_plugin_v1"},
                                       {"create", "create"},
                                       {"forward", "forward"},
                                       {"backward", "backward"},
                                       {"destroy", "destroy"}}) {
    std::filesystem::remove_all(Path("run"));
    Ask(std::string(function) + ":segv");
    ExpectNamed(RunPlumb(Train("2")), SIGSEGV, name);
  }
  std::filesystem::remove_all(Path("run"));
  Ask("forward:abort");
  ExpectNamed(RunPlumb(Train("2")), SIGABRT, "forward");
}

// Tests of a plugin that does not return, and prints a line to stderr before.
class HangTest : public PluginFaultTest {
 protected:
  void WaitUntilItHangs(PlumbProcess* process) {
    while (process->Running() && Read(".stderr").find("it hangs") == std::string::npos) {
    }
  }
};

TEST_F(HangTest, SecondCtrlCNamesTheHangingPlugin) {
  Ask("forward:hang");
  PlumbProcess process(directory(), Train("1"));
  WaitUntilItHangs(&process);
  process.Signal(SIGINT);
  // The second signal is of another kind, because pending signals of the same kind merge into one.
  // Either may be handled first.
  process.Signal(SIGTERM);
  const Finished result = process.Wait();
  EXPECT_TRUE(result.signal == SIGTERM || result.signal == SIGINT) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("ended while waiting for the training step, in forward() of the norm "
                              "\"org.example.base\""),
                    HasSubstr("plumb plugin check ")));
}

TEST_F(HangTest, HangingPluginEndsAfterTheGraceTime) {
  Ask("backward:hang");
  PlumbProcess process(directory(), Train("1"));
  WaitUntilItHangs(&process);
  process.Signal(SIGTERM);
  const Finished result = process.Wait();
  EXPECT_EQ(result.signal, SIGTERM) << result.exit_code << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("in backward() of the norm \"org.example.base\""),
                                HasSubstr("plumb plugin check ")));
}

}  // namespace
}  // namespace plumb::cli
