// SPDX-License-Identifier: Apache-2.0
// Every fuzzer on its corpus and on mutations of it, the same in each run; with any compiler and
// without libFuzzer. A broken promise ends the process, with the input's name just printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

std::vector<std::string> Corpus(const std::string& target) {
  std::vector<std::string> paths;
  const std::string directory = absl::StrCat(PLUMB_SOURCE_DIR, "/tests/fuzz/corpus/", target);
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class Mutator {
 public:
  explicit Mutator(const std::string& target) : stream_(1, absl::StrCat("fuzz ", target)) {}

  size_t Below(size_t n) { return n == 0 ? 0 : stream_.Below(draw_++, n); }

  std::string Mutate(std::string text, const std::string& other) {
    for (size_t changes = 1 + Below(4); changes > 0; --changes) {
      const size_t at = Below(text.size());
      const size_t length = 1 + Below(8);
      switch (Below(6)) {
        case 0:
          if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
          break;
        case 1:
          text.insert(at, length, static_cast<char>(Below(256)));
          break;
        case 2:
          text.erase(at, length);
          break;
        case 3:
          text.insert(at, text.substr(Below(text.size()), 16 * length));
          break;
        case 4:
          text = text.substr(0, at) + other.substr(std::min(other.size(), Below(other.size())));
          break;
        default:
          text.insert(at, kWords[Below(std::size(kWords))]);
      }
    }
    return text;
  }

 private:
  static constexpr const char* kWords[] = {
      "0",  "-1",  "9223372036854775807", "1e308", "nan", "(", ")", "{", "}", "[", "\"",
      "\\", "\xff"};
  RngStream stream_;
  uint64_t draw_ = 0;
};

class CorpusTest : public ::testing::TestWithParam<std::string> {};

void RunOn(FuzzFunction function, const std::string& input) {
  function(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

TEST_P(CorpusTest, KeepsInvariants) {
  constexpr int kMutations = 300;
  const FuzzFunction function = FuzzTargets().at(GetParam());
  const std::vector<std::string> paths = Corpus(GetParam());
  ASSERT_FALSE(paths.empty());
  std::vector<std::string> inputs;
  for (const std::string& path : paths) {
    std::cout << path << std::endl;
    inputs.push_back(Content(path));
    RunOn(function, inputs.back());
  }
  Mutator mutator(GetParam());
  for (int i = 0; i < kMutations; ++i) {
    const size_t seed = mutator.Below(inputs.size());
    const size_t other = mutator.Below(inputs.size());
    std::cout << "mutation " << i << " of " << paths[seed] << std::endl;
    RunOn(function, mutator.Mutate(inputs[seed], inputs[other]));
  }
  RunOn(function, "");
}

std::vector<std::string> TargetNames() {
  std::vector<std::string> names;
  for (const auto& [name, function] : FuzzTargets()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Targets, CorpusTest, ::testing::ValuesIn(TargetNames()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace plumb
