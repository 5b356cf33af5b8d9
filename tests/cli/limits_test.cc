// SPDX-License-Identifier: Apache-2.0
// Under any resource limit plumb either completes its work or names the limit.

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class LimitsTest : public PlumbTest {
 protected:
  // Runs plumb, which writes to `out`, under limits of the address space from `min` to `max`.
  // Each run ends with exit code 0 and passes `check`, or fails with an error that names the
  // memory, or, if a small allocation failed, ends by a signal. Some runs must fail and some must
  // succeed.
  template <class Check>
  void OverAddressSpaces(const std::vector<std::string>& arguments, const std::string& out,
                         uint64_t min, uint64_t max, uint64_t step, const Check& check) {
    int failed = 0, done = 0;
    for (uint64_t bytes = min; bytes <= max; bytes += step) {
      SCOPED_TRACE(std::to_string(bytes));
      std::error_code ignored;
      std::filesystem::remove_all(Path(out), ignored);
      const Finished result = RunPlumb(arguments, {RLIMIT_AS, bytes});
      if (result.exit_code == 127) continue;  // the system cannot load the program
      if (result.exit_code == 0) {
        ++done;
        check();
        continue;
      }
      ++failed;
      if (result.signal != 0) continue;
      EXPECT_THAT(result.err,
                  AnyOf(HasSubstr("memory"), HasSubstr("ulimit -v"), HasSubstr("failed to map")));
    }
    EXPECT_GT(failed, 0);
    EXPECT_GT(done, 0);
  }
};

#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer needs terabytes of it
TEST_F(LimitsTest, AddressSpaceOfATraining) {
  ASSERT_EQ(RunPlumb(TrainArguments("whole", 3)).exit_code, 0);
  const std::vector<double> losses = Losses("whole");
  OverAddressSpaces(TrainArguments("run", 3, {"--quiet"}), "run", 12 * kMiB, 82 * kMiB, kMiB,
                    [&] { EXPECT_EQ(Losses("run"), losses); });
}

TEST_F(LimitsTest, AddressSpaceOfOneDnn) {
  // oneDNN takes 50 MiB and reports no error if only a part of them can be allocated.
  ASSERT_EQ(RunPlumb(TrainArguments("whole", 1, {"--gemm", "onednn"})).exit_code, 0);
  const std::vector<double> losses = Losses("whole");
  const auto arguments = TrainArguments("run", 1, {"--quiet", "--gemm", "onednn"});
  OverAddressSpaces(arguments, "run", 20 * kMiB, 160 * kMiB, 4 * kMiB,
                    [&] { EXPECT_EQ(Losses("run"), losses); });
  const Finished refused = RunPlumb(arguments, {RLIMIT_AS, 80 * kMiB});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("of address space, of which ulimit -v leaves "));
  // Unless oneDNN is required, plumb works without it and reports that.
  std::filesystem::remove_all(Path("run"));
  const Finished without = RunPlumb({"--version"}, {RLIMIT_AS, 80 * kMiB});
  EXPECT_EQ(without.exit_code, 0);
  EXPECT_THAT(without.out, HasSubstr(", no oneDNN, kernels "));
}

TEST_F(LimitsTest, AddressSpaceOfAComparison) {
  OverAddressSpaces(
      {"compare", "pre.pbtxt", "post.pbtxt", "--data", "names.txt", "--train", "train.pbtxt",
       "--set", "train.max_steps=2", "--seeds", "2", "--quiet", "--threads", "2", "--out", "study"},
      "study", 54 * kMiB, 294 * kMiB, 48 * kMiB, [&] { EXPECT_TRUE(Exists("study/report.html")); });
}

#endif

TEST_F(LimitsTest, FileSize) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{100}, uint64_t{20000}, uint64_t{100000}}) {
    const Finished result =
        RunPlumb(TrainArguments("run" + std::to_string(bytes), 3), {RLIMIT_FSIZE, bytes});
    EXPECT_EQ(result.exit_code, 1) << bytes;
    // The limit also affects stdout and stderr, which are files in this test.
    if (bytes >= 20000) {
      EXPECT_THAT(result.err, HasSubstr("ulimit -f"));
    }
  }
}

#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer examines memory through pipes of its own
TEST_F(LimitsTest, OpenFiles) {
  bool named = false;
  for (uint64_t files = 3; files <= 16; ++files) {
    const Finished result =
        RunPlumb(TrainArguments("run" + std::to_string(files), 3), {RLIMIT_NOFILE, files});
    if (result.exit_code == 127 || (result.exit_code == 0 && named)) continue;
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("ulimit -n")) << files;
    named = true;
  }
  EXPECT_TRUE(named);
}
#endif

TEST_F(LimitsTest, Stack) {
  ASSERT_EQ(RunPlumb(TrainArguments("whole", 3)).exit_code, 0);
  EXPECT_EQ(RunPlumb(TrainArguments("run", 3), {RLIMIT_STACK, 1024 << 10}).exit_code, 0);
  EXPECT_EQ(Losses("run"), Losses("whole"));
  const Finished result = RunPlumb(TrainArguments("run2", 3), {RLIMIT_STACK, 256 << 10});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("ulimit -s"));
}

// Returns `text` repeated n times.
std::string Times(int n, const std::string& text) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

TEST_F(LimitsTest, NestingEndsBeforeASmallStackDoes) {
  const ResourceLimit stack = {RLIMIT_STACK, 1024 << 10};
  for (const int n : {50, 90, 99, 100, 101, 300, 100000}) {
    const std::string formulas[] = {"x + f(" + Times(n, "(") + "x" + Times(n, ")") + ")",
                                    "x + f(" + Times(n, "-") + "x)",
                                    "x + f(" + Times(n, "norm(") + "x" + Times(n, ")") + ")",
                                    "x + f(x) * " + Times(n, "1 ^ ") + "1",
                                    "x + f(x) * (" + Times(n, "not ") + "layer == 1)",
                                    "x + f(x)" + Times(n, " + x")};
    for (const std::string& formula : formulas) {
      std::string text = Read("post.pbtxt");
      text.replace(text.find("placement: \"post\""), 17, "placement: \"mine\"");
      Write("my.pbtxt", text + "placement { name: \"mine\" each: \"x = " + formula + "\" }\n");
      const Finished result = RunPlumb({"describe", "my.pbtxt"}, stack);
      EXPECT_EQ(result.signal, 0) << formula.substr(0, 60);
      if (n > 1000) {
        EXPECT_THAT(result.err, HasSubstr("at most 2000"));
      }
    }
  }
  for (const int n : {100, 1000000}) {
    Write("my.pbtxt", Times(n, "block {") + Times(n, "}"));
    EXPECT_EQ(RunPlumb({"describe", "my.pbtxt"}, stack).exit_code, 2);
    Write("tokens.json", Times(n, "[") + Times(n, "]"));
    EXPECT_EQ(RunPlumb({"eval", "pre.pbtxt", "--tokens", "tokens.json"}, stack).exit_code, 2);
  }
  ASSERT_EQ(RunPlumb(TrainArguments("run", 2)).exit_code, 0);
  for (const char* file : {"tokenizer.json", "run.json", "checkpoints/step-000002/state.json"}) {
    const std::string before = Read(std::string("run/") + file);
    ASSERT_NE(before, "") << file;
    Write(std::string("run/") + file, Times(1000000, "{\"a\":") + "1" + Times(1000000, "}"));
    const Finished result =
        RunPlumb({"train", "--resume", "--out", "run", "--data", "names.txt"}, stack);
    EXPECT_EQ(result.exit_code, 2) << file << ": " << result.err;
    Write(std::string("run/") + file, before);
  }
}

}  // namespace
}  // namespace plumb::cli
