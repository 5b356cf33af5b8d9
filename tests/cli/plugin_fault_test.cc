// SPDX-License-Identifier: Apache-2.0
// Norm plugins that end the process or do not return: plumb never reports success, and names the
// call, the norm and the file.

#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kRowNorm[] = "org.example.base", kCrossNorm[] = "org.example.cross";

class PluginFaultTest : public PlumbTest {
 protected:
  PluginFaultTest() {
    WriteModel("row.pbtxt", kRowNorm, "");
    WriteModel("cross.pbtxt", kCrossNorm, "allow_cross_token: true");
    // Each test has its own copy, with permissions that do not depend on the umask of the build.
    for (const char* name : {"misbehaving", "misbehaving_cross"}) {
      std::filesystem::copy_file(std::string(PLUMB_MUTANT_DIR "/") + name + ".so", Plugin(name));
      std::filesystem::permissions(Plugin(name), std::filesystem::perms::owner_all);
    }
  }
  ~PluginFaultTest() override { unsetenv("PLUMB_TEST_MISBEHAVE"); }

  std::string Plugin(const std::string& name) const { return Path(name + ".so"); }

  void WriteModel(const std::string& name, const std::string& plugin, const std::string& more) {
    Write(name,
          "n_layer: 2 n_head: 2 d_model: 16 d_ff: \"32\" context_length: 16 vocab_size: 27\n"
          "mlp { activation: RELU }\nnorm { name: \"n\" plugin: \"" +
              plugin + "\" " + more + " }\nblock { placement: \"pre\" norm: \"n\" }\n");
  }

  static void Ask(const std::string& what) { setenv("PLUMB_TEST_MISBEHAVE", what.c_str(), 1); }

  std::vector<std::string> Train(const std::string& model, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "train", model + ".pbtxt", "--data",           "names.txt", "--out",
        "run",   "--set",          "train.max_steps=3"};
    const std::string plugin = model == "row" ? "misbehaving" : "misbehaving_cross";
    arguments.insert(arguments.end(), {"--plugin", Plugin(plugin)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  void ExpectNamed(const Finished& result, const std::string& how, const std::string& function,
                   const std::string& norm, const std::string& file) {
    EXPECT_EQ(result.exit_code, 3) << "signal " << result.signal << "\n" << result.err;
    EXPECT_EQ(result.out, "");
    const std::string real = std::filesystem::canonical(file).string();
    EXPECT_THAT(result.err,
                AllOf(HasSubstr(how), HasSubstr(function + "() of the norm \"" + norm + "\""),
                      HasSubstr("\nin " + real + "\n"), HasSubstr("plumb plugin check " + real)));
  }
};

struct Way {
  const char* how;
  const char* message;
};
constexpr Way kExits[] = {{"exit", "by exit()"}, {"quick_exit", "by quick_exit()"}};
constexpr Way kFaults[] = {{"abort", "SIGABRT"},       {"segv", "SIGSEGV"},
                           {"bus", "SIGBUS"},          {"fpe", "SIGFPE"},
                           {"ill", "SIGILL"},          {"overflow", "stack overflow"},
                           {"pthread_exit", "SIGABRT"}};
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kHandlesFaults = false;  // the sanitizer handles them
#else
constexpr bool kHandlesFaults = true;
#endif
#if defined(__x86_64__)
constexpr bool kDivisionFaults = true;
#else
constexpr bool kDivisionFaults = false;
#endif

// Functions that misbehave, and their names in plumb's messages.
constexpr Way kRowFunctions[] = {{"load", "dlopen"},         {"entry", "plumb_norm_plugin_v1"},
                                 {"available", "available"}, {"create", "create"},
                                 {"layout", "layout"},       {"forward", "forward"},
                                 {"backward", "backward"},   {"destroy", "destroy"}};
constexpr Way kCrossFunctions[] = {{"stats_partial", "stats_partial"},
                                   {"stats_combine", "stats_combine"},
                                   {"stats_finalize", "stats_finalize"}};

class WayTest : public PluginFaultTest, public testing::WithParamInterface<Way> {};

TEST_P(WayTest, IsNamedWhicheverFunctionItIs) {
  const Way& way = GetParam();
  const std::string how = way.how;
  if (how == "fpe" && !kDivisionFaults) GTEST_SKIP() << "a division by zero is no fault here";
  for (const Way& function : kRowFunctions) {
    SCOPED_TRACE(function.how);
    // The thread that loads the plugin has ended before anyone can read its record.
    if (how == "pthread_exit" && function.how == std::string("load")) continue;
    Ask(std::string(function.how) + ":" + how);
    std::filesystem::remove_all(Path("run"));
    ExpectNamed(RunPlumb(Train("row", {"--quiet", "--json"})), way.message, function.message,
                kRowNorm, Plugin("misbehaving"));
  }
  for (const Way& function : kCrossFunctions) {
    SCOPED_TRACE(function.how);
    Ask(std::string(function.how) + ":" + how);
    std::filesystem::remove_all(Path("run"));
    ExpectNamed(RunPlumb(Train("cross", {"--quiet", "--json"})), way.message, function.message,
                kCrossNorm, Plugin("misbehaving_cross"));
  }
}

std::string NameOf(const testing::TestParamInfo<Way>& info) { return info.param.how; }
INSTANTIATE_TEST_SUITE_P(Exits, WayTest, testing::ValuesIn(kExits), NameOf);
#if !defined(__SANITIZE_ADDRESS__)
INSTANTIATE_TEST_SUITE_P(Faults, WayTest, testing::ValuesIn(kFaults), NameOf);
#else
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WayTest);
TEST(Faults, AreTheSanitizers) {
  GTEST_SKIP() << std::size(kFaults) << " signals of faults are handled by the sanitizer";
}
#endif

TEST_F(PluginFaultTest, EveryCommandThatRunsPluginsNamesThem) {
  ASSERT_EQ(RunPlumb(Train("row", {})).exit_code, 0);
  const std::string plugin = Plugin("misbehaving");
  const std::vector<std::vector<std::string>> commands = {
      {"train", "row.pbtxt", "--data", "names.txt", "--out", "other"},
      {"eval", "run", "--data", "names.txt"},
      {"sample", "run"},
      {"compare", "row.pbtxt", "--data", "names.txt", "--seeds", "2", "--out", "study", "--set",
       "train.max_steps=2"},
      {"theory", "row.pbtxt", "--depths", "2,4"},
      {"bench", "row.pbtxt", "--only", "train"}};
  for (const std::vector<std::string>& command : commands) {
    for (const Way& way : {kExits[0], kFaults[1], kFaults[5]}) {
      if (way.how[0] != 'e' && !kHandlesFaults) continue;
      SCOPED_TRACE(command[0] + " " + way.how);
      std::filesystem::remove_all(Path("other"));
      Ask(std::string("forward:") + way.how);
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), {"--plugin", plugin});
      ExpectNamed(RunPlumb(arguments), way.message, "forward", kRowNorm, plugin);
    }
  }
  for (const std::vector<std::string>& command : {std::vector<std::string>{"describe", "row.pbtxt"},
                                                  {"explain", "row.pbtxt", "--stage", "graph"},
                                                  {"plugin", "describe", "org.example.base"}}) {
    SCOPED_TRACE(command[0]);
    Ask("create:exit");
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--plugin", plugin});
    ExpectNamed(RunPlumb(arguments), "by exit()", "create", kRowNorm, plugin);
  }
  EXPECT_FALSE(Exists("study/report.html"));
}

// Worker threads block signals and have their own alternate stacks.
TEST_F(PluginFaultTest, AFaultOnAWorkerThreadIsNamedToo) {
  if (!kHandlesFaults) GTEST_SKIP() << "the sanitizer handles faults";
  Ask("forward:overflow_on_worker");
  ExpectNamed(RunPlumb(Train("row", {"--threads", "2", "--set", "train.batch_size=64"})),
              "stack overflow", "forward", kRowNorm, Plugin("misbehaving"));
}

TEST_F(PluginFaultTest, AWildPointerIsThePluginsWhoeverFollowsIt) {
  if (!kHandlesFaults) GTEST_SKIP() << "the sanitizer handles faults";
  Ask("entry:wild_pointer");
  ExpectNamed(RunPlumb(Train("row", {})), "SIGSEGV", "plumb_norm_plugin_v1", kRowNorm,
              Plugin("misbehaving"));
  Ask("layout:wild_pointer");
  ExpectNamed(RunPlumb(Train("row", {"--json"})), "SIGSEGV", "layout", kRowNorm,
              Plugin("misbehaving"));
}

TEST_F(PluginFaultTest, AnHonestRunOfTheSamePluginSucceeds) {
  for (const char* model : {"row", "cross"}) {
    std::filesystem::remove_all(Path("run"));
    const Finished result = RunPlumb(Train(model, {}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("plugin check")));
  }
}

// Tests of --plugin-guard with a plugin that accesses memory outside of its operands.
class GuardTest : public PluginFaultTest {
 protected:
  std::string Refusal(const std::string& model, const std::string& what) {
    Ask(what);
    std::filesystem::remove_all(Path("run"));
    const Finished result =
        RunPlumb(Train(model, {"--plugin-guard", "--json", "--set", "train.batch_size=32"}));
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_EQ(result.out, "");
    const std::string plugin = model == "row" ? "misbehaving" : "misbehaving_cross";
    EXPECT_THAT(result.err, HasSubstr("plumb plugin check " +
                                      std::filesystem::canonical(Plugin(plugin)).string()));
    return result.err;
  }
};

TEST_F(GuardTest, NamesAPluginThatWritesPastItsRows) {
  EXPECT_THAT(Refusal("row", "forward:one_after"),
              AllOf(HasSubstr("misbehaving.so: forward() of the norm \"org.example.base\" wrote "
                              "outside of its operands: byte "),
                    HasSubstr(" behind row "), HasSubstr(" of y, org.example.base(")));
  EXPECT_THAT(Refusal("row", "forward:one_before"), HasSubstr(" bytes before row "));
}

TEST_F(GuardTest, NamesAPluginThatWritesPastABuffer) {
  EXPECT_THAT(Refusal("row", "backward:one_after"),
              AllOf(HasSubstr("backward() of the norm"), HasSubstr("byte "),
                    HasSubstr(" behind the gradient of \"weight\"")));
  EXPECT_THAT(Refusal("row", "backward:one_before"),
              HasSubstr(" bytes before the gradient of \"weight\""));
  EXPECT_THAT(Refusal("cross", "stats_finalize:one_after"), HasSubstr(" behind buffer \""));
}

TEST_F(GuardTest, NamesTheOperandOfAFault) {
  if (!kHandlesFaults) GTEST_SKIP() << "the sanitizer handles faults";
  EXPECT_THAT(
      Refusal("row", "forward:far_after"),
      AllOf(HasSubstr("SIGSEGV"), HasSubstr("in forward() of the norm"), HasSubstr(" behind y")));
  EXPECT_THAT(Refusal("row", "forward:other_row"), HasSubstr(" bytes before y"));
  EXPECT_THAT(Refusal("row", "forward:input"), HasSubstr(" of x, which it may only read"));
  EXPECT_THAT(Refusal("row", "forward:weight"),
              HasSubstr(" of parameter \"weight\", which it may only read"));
}

TEST_F(GuardTest, ShippedNormsPassWithTheSameLossesBitForBit) {
  int norms = 0;
  for (const auto& file : std::filesystem::directory_iterator(PLUMB_TEST_PLUGIN_DIR)) {
    const std::string norm = file.path().stem().string();
    if (file.path().extension() != ".so") continue;
    ++norms;
    const bool is_cross = norm == "batch_norm" || norm == "power_norm";
    WriteModel("shipped.pbtxt", norm, is_cross ? "allow_cross_token: true" : "");
    for (const char* dtype : {"f32", "bf16"}) {
      SCOPED_TRACE(norm + " " + dtype);
      std::vector<std::string> arguments = {"train",   "shipped.pbtxt",
                                            "--data",  "names.txt",
                                            "--out",   "plain",
                                            "--dtype", dtype,
                                            "--set",   "train.max_steps=2",
                                            "--set",   "train.batch_size=32"};
      const Finished plain = RunPlumb(arguments);
      ASSERT_EQ(plain.exit_code, 0) << plain.err;
      arguments[5] = "guarded";
      arguments.emplace_back("--plugin-guard");
      const Finished guarded = RunPlumb(arguments);
      ASSERT_EQ(guarded.exit_code, 0) << guarded.err;
      EXPECT_EQ(Losses("guarded"), Losses("plain"));
      std::vector<std::string> eval = {"eval", "guarded", "--data", "names.txt", "--json"};
      if (dtype == std::string("f32")) {
        const std::string losses = RunPlumb(eval).out;
        eval.emplace_back("--plugin-guard");
        EXPECT_EQ(RunPlumb(eval).out, losses);
      }
      std::filesystem::remove_all(Path("plain"));
      std::filesystem::remove_all(Path("guarded"));
    }
  }
  EXPECT_GE(norms, 12);
}

// Tests of a plugin that does not return, and prints a line to stderr before.
class HangTest : public PluginFaultTest {
 protected:
  void WaitUntilItHangs(PlumbProcess* process) {
    while (process->Running() && Read(".stderr").find("it hangs") == std::string::npos) {
    }
  }
};

TEST_F(HangTest, ASecondCtrlCKillsAndSaysWhichPluginWasWaitedFor) {
  Ask("forward:hang");
  PlumbProcess process(directory(), Train("row", {"--threads", "1"}));
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

TEST_F(HangTest, APluginThatDoesNotReturnIsWaitedForNoLongerThanTheGraceTime) {
  Ask("backward:hang");
  PlumbProcess process(directory(), Train("row", {"--threads", "1"}));
  WaitUntilItHangs(&process);
  process.Signal(SIGTERM);
  const Finished result = process.Wait();
  EXPECT_EQ(result.signal, SIGTERM) << result.exit_code << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("in backward() of the norm \"org.example.base\""),
                                HasSubstr("plumb plugin check ")));
}

}  // namespace
}  // namespace plumb::cli
