// SPDX-License-Identifier: Apache-2.0
// Runs the commands of errors.txt, which says how it is read, and compares the errors of plumb.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/plumb_process.h"

namespace plumb::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// Returns the words of a line, without the quotes of '...'.
std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words;
  for (size_t at = 0; at < line.size();) {
    const bool quoted = line[at] == '\'';
    const size_t begin = at + (quoted ? 1 : 0);
    const size_t end = std::min(line.find(quoted ? '\'' : ' ', begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    at = end + (quoted ? 2 : 1);
  }
  return words;
}

// Replaces the first `from`, which must be in the text.
std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

class ErrorsTest : public PlumbTest {
 protected:
  // Returns all files but those that hold the output of RunPlumb, which begin with a dot.
  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory())) {
      if (entry.path().filename().string()[0] != '.') files.insert(entry.path());
    }
    return files;
  }

  // Runs plumb, which must fail and leave no file behind. Returns its error.
  std::string Error(const std::vector<std::string>& arguments, int exit_code) {
    const std::set<std::string> before = Files();
    const Finished result = RunPlumb(arguments);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, StartsWith("error: "));
    EXPECT_EQ(Files(), before);
    return result.err;
  }
};

TEST_F(ErrorsTest, MatchTheFile) {
  std::vector<std::string> lines;
  std::ifstream file(PLUMB_SOURCE_DIR "/tests/cli/errors.txt");
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  size_t at = 0;
  int commands = 0;
  // Returns the rest of the next line and goes to the one after it, if it begins with this prefix.
  const auto take = [&](const std::string& prefix) -> std::optional<std::string> {
    if (at == lines.size() || lines[at].compare(0, prefix.size(), prefix) != 0) return {};
    return lines[at++].substr(prefix.size());
  };
  while (at < lines.size()) {
    SCOPED_TRACE("errors.txt:" + std::to_string(at + 1));
    if (const auto name = take("file ")) {
      std::string content;
      while (const auto line = take("| ")) content += *line + "\n";
      Write(*name, content);
    } else if (const auto names = take("edit ")) {
      const std::string from = take("- ").value(), to = take("+ ").value();
      Write(Words(*names)[1], Replaced(Read(Words(*names)[0]), from, to));
    } else if (const auto command = take("$")) {
      const std::vector<std::string> words = Words(*command);
      const int exit_code = words[0].empty() ? 2 : std::stoi(words[0]);
      const std::string error = Error({words.begin() + 1, words.end()}, exit_code);
      while (const auto text = take("> ")) {
        const size_t line_break = text->find("\\n");
        const std::string expected =
            line_break == std::string::npos ? *text : Replaced(*text, "\\n", "\n");
        if (expected[0] == '^') {
          EXPECT_THAT(error, StartsWith(expected.substr(1)));
        } else {
          EXPECT_THAT(error, HasSubstr(expected));
        }
      }
      ++commands;
    } else {
      EXPECT_TRUE(lines[at].empty() || lines[at][0] == '#') << lines[at];
      ++at;
    }
  }
  EXPECT_GT(commands, 100);
}

}  // namespace
}  // namespace plumb::cli
