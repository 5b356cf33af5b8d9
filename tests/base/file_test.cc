// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"
#include "runtime/base/unfinished_paths.h"
#include "tests/base/file_fixture.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(FileTest, ReadsWrittenFiles) {
  // The content is longer than one read and has every byte value.
  std::string content;
  for (int i = 0; i < 200000; ++i) content.push_back(static_cast<char>(i * 7));
  ASSERT_TRUE(WriteFileAtomically(In("a"), content).ok());
  EXPECT_EQ(ReadFile(In("a")).value(), content);
}

TEST_F(FileTest, WritesPartsInOrder) {
  const std::vector<absl::string_view> parts = {"one", "", "two\n"};
  ASSERT_TRUE(WriteFileAtomically(In("a"), parts).ok());
  EXPECT_EQ(ReadFile(In("a")).value(), "onetwo\n");
  ASSERT_TRUE(WriteFileAtomically(In("empty"), absl::Span<const absl::string_view>()).ok());
  EXPECT_EQ(ReadFile(In("empty")).value(), "");
}

TEST_F(FileTest, WritesGeneratedPieces) {
  const auto count = [](PieceSink sink) -> absl::Status {
    for (int i = 0; i < 4; ++i) {
      const std::string piece(1, static_cast<char>('0' + i));  // freed after the call
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
  EXPECT_THAT(std::string(status.message()), StartsWith(In("taken") + ": is a directory"));
  EXPECT_THAT(Names(), ElementsAre("taken"));
}

TEST_F(FileTest, AWriteThatFailsHalfwayLeavesTheOldContent) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "old").ok());
  // A limit on the file size simulates a full disk. Its signal would end this process if it were
  // raised.
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  rlimit small = limit;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = WriteFileAtomically(In("a"), std::string(10000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  sigset_t pending;
  ASSERT_EQ(sigpending(&pending), 0);
  EXPECT_FALSE(sigismember(&pending, SIGXFSZ));
  EXPECT_THAT(std::string(status.message()), StartsWith(In("a") + ": cannot write: "));
  EXPECT_EQ(ReadFile(In("a")).value(), "old");
  EXPECT_THAT(Names(), ElementsAre("a"));
}

// Drops root's effective user, who may write everywhere, for the lifetime of the object.
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

TEST_F(FileTest, RemovesTemporariesOfKilledProcesses) {
  for (const char* name : {"a.tmp.123", "b.json.tmp.7", "c.tmp.x7", "d.tmp.", ".tmp.5", "e"}) {
    ASSERT_TRUE(WriteFileAtomically(In(name), "x").ok());
  }
  ASSERT_TRUE(RemoveTemporaries(directory_, {"a", "c", "d", "e"}).ok());
  EXPECT_THAT(Names(), ElementsAre(".tmp.5", "b.json.tmp.7", "c.tmp.x7", "d.tmp.", "e"));
}

TEST_F(FileTest, ReadsNoMoreThanTheLimit) {
  EXPECT_EQ(ReadFile("/dev/zero").status(),
            absl::InvalidArgumentError(
                "/dev/zero: is longer than the 1048576 bytes that are read of it"));
  EXPECT_EQ(ReadFile("/dev/null").value(), "");
  ASSERT_TRUE(WriteFileAtomically(In("sparse"), "").ok());
  ASSERT_EQ(truncate(In("sparse").c_str(), off_t{1} << 40), 0);
  for (const int64_t limit : {kMaxTextBytes, kMaxStateBytes, MaxDataBytes()}) {
    EXPECT_EQ(ReadFile(In("sparse"), limit).status().code(), absl::StatusCode::kInvalidArgument);
  }
  const std::string data(ReadData(In("sparse"), 6).status().message());
  EXPECT_THAT(data, HasSubstr("6 times its size"));
  EXPECT_THAT(data, HasSubstr("this process may use"));
  EXPECT_GT(MaxDataBytes(), 0);
  EXPECT_LT(MaxDataBytes(), int64_t{1} << 40) << "this test needs a larger sparse file";
}

mode_t FileMode(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info.st_mode;
}

TEST_F(FileTest, AFileThatExistsKeepsItsMode) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "old").ok());
  for (const mode_t mode : {0600u, 0640u, 0755u, 0444u}) {
    ASSERT_EQ(chmod(In("a").c_str(), mode), 0);
    ASSERT_TRUE(WriteFileAtomically(In("a"), "new").ok());
    EXPECT_EQ(FileMode(In("a")) & 07777, mode);
  }
  const mode_t before = umask(027);
  EXPECT_TRUE(WriteFileAtomically(In("b"), "new").ok());
  umask(before);
  EXPECT_EQ(FileMode(In("b")) & 07777, 0640u);
}

TEST_F(FileTest, LinksAreFollowed) {
  ASSERT_EQ(mkdir(In("d").c_str(), 0700), 0);
  ASSERT_EQ(symlink("d/file", In("link").c_str()), 0);
  ASSERT_EQ(symlink(In("link").c_str(), In("to-link").c_str()), 0);
  for (const char* name : {"link", "to-link"}) {  // the first creates d/file
    ASSERT_TRUE(WriteFileAtomically(In(name), name).ok());
    EXPECT_TRUE(S_ISLNK(FileMode(In(name))));
    EXPECT_TRUE(S_ISREG(FileMode(In("d/file"))));
    EXPECT_EQ(ReadFile(In("d/file")).value(), name);
  }
  ASSERT_EQ(symlink("loop", In("loop").c_str()), 0);
  EXPECT_EQ(WriteFileAtomically(In("loop"), "x").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteFileAtomically(In("d"), "x").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FileTest, DevicesAndPipesAreWrittenInPlace) {
  ASSERT_EQ(symlink("/dev/full", In("full").c_str()), 0);
  ASSERT_EQ(symlink("/dev/null", In("null").c_str()), 0);
  EXPECT_EQ(WriteFileAtomically(In("full"), "x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(WriteFileAtomically(In("null"), "x").ok());
  EXPECT_TRUE(WriteFileAtomically("/dev/null", "x").ok());
  EXPECT_TRUE(S_ISCHR(FileMode("/dev/null")));
  EXPECT_TRUE(S_ISLNK(FileMode(In("full"))));

  ASSERT_EQ(mkfifo(In("pipe").c_str(), 0600), 0);
  const int reader = open(In("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(WriteFileAtomically(In("pipe"), "through").ok());
  char got[16] = {};
  EXPECT_EQ(read(reader, got, sizeof(got)), 7);
  EXPECT_STREQ(got, "through");
  EXPECT_TRUE(S_ISFIFO(FileMode(In("pipe"))));

  // A shell's "> file" passes such a path. The file of the descriptor must be written, not
  // replaced.
  const int redirected = open(In("out").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(redirected, 0);
  ASSERT_TRUE(WriteFileAtomically(absl::StrCat("/proc/self/fd/", redirected), "one").ok());
  ASSERT_TRUE(WriteFileAtomically(absl::StrCat("/dev/fd/", redirected), "two").ok());
  EXPECT_EQ(pread(redirected, got, sizeof(got), 0), 6);
  EXPECT_EQ(std::string(got, 6), "onetwo");
  close(redirected);
  close(reader);
  EXPECT_THAT(Names(), ElementsAre("full", "null", "out", "pipe"));
}

TEST_F(FileTest, ATemporaryIsNotWrittenThroughALink) {
  ASSERT_TRUE(WriteFileAtomically(In("victim"), "whole").ok());
  // The next temporary file will have the next number.
  uint64_t number = 0;
  ASSERT_TRUE(WriteFileAtomically(In("a"), [&](PieceSink) {
                for (const std::string& name : Names()) {
                  EXPECT_TRUE(name == "victim" ||
                              absl::SimpleAtoi(absl::StripPrefix(name, "a.tmp."), &number));
                }
                return absl::OkStatus();
              }).ok());
  ASSERT_GT(number, 0u);
  ASSERT_EQ(symlink("victim", In(absl::StrCat("a.tmp.", number + 1)).c_str()), 0);
  ASSERT_TRUE(WriteFileAtomically(In("a"), "new").ok());
  EXPECT_EQ(ReadFile(In("victim")).value(), "whole");
  EXPECT_EQ(ReadFile(In("a")).value(), "new");
}

TEST_F(FileTest, WritersOfOneFileReplaceItWhole) {
  constexpr size_t kBytes = 1 << 18;
  std::vector<std::thread> writers;
  std::atomic<int> written{0};
  ASSERT_TRUE(WriteFileAtomically(In("a"), std::string(kBytes, '0')).ok());
  for (const char each : {'1', '2', '3', '4'}) {
    writers.emplace_back([&, each] {
      for (int i = 0; i < 25; ++i) {
        written += WriteFileAtomically(In("a"), std::string(kBytes, each)).ok();
      }
    });
  }
  while (written < 100) {
    const std::string content = ReadFile(In("a")).value();
    ASSERT_EQ(content.size(), kBytes);
    ASSERT_EQ(content.find_first_not_of(content[0]), std::string::npos);
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_THAT(Names(), ElementsAre("a"));
  // The name has the maximum length, which leaves no room for the suffix of a temporary file.
  ASSERT_TRUE(WriteFileAtomically(In(std::string(255, 'n')), "x").ok());
}

TEST_F(FileTest, IsSameFileFollowsLinks) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "x").ok());
  ASSERT_TRUE(WriteFileAtomically(In("b"), "x").ok());
  ASSERT_EQ(symlink("a", In("soft").c_str()), 0);
  ASSERT_EQ(link(In("a").c_str(), In("hard").c_str()), 0);
  for (const char* name : {"a", "soft", "hard", "./a"}) EXPECT_TRUE(IsSameFile(In("a"), In(name)));
  EXPECT_FALSE(IsSameFile(In("a"), In("b")));
  EXPECT_FALSE(IsSameFile(In("a"), In("new")));
  EXPECT_TRUE(IsSameFile(In("new"), In("./new")));
  EXPECT_FALSE(IsSameFile(In("new"), In("newer")));
  EXPECT_FALSE(IsSameFile("/dev/null", "/dev/null"));
}

TEST_F(FileTest, LockSurvivesDeletedFiles) {
  ASSERT_TRUE(MakeDirectories(In("d")).ok());
  const auto lock = DirectoryLock::Acquire(In("d"));
  ASSERT_TRUE(lock.ok()) << lock.status();
  const std::vector<std::string> inside = ListDirectory(In("d")).value();
  for (const std::string& name : inside) unlink(In("d/" + name).c_str());
  EXPECT_EQ(DirectoryLock::Acquire(In("d")).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(lock->Holds(In("d")));
  ASSERT_EQ(rename(In("d").c_str(), In("moved").c_str()), 0);
  EXPECT_FALSE(lock->Holds(In("d")));
  ASSERT_TRUE(MakeDirectories(In("d")).ok());
  EXPECT_FALSE(lock->Holds(In("d"))) << "another one of that name";
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

TEST_F(FileTest, ErrorsNameTheRequestedFile) {
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

TEST_F(FileTest, RefusesADirectoryOverAFile) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "x").ok());
  for (const char* path : {"a", "a/b"}) {
    const absl::Status status = MakeDirectories(In(path));
    EXPECT_THAT(std::string(status.message()),
                StartsWith(In("a") + ": cannot create the directory: "));
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

TEST_F(FileTest, DistinguishesFilesAndDirectories) {
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
  EXPECT_EQ(ParentDirectory("a/b"), "a");
  EXPECT_EQ(ParentDirectory("a/b/c"), "a/b");
  EXPECT_EQ(ParentDirectory("b"), ".");
  EXPECT_EQ(ParentDirectory("/b"), "/");
}

TEST_F(FileTest, MapsAFile) {
  ASSERT_TRUE(WriteFileAtomically(In("a"), "some content").ok());
  absl::StatusOr<MappedFile> file = MappedFile::Open(In("a"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->content(), "some content");
}

TEST_F(FileTest, ARandomAccessFileCopiesPieces) {
  for (const auto descriptor :
       {RandomAccessFile::Descriptor::kKept, RandomAccessFile::Descriptor::kForRead}) {
    ASSERT_TRUE(WriteFileAtomically(In("a"), "0123456789").ok());
    const auto file = RandomAccessFile::Open(In("a"), descriptor);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->size(), 10);
    char piece[4] = "";
    ASSERT_TRUE(file->Read(7, 3, piece).ok());
    EXPECT_STREQ(piece, "789");
    ASSERT_EQ(truncate(In("a").c_str(), 8), 0);
    const absl::Status cut = file->Read(7, 3, piece);
    EXPECT_EQ(cut.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(cut.message()), HasSubstr("/a: was truncated while it was in use"));
    EXPECT_TRUE(file->Read(0, 3, piece).ok());
  }
  // A file that is opened for each read is the same file each time; otherwise the read fails.
  const auto file = RandomAccessFile::Open(In("a"), RandomAccessFile::Descriptor::kForRead);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(WriteFileAtomically(In("a"), "abcdefgh").ok());
  char piece[4] = "";
  EXPECT_THAT(std::string(file->Read(0, 3, piece).message()), HasSubstr("/a: was replaced"));
}

// A signal handler removes these paths: files that are being written, and directories.
TEST_F(FileTest, UnfinishedPathsAreRemoved) {
  ASSERT_TRUE(MakeDirectories(In("d.tmp/inner")).ok());
  ASSERT_TRUE(WriteFileAtomically(In("d.tmp/file"), "x").ok());
  ASSERT_TRUE(WriteFileAtomically(In("d.tmp/inner/file"), "x").ok());
  ASSERT_TRUE(WriteFileAtomically(In("other"), "x").ok());
  { const UnfinishedPath finished(In("other")); }
  const UnfinishedPath directory(In("d.tmp"));
  const absl::Status written = WriteFileAtomically(In("file"), [&](PieceSink sink) -> absl::Status {
    PLUMB_RETURN_IF_ERROR(sink("half"));
    RemoveUnfinishedPaths();
    EXPECT_EQ(ListDirectory(directory_).value(), std::vector<std::string>{"other"});
    return absl::CancelledError("stop");
  });
  EXPECT_TRUE(absl::IsCancelled(written));
  // A child process does not remove the unfinished paths of its parent.
  ASSERT_TRUE(MakeDirectories(In("d.tmp")).ok());
  const pid_t child = fork();
  if (child == 0) {
    RemoveUnfinishedPaths();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(IsDirectory(In("d.tmp")));
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
