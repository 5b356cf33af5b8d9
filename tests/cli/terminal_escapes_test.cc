// SPDX-License-Identifier: Apache-2.0
// Whatever files and models contain, plumb prints no control sequences to a terminal, and its JSON
// is valid.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// File name with colours, a bell, a carriage return, a byte that is not UTF-8, CSI as one
// character, a direction override, and DEL.
constexpr char kEvil[] = "e\x1b[31m\a\r\xff\xc2\x9b\xe2\x80\xae\x7f";

// Returns a description of the first control character in `text`, or "" without one.
std::string Commands(const std::string& text) {
  // Serializing to JSON throws if the text is not UTF-8.
  try {
    static_cast<void>(nlohmann::json(text).dump());
  } catch (const nlohmann::json::exception& error) {
    return error.what();
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c1 = byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    const bool direction = text.compare(i, 3, "\xe2\x80\xae") == 0;
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f || c1 || direction) {
      return "byte " + std::to_string(i) + " is " + std::to_string(byte);
    }
  }
  return "";
}

class TerminalEscapesTest : public PlumbTest {
 protected:
  // Runs plumb and checks its output and, with --json, the syntax of its JSON.
  Finished Check(const std::vector<std::string>& arguments, int exit_code) {
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << arguments[0] << ": " << result.err;
    EXPECT_EQ(Commands(result.out), "") << arguments[0];
    EXPECT_EQ(Commands(result.err), "") << arguments[0] << ": " << result.err;
    if (arguments.back() == "--json" && exit_code == 0) {
      EXPECT_FALSE(nlohmann::json::parse(result.out, nullptr, false).is_discarded()) << result.out;
    }
    return result;
  }
  // Checks that every file below `directory` with this ending is JSON, line by line if `lines`.
  void CheckFiles(const std::string& directory, const std::string& ending, bool lines) {
    size_t seen = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(Path(directory))) {
      const std::string path = entry.path().string();
      if (path.size() < ending.size() || path.substr(path.size() - ending.size()) != ending) {
        continue;
      }
      ++seen;
      std::istringstream text(Read(path.substr(Path("").size())));
      std::string line;
      while (std::getline(text, line, lines ? '\n' : '\0')) {
        EXPECT_FALSE(nlohmann::json::parse(line, nullptr, false).is_discarded()) << path;
      }
    }
    EXPECT_GT(seen, 0u) << ending;
  }
};

TEST_F(TerminalEscapesTest, EscapesFileNames) {
  const std::string evil = kEvil, run = "run" + evil, data = evil + ".txt", model = evil + ".pbtxt";
  Write(data, Read("names.txt"));
  Write(model, Read("pre.pbtxt"));
  const std::vector<std::string> train = {"train",   model,         "--data", data,
                                          "--train", "train.pbtxt", "--set",  "train.max_steps=3",
                                          "--out",   run,           "--probe"};
  const Finished trained = Check(train, 0);
  EXPECT_THAT(trained.err, HasSubstr("\\u{1b}[31m"));
  EXPECT_THAT(trained.err, HasSubstr("\\xff"));
  Check({"train", "--resume", "--data", data, "--out", run, "--json"}, 0);
  CheckFiles(run, ".json", false);
  CheckFiles(run, ".jsonl", true);
  Check({"sample", run, "--num", "2", "--json"}, 0);
  Check({"eval", run, "--data", data}, 0);
  Check({"eval", run, "--data", data, "--json"}, 0);
  Check({"describe", model, "--set", "model.vocab_size=9", "--json"}, 0);
  Check({"describe", model + "x"}, 2);
  Check({"sample", evil}, 2);
  Check({evil}, 2);
  Check({"describe", "pre.pbtxt", "--set", "model." + evil + "=1"}, 2);
  Check({"plugin", "list", "--plugin", data}, 3);
  Check({"plugin", "check", data, "--json"}, 2);
}

TEST_F(TerminalEscapesTest, EscapesFileNamesInComparisons) {
  const std::string evil = kEvil, out = "study" + evil;
  Write(evil + ".txt", Read("names.txt"));
  Write(evil + ".pbtxt", Read("pre.pbtxt"));
  const std::vector<std::string> compare = {
      "compare",           evil + ".pbtxt", "post.pbtxt", "--data", evil + ".txt",
      "--train",           "train.pbtxt",   "--seeds",    "2",      "--set",
      "train.max_steps=3", "--probe-every", "1",          "--out",  out};
  Check(compare, 0);
  CheckFiles(out, ".json", false);
  CheckFiles(out, ".jsonl", true);
  EXPECT_EQ(Commands(Read(out + "/report.html")), "");
}

TEST_F(TerminalEscapesTest, EscapesNamesInFiles) {
  Write("my.pbtxt",
        "name: \"\\033[31m\\007\\r\\177\\302\\233\\342\\200\\256\"\n" + Read("pre.pbtxt"));
  const std::string vocabulary = "model.vocab_size=9";
  EXPECT_THAT(Check({"describe", "my.pbtxt", "--set", vocabulary}, 0).out,
              HasSubstr("\\u{1b}[31m\\u{7}\\r\\u{7f}\\u{9b}"));
  Check({"describe", "my.pbtxt", "--set", vocabulary, "--json"}, 0);
  Check({"explain", "my.pbtxt", "--set", vocabulary, "--stage", "prompt"}, 0);
  Write("syntax.pbtxt", "n\x1b[31m \xff: 1\n");
  Check({"describe", "syntax.pbtxt"}, 2);
  Write("raw.txt", "abc\x1b\xff\n");
  EXPECT_THAT(Check({"train", "pre.pbtxt", "--data", "raw.txt"}, 2).err,
              HasSubstr("not valid UTF-8"));
  Write("tokens.json", "[[1, \"\x1b\xff\"]]");
  Check({"eval", "my.pbtxt", "--tokens", "tokens.json", "--weights", "none"}, 2);
}

TEST_F(TerminalEscapesTest, EscapesSamplesOnATerminalOnly) {
  std::string bytes;
  for (int i = 0; i < 2000; ++i) bytes += "\x1b[\x07\xff";
  Write("bytes.txt", bytes);
  ASSERT_EQ(RunPlumb({"train", "pre.pbtxt", "--data", "bytes.txt", "--out", "run", "--set",
                      "train.data.vocabulary=BYTES", "--set", "model.vocab_size=256", "--set",
                      "train.data.format=TEXT", "--set", "train.max_steps=60"})
                .exit_code,
            0);
  std::vector<std::string> sample = {"sample", "run", "--num", "1", "--max-tokens", "30"};
  const Finished raw = RunPlumb(sample);
  EXPECT_THAT(raw.out, HasSubstr("\x1b["));
  EXPECT_THAT(raw.out, Not(HasSubstr("\\u{1b}")));

  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0) GTEST_SKIP() << "no pseudo-terminal here; is /dev/pts mounted?";
  ASSERT_EQ(grantpt(master), 0);
  ASSERT_EQ(unlockpt(master), 0);
  const std::string slave = ptsname(master);
  const int keep =
      open(slave.c_str(), O_RDWR | O_NOCTTY);  // a pty whose slave is closed loses its output
  struct termios mode;
  ASSERT_EQ(tcgetattr(keep, &mode), 0);
  cfmakeraw(&mode);
  ASSERT_EQ(tcsetattr(keep, TCSANOW, &mode), 0);
  for (const char* number : {"1", "2"}) {  // a single sample is streamed
    sample[3] = number;
    EXPECT_EQ(PlumbProcess(directory(), sample, slave).Wait().exit_code, 0);
    // The terminal passes the output on in parts, even after the process has ended.
    constexpr char kEnd[] = "<end>";
    ASSERT_EQ(write(keep, kEnd, strlen(kEnd)), static_cast<ssize_t>(strlen(kEnd)));
    std::string text;
    while (text.find(kEnd) == std::string::npos) {
      char part[4096];
      const ssize_t n = read(master, part, sizeof(part));
      ASSERT_GT(n, 0);
      text.append(part, static_cast<size_t>(n));
    }
    EXPECT_EQ(Commands(text), "") << text;
    EXPECT_THAT(text, HasSubstr("\\u{1b}["));
  }
  close(keep);
  close(master);

  sample.push_back("--json");
  Check(sample, 0);
}

}  // namespace
}  // namespace plumb::cli
