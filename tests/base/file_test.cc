#include "runtime/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class FileTest : public ::testing::Test {
 protected:
  FileTest() : directory_(JoinPath(::testing::TempDir(), "plumb-file-XXXXXX")) {
    if (mkdtemp(&directory_[0]) == nullptr) ADD_FAILURE() << "cannot create " << directory_;
  }
  ~FileTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  std::string In(absl::string_view name) const { return JoinPath(directory_, name); }
  std::vector<std::string> Names() const { return ListDirectory(directory_).value(); }

  std::string directory_;
};

TEST_F(FileTest, ReadsWhatWasWritten) {
  // Longer than one read, and with every byte.
  std::string content;
  for (int i = 0; i < 200000; ++i) content.push_back(static_cast<char>(i * 7));
  ASSERT_TRUE(WriteFileAtomically(In("a"), content).ok());
  EXPECT_EQ(ReadFile(In("a")).value(), content);
}

TEST_F(FileTest, WritesItsPartsOneAfterAnother) {
  const std::vector<absl::string_view> parts = {"one", "", "two\n"};
  ASSERT_TRUE(WriteFileAtomically(In("a"), parts).ok());
  EXPECT_EQ(ReadFile(In("a")).value(), "onetwo\n");
  ASSERT_TRUE(WriteFileAtomically(In("empty"), absl::Span<const absl::string_view>()).ok());
  EXPECT_EQ(ReadFile(In("empty")).value(), "");
}

TEST_F(FileTest, WritesPiecesAsTheyAreMade) {
  const auto count = [](PieceSink sink) -> absl::Status {
    for (int i = 0; i < 4; ++i) {
      const std::string piece(1, static_cast<char>('0' + i));  // gone after the call
      const absl::Status status = sink(piece);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  };
  ASSERT_TRUE(WriteFileAtomically(In("a"), count).ok());
  EXPECT_EQ(ReadFile(In("a")).value(), "0123");
  const auto fail = [](PieceSink sink) -> absl::Status {
    EXPECT_TRUE(sink("half").ok());
    return absl::DataLossError("no more");
  };
  EXPECT_EQ(WriteFileAtomically(In("a"), fail).message(), "no more");
  EXPECT_EQ(ReadFile(In("a")).value(), "0123");
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(FileTest, ReplacesAFileAndLeavesNoTemporary) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "a long first version").ok());
  ASSERT_TRUE(WriteFileAtomically(In("a"), "second").ok());
  EXPECT_EQ(ReadFile(In("a")).value(), "second");
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(FileTest, WritesInTheWorkingDirectory) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_);
  EXPECT_TRUE(WriteFileAtomically("plain", "here").ok());
  std::filesystem::current_path(before);
  EXPECT_EQ(ReadFile(In("plain")).value(), "here");
}

TEST_F(FileTest, AWriteThatCannotReplaceItsTargetLeavesNoTemporary) {
  ASSERT_TRUE(MakeDirectories(In("taken")).ok());
  const absl::Status status = WriteFileAtomically(In("taken"), "x");
  EXPECT_THAT(std::string(status.message()), StartsWith(In("taken") + ": cannot replace: "));
  EXPECT_THAT(Names(), ElementsAre("taken"));
}

TEST_F(FileTest, AWriteThatFailsHalfwayLeavesTheOldContent) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "old").ok());
  // A limit on the size of files stands for a full disk.
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  rlimit small = limit;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = WriteFileAtomically(In("a"), std::string(10000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, before);
  EXPECT_THAT(std::string(status.message()), StartsWith(In("a") + ": cannot write: "));
  EXPECT_EQ(ReadFile(In("a")).value(), "old");
  EXPECT_THAT(Names(), ElementsAre("a"));
}

// Root may write everywhere, so it is someone else for as long as this lives.
class NotRoot {
 public:
  explicit NotRoot(const std::string& directory) : was_root_(geteuid() == 0) {
    constexpr uid_t kNobody = 65534;
    if (was_root_ && chown(directory.c_str(), kNobody, static_cast<gid_t>(-1)) == 0) {
      changed_ = seteuid(kNobody) == 0;
    }
  }
  ~NotRoot() {
    if (changed_) {
      EXPECT_EQ(seteuid(0), 0);
    }
  }
  bool holds() const { return !was_root_ || changed_; }

 private:
  bool was_root_;
  bool changed_ = false;
};

TEST_F(FileTest, RemovesWhatKilledProcessesLeft) {
  for (const char* name : {"a.tmp.123", "b.json.tmp.7", "c.tmp.x7", "d.tmp.", ".tmp.5", "e"}) {
    ASSERT_TRUE(WriteFileAtomically(In(name), "x").ok());
  }
  ASSERT_TRUE(RemoveTemporaries(directory_).ok());
  EXPECT_THAT(Names(), ElementsAre(".tmp.5", "c.tmp.x7", "d.tmp.", "e"));
}

TEST_F(FileTest, AnUnwritableDirectoryKeepsItsFile) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "old").ok());
  {
    const NotRoot not_root(directory_);
    if (!not_root.holds()) GTEST_SKIP() << "root may write everywhere";
    ASSERT_EQ(chmod(directory_.c_str(), 0500), 0);
    const absl::Status status = WriteFileAtomically(In("a"), "new");
    ASSERT_EQ(chmod(directory_.c_str(), 0700), 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  }
  EXPECT_EQ(ReadFile(In("a")).value(), "old");
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(FileTest, ErrorsNameTheFileThatWasAskedFor) {
  const absl::Status write = WriteFileAtomically(In("missing/a"), "x");
  EXPECT_EQ(write.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(write.message(), In("missing/a") + ": cannot create: No such file or directory");
  const absl::Status read = ReadFile(In("missing")).status();
  EXPECT_EQ(read.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(read.message(), In("missing") + ": cannot open: No such file or directory");
  EXPECT_EQ(ReadFile(directory_).status(),
            absl::InvalidArgumentError(directory_ + ": is a directory, not a file"));
}

TEST_F(FileTest, MakesAllDirectoriesOfAPath) {
  ASSERT_TRUE(MakeDirectories(In("a/b/c")).ok());
  EXPECT_TRUE(IsDirectory(In("a/b/c")));
  EXPECT_TRUE(MakeDirectories(In("a/b/c")).ok());
  EXPECT_TRUE(MakeDirectories(In("a/d/")).ok());
  EXPECT_TRUE(IsDirectory(In("a/d")));
}

TEST_F(FileTest, MakesNoDirectoryWhereAFileStands) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "x").ok());
  for (const char* path : {"a", "a/b"}) {
    const absl::Status status = MakeDirectories(In(path));
    EXPECT_THAT(std::string(status.message()),
                StartsWith(In(path) + ": cannot create the directory: "));
  }
  EXPECT_EQ(ReadFile(In("a")).value(), "x");
}

TEST_F(FileTest, ListsNamesInOrder) {
  for (const char* name : {"c", "a", "b"}) ASSERT_TRUE(WriteFileAtomically(In(name), "").ok());
  ASSERT_TRUE(MakeDirectories(In("d")).ok());
  EXPECT_THAT(Names(), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(ListDirectory(In("missing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ListDirectory(In("a")).ok());
}

TEST_F(FileTest, TellsFilesAndDirectoriesApart) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "").ok());
  EXPECT_TRUE(FileExists(In("a")));
  EXPECT_TRUE(FileExists(directory_));
  EXPECT_FALSE(FileExists(In("b")));
  EXPECT_TRUE(IsDirectory(directory_));
  EXPECT_FALSE(IsDirectory(In("a")));
  EXPECT_FALSE(IsDirectory(In("b")));
  EXPECT_FALSE(SyncDirectory(In("a")).ok());
  EXPECT_TRUE(SyncDirectory(directory_).ok());
}

TEST(PathTest, JoinsAndSplits) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(DirectoryOf("a/b"), "a");
  EXPECT_EQ(DirectoryOf("a/b/c"), "a/b");
  EXPECT_EQ(DirectoryOf("b"), ".");
  EXPECT_EQ(DirectoryOf("/b"), "/");
}

TEST_F(FileTest, MapsAFile) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "some content").ok());
  absl::StatusOr<MappedFile> file = MappedFile::Open(In("a"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->content(), "some content");
}

TEST_F(FileTest, AMappedFileOutlivesItsReplacement) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "first").ok());
  const MappedFile file = MappedFile::Open(In("a")).value();
  ASSERT_TRUE(WriteFileAtomically(In("a"), "other").ok());
  EXPECT_EQ(file.content(), "first");
}

TEST_F(FileTest, MapsAnEmptyFileAsNoContent) {
  ASSERT_TRUE(WriteFileAtomically(In("empty"), "").ok());
  absl::StatusOr<MappedFile> file = MappedFile::Open(In("empty"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->content(), "");
}

TEST_F(FileTest, MapsNothingButRegularFiles) {
  EXPECT_EQ(MappedFile::Open(directory_).status(),
            absl::InvalidArgumentError(directory_ + ": is not a regular file"));
  EXPECT_EQ(MappedFile::Open("/dev/null").status(),
            absl::InvalidArgumentError("/dev/null: is not a regular file"));
  EXPECT_EQ(MappedFile::Open(In("missing")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FileTest, AMovedMappingStaysValid) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "aaa").ok());
  ASSERT_TRUE(WriteFileAtomically(In("b"), "bbb").ok());
  MappedFile a = MappedFile::Open(In("a")).value();
  MappedFile b = MappedFile::Open(In("b")).value();
  MappedFile c(std::move(a));
  EXPECT_EQ(c.content(), "aaa");
  EXPECT_EQ(a.content(), "");
  c = std::move(b);
  EXPECT_EQ(c.content(), "bbb");
}

TEST_F(FileTest, RefusesAFileLongerThanAsked) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "12345").ok());
  EXPECT_EQ(ReadFile(In("a"), 5).value(), "12345");
  EXPECT_EQ(
      ReadFile(In("a"), 4).status(),
      absl::InvalidArgumentError(In("a") + ": is longer than the 4 bytes that are read of it"));
  EXPECT_FALSE(ReadFile("/dev/zero", 1 << 20).ok());
}

}  // namespace
}  // namespace plumb
