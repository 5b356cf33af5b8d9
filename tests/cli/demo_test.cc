// SPDX-License-Identifier: Apache-2.0
// Tests of plumb demo: it runs from any directory, into a directory of its own, and repeatedly.

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class DemoTest : public PlumbTest {
 protected:
  Finished RunDemo(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"demo"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPlumb(arguments);
  }

  // Returns all files below `name`, to check that none was changed.
  std::vector<std::string> Files(const std::string& name) const {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(Path(name))) {
      files.push_back(entry.path().string());
    }
    return files;
  }
};

TEST_F(DemoTest, WritesAReportAndNextSteps) {
  const Finished result = RunDemo({"--seeds", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("\nreport  plumb-demo/report.html\n"), HasSubstr("last 100"),
                    HasSubstr("plumb describe plumb-demo/pre.pbtxt"), HasSubstr("plumb compare ")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("pre, seed 1: loss "),
                                HasSubstr("no_norm, seed 1: loss "), Not(HasSubstr("opening"))));
  EXPECT_THAT(Read("plumb-demo/provenance.json"),
              HasSubstr("plumb demo --out plumb-demo --seeds 1"));
  for (const char* name : {"pre.pbtxt", "post.pbtxt", "no_norm.pbtxt", "train.pbtxt"}) {
    EXPECT_EQ(Read(std::string("plumb-demo/") + name),
              ReadFile(PLUMB_SOURCE_DIR "/examples/why_normalise/" + std::string(name)));
  }
  EXPECT_EQ(Read("plumb-demo/names.txt"), ReadFile(PLUMB_SOURCE_DIR "/examples/data/names.txt"));
  // The commands that the output suggests work.
  EXPECT_EQ(RunPlumb({"describe", "plumb-demo/pre.pbtxt"}).exit_code, 0);
}

TEST_F(DemoTest, CreatesTheDirectoriesOfOut) {
  fs::create_directory(Path("elsewhere"));
  const Finished result =
      PlumbProcess(Path("elsewhere"), {"demo", "--seeds", "1", "--out", Path("a b/c/")}).Wait();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(Exists("a b/c/report.html"));
  EXPECT_THAT(result.out, HasSubstr("plumb describe '" + Path("a b/c") + "/pre.pbtxt'"));
  EXPECT_FALSE(Exists("elsewhere/plumb-demo"));
}

TEST_F(DemoTest, SecondDemoOnlyWritesTheReport) {
  ASSERT_EQ(RunDemo({"--seeds", "1"}).exit_code, 0);
  const std::string table = Read("plumb-demo/table.md");
  fs::remove(Path("plumb-demo/report.html"));
  fs::remove(Path("plumb-demo/train.pbtxt"));
  const Finished again = RunDemo();  // with the same number of seeds
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("loss ")));
  EXPECT_TRUE(Exists("plumb-demo/report.html"));
  EXPECT_TRUE(Exists("plumb-demo/train.pbtxt"));
  EXPECT_EQ(Read("plumb-demo/table.md"), table);

  const Finished more = RunDemo({"--seeds", "2"});
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_THAT(more.err, HasSubstr("--seeds 2: the demo in plumb-demo has 1 seed; "));
}

TEST_F(DemoTest, KeepsAnEditedModel) {
  ASSERT_EQ(RunDemo({"--seeds", "1"}).exit_code, 0);
  const std::string edited = Read("plumb-demo/pre.pbtxt") + "# mine\n";
  Write("plumb-demo/pre.pbtxt", edited);
  const Finished result = RunDemo();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("plumb-demo/pre.pbtxt: is no longer as plumb demo wrote it"));
  EXPECT_EQ(Read("plumb-demo/pre.pbtxt"), edited);
}

TEST_F(DemoTest, RefusesAForeignDirectory) {
  fs::create_directory(Path("mine"));
  Write("mine/README.md", "# Mine\n");
  const auto before = Files("mine");
  const Finished result = RunDemo({"--out", "mine"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("mine: exists and was not made by plumb demo"),
                                HasSubstr("--out DIR")));
  EXPECT_EQ(Files("mine"), before);
}

TEST_F(DemoTest, ReportsUnwritableDirectories) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"pre.pbtxt", "pre.pbtxt: is a file"},
      {"pre.pbtxt/x", "pre.pbtxt/x: cannot make the directory: "},
      {"/proc/demo", "/proc/demo: cannot make the directory: "},
      {"", "--out: is empty; name a directory"}};
  for (const auto& [out, message] : cases) {
    const Finished result = RunDemo({"--out", out});
    EXPECT_EQ(result.exit_code, 2) << out;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
  EXPECT_EQ(RunDemo({"--seeds", "0"}).exit_code, 2);
}

TEST_F(DemoTest, OpensNoBrowserWithoutATerminal) {
  fs::create_directory(Path("bin"));
  Write("bin/xdg-open", "#!/bin/sh\ntouch '" + Path("opened") + "'\n");
  fs::permissions(Path("bin/xdg-open"), fs::perms::owner_all);
  setenv("PATH", (Path("bin") + ":" + std::getenv("PATH")).c_str(), 1);
  setenv("DISPLAY", ":0", 1);
  const Finished result = RunDemo({"--seeds", "1"});  // stdout is a file
  unsetenv("DISPLAY");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, Not(HasSubstr("opening")));
  EXPECT_FALSE(Exists("opened"));
}

// An installed plumb searches for plugins only below its prefix.
TEST_F(DemoTest, WithoutPluginsNamesTheSearchPath) {
  fs::create_directories(Path("prefix/bin"));
  fs::create_directories(Path("prefix/share/plumb"));
  fs::copy(PLUMB_SOURCE_DIR "/plugins/placements", Path("prefix/share/plumb/placements"));
  fs::copy_file(PlumbBinary(), Path("prefix/bin/plumb"));
  const std::string plumb = "cd '" + Path("prefix") + "' && ";
  const std::string demo = "bin/plumb demo --seeds 1 > out 2> err";
  EXPECT_NE(std::system((plumb + demo).c_str()), 0);
  EXPECT_THAT(Read("prefix/err"), AllOf(HasSubstr("rms_norm"), HasSubstr("PLUMB_PLUGIN_PATH")));
  EXPECT_FALSE(Exists("prefix/plumb-demo"));

  const std::string path = "PLUMB_PLUGIN_PATH='" PLUMB_TEST_PLUGIN_DIR "' ";
  EXPECT_EQ(std::system((plumb + path + demo).c_str()), 0) << Read("prefix/err");
  EXPECT_TRUE(Exists("prefix/plumb-demo/report.html"));
}

}  // namespace
}  // namespace plumb::cli
