// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/registry.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cfloat>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/base/file.h"
#include "tests/plugin/test_norm.h"

namespace plumb {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() {
    char name[] = "/tmp/plumb_registry_test_XXXXXX";
    directory_ = fs::canonical(mkdtemp(name)).string();
    unsetenv("PLUMB_TEST_HALF_RAN");
  }
  ~RegistryTest() override { fs::remove_all(directory_); }

  // Copies lib/<name>.so into the test's directory as `as`, writable only by the owner.
  std::string Install(const std::string& name, const std::string& as = "") {
    const std::string to = directory_ + "/" + (as.empty() ? name : as) + ".so";
    fs::copy_file(MutantFile(name), to);
    chmod(to.c_str(), 0755);
    return to;
  }
  static std::string MutantFile(const std::string& name) {
    return std::string(PLUMB_MUTANT_DIR) + "/" + name + ".so";
  }
  static bool AnyCodeRan() { return std::getenv("PLUMB_TEST_HALF_RAN") != nullptr; }

  std::string LoadRefusal(const std::string& path) {
    const absl::Status status = registry_.LoadFile(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(registry_.Loaded(), IsEmpty());
    return std::string(status.message());
  }
  std::string FindRefusal(const std::string& id) {
    const absl::Status status = registry_.Find(id).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }

  std::string directory_;
  PluginRegistry registry_;
};

TEST_F(RegistryTest, FindsEveryShippedNormByItsId) {
  // The files are copied, because the permissions in the build directory depend on the umask.
  for (const char* id : {"layer_norm", "rms_norm", "none"}) {
    const std::string to = directory_ + "/" + id + ".so";
    fs::copy_file(std::string(PLUMB_TEST_PLUGIN_DIR) + "/" + id + ".so", to);
    chmod(to.c_str(), 0755);
  }
  registry_.AddDirectory(directory_);
  for (const char* id : {"layer_norm", "rms_norm", "none"}) {
    const auto plugin = registry_.Find(id);
    ASSERT_TRUE(plugin.ok()) << plugin.status();
    EXPECT_EQ((*plugin)->id(), id);
    EXPECT_EQ((*plugin)->path(), directory_ + "/" + id + ".so");
    EXPECT_TRUE((*plugin)->has_f64());
    EXPECT_EQ((*plugin)->identity(), std::string(id) == "none");
  }
  EXPECT_THAT(registry_.warnings(), IsEmpty());
}

TEST_F(RegistryTest, LoadsOnlyTheRequestedFile) {
  Install("half");
  registry_.AddDirectory(directory_);
  EXPECT_EQ(registry_.Find("layer_norm").status().code(), absl::StatusCode::kNotFound);
  registry_.Scan();
  EXPECT_FALSE(AnyCodeRan());
  const auto plugin = registry_.Find("org.example.half");
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  EXPECT_TRUE(AnyCodeRan());
  EXPECT_EQ(registry_.Find("org.example.half").value(), *plugin);
}

TEST_F(RegistryTest, SuggestsTheIdThatWasMeantAndSaysWhereItLooked) {
  Install("half");
  registry_.AddDirectory(directory_);
  registry_.AddDirectory(directory_ + "/absent");
  const absl::Status status = registry_.Find("org.example.halve").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("unknown norm plugin \"org.example.halve\"; did you mean "
                              "\"org.example.half\"?"),
                    HasSubstr(directory_ + ": org.example.half"),
                    HasSubstr(directory_ + "/absent: no such directory")));
}

TEST_F(RegistryTest, WithoutDirectoriesFindFails) {
  EXPECT_THAT(std::string(registry_.Find("rms_norm").status().message()),
              HasSubstr("no directory to look in"));
}

TEST_F(RegistryTest, RefusesAMissingFile) {
  EXPECT_EQ(registry_.LoadFile(directory_ + "/absent.so").code(), absl::StatusCode::kNotFound);
}

TEST_F(RegistryTest, RefusesALibraryThatIsNotAPlugin) {
  EXPECT_THAT(LoadRefusal(MutantFile("plain_library")),
              HasSubstr("is a shared library but not a plumb plugin"));
}

TEST_F(RegistryTest, RefusesTextNamedLikeALibrary) {
  const std::string path = directory_ + "/text.so";
  ASSERT_TRUE(WriteFileAtomically(path, "rms_norm\n").ok());
  EXPECT_THAT(LoadRefusal(path), HasSubstr("is not a shared library"));
}

TEST_F(RegistryTest, RefusesATruncatedLibrary) {
  const std::string whole = ReadFile(MutantFile("half")).value();
  const std::string path = directory_ + "/truncated.so";
  for (const size_t size : {size_t{10}, size_t{100}, size_t{1000}, whole.size() / 2}) {
    ASSERT_TRUE(WriteFileAtomically(path, absl::string_view(whole).substr(0, size)).ok());
    EXPECT_THAT(LoadRefusal(path), HasSubstr("is truncated"));
  }
  EXPECT_FALSE(AnyCodeRan());
}

TEST_F(RegistryTest, RefusesADirectoryAndAFifo) {
  EXPECT_THAT(LoadRefusal(directory_), HasSubstr("is not a file"));
  const std::string fifo = directory_ + "/fifo.so";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(LoadRefusal(fifo), HasSubstr("is not a file"));
}

TEST_F(RegistryTest, RefusesAnotherMajorWithoutRunningIt) {
  EXPECT_THAT(LoadRefusal(MutantFile("major_two")),
              AllOf(HasSubstr("norm ABI 2"), HasSubstr("norm ABI 1")));
  Install("major_two");
  registry_.AddDirectory(directory_);
  EXPECT_THAT(FindRefusal("org.example.major_two"), HasSubstr("norm ABI 2"));
  EXPECT_FALSE(AnyCodeRan());
}

TEST_F(RegistryTest, NamesTheMissingFunction) {
  EXPECT_THAT(LoadRefusal(MutantFile("missing_backward")),
              AllOf(HasSubstr("org.example.missing_backward"), HasSubstr("backward")));
}

TEST_F(RegistryTest, NamesTheUnknownMandatoryFlag) {
  EXPECT_THAT(LoadRefusal(MutantFile("unknown_flag")), HasSubstr("bit 20"));
}

TEST_F(RegistryTest, RefusesALibraryWithoutTheEntry) {
  EXPECT_THAT(LoadRefusal(MutantFile("no_entry")),
              HasSubstr("does not export plumb_norm_plugin_v1"));
}

TEST_F(RegistryTest, RefusesALibraryWithAFalseNote) {
  EXPECT_THAT(LoadRefusal(MutantFile("note_lies")), HasSubstr("org.example.promised"));
}

TEST_F(RegistryTest, RefusesSearchedFilesThatOthersCanWrite) {
  chmod(Install("half").c_str(), 0757);
  registry_.AddDirectory(directory_);
  EXPECT_THAT(FindRefusal("org.example.half"),
              AllOf(HasSubstr("half.so: can be written by others"), HasSubstr("chmod go-w")));
  EXPECT_FALSE(AnyCodeRan());
}

TEST_F(RegistryTest, RefusesSearchedDirectoriesThatOthersCanWrite) {
  Install("half");
  chmod(directory_.c_str(), 0770);
  registry_.AddDirectory(directory_);
  EXPECT_THAT(FindRefusal("org.example.half"),
              HasSubstr(directory_ + ": can be written by others"));
  EXPECT_FALSE(AnyCodeRan());
}

TEST_F(RegistryTest, ChecksPermissionsOfLinkTargets) {
  const std::string open_directory = directory_ + "/open";
  fs::create_directory(open_directory);
  fs::rename(Install("half"), open_directory + "/half.so");
  chmod(open_directory.c_str(), 0777);
  fs::create_directory(directory_ + "/search");
  fs::create_symlink(open_directory + "/half.so", directory_ + "/search/half.so");
  registry_.AddDirectory(directory_ + "/search");
  EXPECT_THAT(FindRefusal("org.example.half"), HasSubstr(open_directory));
}

TEST_F(RegistryTest, WarnsOfNamedFilesThatOthersCanWrite) {
  const std::string path = Install("half");
  chmod(path.c_str(), 0777);
  EXPECT_TRUE(registry_.LoadFile(path).ok());
  EXPECT_THAT(registry_.warnings(), ElementsAre(HasSubstr("can be written by others")));
}

TEST_F(RegistryTest, LoadsOneFileOnce) {
  const std::string path = Install("half");
  fs::create_symlink(path, directory_ + "/link.so");
  fs::create_hard_link(path, directory_ + "/hard.so");
  ASSERT_TRUE(registry_.LoadFile(path).ok());
  EXPECT_TRUE(registry_.LoadFile(directory_ + "/link.so").ok());
  EXPECT_TRUE(registry_.LoadFile(directory_ + "/hard.so").ok());
  EXPECT_EQ(registry_.Loaded().size(), 1u);
  EXPECT_THAT(registry_.warnings(), IsEmpty());
}

TEST_F(RegistryTest, TakesTheFirstOfTwoNormsWithOneId) {
  Install("half_again", "b");
  Install("half", "a");
  registry_.AddDirectory(directory_);
  const auto plugin = registry_.Find("org.example.half");
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  EXPECT_EQ((*plugin)->version(), "1.0.0");
  EXPECT_THAT(registry_.warnings(),
              ElementsAre(AllOf(HasSubstr(directory_ + "/b.so"), HasSubstr(directory_ + "/a.so"))));
}

// Exports know plumb's own norms by their ids, so that no other code may have one.
TEST_F(RegistryTest, RefusesAnotherNormWithAnIdOfPlumb) {
  const std::string own = directory_ + "/own", other = directory_ + "/other";
  for (const std::string& each : {own, other}) {
    fs::create_directory(each);
    fs::copy_file(std::string(PLUMB_TEST_PLUGIN_DIR) + "/rms_norm.so", each + "/rms_norm.so");
    chmod((each + "/rms_norm.so").c_str(), 0755);
  }
  const auto find = [&] {
    PluginRegistry registry;
    registry.AddDirectory(other);
    registry.AddDirectory(own, /*ships=*/true);
    return registry.Find("rms_norm").status();
  };
  EXPECT_TRUE(find().ok()) << "a copy";
  std::ofstream(other + "/rms_norm.so", std::ios::app | std::ios::binary) << 'x';
  const absl::Status refused = find();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr(other + "/rms_norm.so: the norm \"rms_norm\" is one of plumb's own"),
                    HasSubstr("org.example.rms_norm")));
  PluginRegistry named;
  named.AddDirectory(other);
  named.AddDirectory(own, /*ships=*/true);
  EXPECT_THAT(named.Scan().front().problem, HasSubstr("is one of plumb's own"));
  EXPECT_EQ(named.LoadFile(other + "/rms_norm.so").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(named.Loaded(), IsEmpty());
  EXPECT_FALSE(named.Find("rms_norm").ok());
  PluginRegistry linked;
  linked.AddDirectory(own, /*ships=*/true);
  plumb_norm_plugin table = test_norm::Table();
  table.id = "rms_norm";
  EXPECT_EQ(linked.Register(&table).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(RegistryTest, PrefersNamedFilesToTheSearchPath) {
  Install("half");
  registry_.AddDirectory(directory_);
  ASSERT_TRUE(registry_.LoadFile(MutantFile("half_again")).ok());
  EXPECT_EQ(registry_.Find("org.example.half").value()->version(), "2.0.0");
}

TEST_F(RegistryTest, ABrokenNeighbourIsOnlyAWarning) {
  Install("half", "z");
  Install("plain_library", "a");
  ASSERT_TRUE(WriteFileAtomically(directory_ + "/b.so", "text").ok());
  registry_.AddDirectory(directory_);
  EXPECT_TRUE(registry_.Find("org.example.half").ok());
  EXPECT_THAT(registry_.warnings(), ElementsAre(HasSubstr("a.so: is a shared library but not"),
                                                HasSubstr("b.so: is not a shared library")));
}

TEST_F(RegistryTest, BrokenRequestedFileIsTheError) {
  ASSERT_TRUE(WriteFileAtomically(directory_ + "/my_norm.so", "text").ok());
  registry_.AddDirectory(directory_);
  EXPECT_THAT(FindRefusal("my_norm"), HasSubstr("my_norm.so: is not a shared library"));
}

TEST_F(RegistryTest, DropsRelativeDirectoriesOfTheEnvironment) {
  setenv("PLUMB_PLUGIN_PATH", "plugins:/opt/norms::./x:/usr/lib/plumb", 1);
  std::vector<std::string> warnings;
  EXPECT_THAT(PathFromEnvironment("PLUMB_PLUGIN_PATH", &warnings),
              ElementsAre("/opt/norms", "/usr/lib/plumb"));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("\"plugins\""), HasSubstr("\"./x\"")));
  unsetenv("PLUMB_PLUGIN_PATH");
  warnings.clear();
  EXPECT_THAT(PathFromEnvironment("PLUMB_PLUGIN_PATH", &warnings), IsEmpty());
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(RegistryTest, ScanListsPluginsAndErrors) {
  Install("half", "a");
  Install("half_again", "b");
  Install("major_two", "c");
  Install("plain_library", "d");
  registry_.AddDirectory(directory_);
  const std::vector<PluginFile> files = registry_.Scan();
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].path, directory_ + "/a.so");
  EXPECT_EQ(files[0].id, "org.example.half");
  EXPECT_EQ(files[0].problem, "");
  EXPECT_THAT(files[1].problem, AllOf(HasSubstr("not used"), EndsWith("/a.so")));
  EXPECT_EQ(files[2].id, "org.example.major_two");
  EXPECT_THAT(files[2].problem, HasSubstr("norm ABI 2"));
  EXPECT_EQ(files[3].id, "");
  EXPECT_THAT(files[3].problem, HasSubstr("not a plumb plugin"));
  EXPECT_FALSE(AnyCodeRan());
}

// Returns true if denormals are flushed to zero.
bool FlushesToZero() {
  volatile float small = FLT_MIN;
  return small / 2 == 0;
}

TEST_F(RegistryTest, KeepsFloatingPointModesFromAFastMathLibrary) {
  // The library really changes the modes if nothing prevents it, so it is loaded in another thread.
  bool changed = false;
  const std::string unguarded = Install("fast_math", "unguarded");
  std::thread([&] {
    EXPECT_NE(dlopen(unguarded.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr);
    changed = FlushesToZero();
  }).join();
  if (!changed) GTEST_SKIP() << "the library knows no such mode of this processor";
  ASSERT_TRUE(registry_.LoadFile(Install("fast_math", "guarded")).ok());
  EXPECT_FALSE(FlushesToZero());
}

TEST_F(RegistryTest, RegistersANormThatIsLinkedIn) {
  static const plumb_norm_plugin table = test_norm::Table();
  ASSERT_TRUE(registry_.Register(&table).ok());
  EXPECT_EQ(registry_.Register(&table).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(registry_.Find("org.example.test").value()->path(), "");
  EXPECT_EQ(registry_.Register(nullptr).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RegistryTest, ReturnsThePluginsCreationError) {
  ASSERT_TRUE(registry_.LoadFile(MutantFile("half")).ok());
  const NormPlugin* plugin = registry_.Find("org.example.half").value();
  EXPECT_TRUE(plugin->Instantiate(12, {}).ok());
  const absl::Status status = plugin->Instantiate(13, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "org.example.half()[13]: 13 brings bad luck");
}

}  // namespace
}  // namespace plumb
