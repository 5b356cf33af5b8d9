// SPDX-License-Identifier: Apache-2.0
// Tests of pipes that are read and written as files, and of the signals of writing.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "tests/base/file_fixture.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using PipeTest = FileTest;

TEST_F(PipeTest, WritingWithoutAReaderFails) {
  ASSERT_EQ(mkfifo(In("pipe").c_str(), 0600), 0);
  const absl::Status status = WriteFileAtomically(In("pipe"), "x");
  EXPECT_EQ(status.message(), In("pipe") + ": is a pipe that nobody reads from");
}

TEST_F(PipeTest, ClosedReaderIsAnErrorWithoutSIGPIPE) {
  ASSERT_EQ(mkfifo(In("pipe").c_str(), 0600), 0);
  const int reader = open(In("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  const std::string piece(1 << 20, 'x');  // more than a pipe's capacity
  absl::Status status;
  std::thread writer([&] { status = WriteFileAtomically(In("pipe"), piece); });
  char first;
  while (read(reader, &first, 1) != 1) std::this_thread::yield();
  close(reader);
  writer.join();
  EXPECT_THAT(std::string(status.message()), StartsWith(In("pipe") + ": cannot write: "));
}

TEST_F(PipeTest, KeepsAPendingSIGPIPEOfTheHost) {
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &pipe, &before), 0);
  ASSERT_EQ(pthread_kill(pthread_self(), SIGPIPE), 0);
  EXPECT_FALSE(WriteFileAtomically("/dev/full", "x").ok());
  ASSERT_EQ(sigpending(&pending), 0);
  EXPECT_TRUE(sigismember(&pending, SIGPIPE));
  constexpr timespec kNow = {};
  EXPECT_EQ(sigtimedwait(&pipe, nullptr, &kNow), SIGPIPE);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(PipeTest, ReadsPipesToTheirEnd) {
  ASSERT_EQ(mkfifo(In("pipe").c_str(), 0600), 0);
  std::string content(300000, 'x');  // more than a pipe's capacity
  content += "the end";
  std::thread writer([&] {
    // Opening waits for the reader, like "cat a > pipe" in a shell.
    const int fd = open(In("pipe").c_str(), O_WRONLY);
    for (size_t done = 0; done < content.size();) {
      const ssize_t n = write(fd, content.data() + done, content.size() - done);
      ASSERT_GT(n, 0);
      done += static_cast<size_t>(n);
    }
    close(fd);
  });
  EXPECT_TRUE(ReadFile(In("pipe")).value() == content);
  writer.join();

  // A shell's "<(...)" passes such a path, and its command may already have ended.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "early", 5), 5);
  close(ends[1]);
  EXPECT_EQ(ReadFile(absl::StrCat("/dev/fd/", ends[0])).value(), "early");
  close(ends[0]);
}

TEST_F(PipeTest, ReadingWithoutAWriterTimesOut) {
  ASSERT_EQ(mkfifo(In("pipe").c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(In("pipe")).status().message(),
            In("pipe") + ": is a pipe that nobody writes to");
  EXPECT_EQ(ReadData(In("pipe")).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PipeTest, RefusesToMapAPipeWithoutAWriter) {
  ASSERT_EQ(mkfifo(In("pipe").c_str(), 0600), 0);
  EXPECT_THAT(std::string(MappedFile::Open(In("pipe")).status().message()),
              HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace plumb
