#include "plugins/check/elf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>

#include "tests/check/checker_process.h"

namespace plumb::check {
namespace {

std::string Bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(stream)), {});
}

const ElfSymbol* Find(const ElfFile& file, const std::string& name) {
  const auto symbol = std::find_if(file.symbols.begin(), file.symbols.end(),
                                   [&name](const ElfSymbol& s) { return s.name == name; });
  return symbol == file.symbols.end() ? nullptr : &*symbol;
}

TEST(ElfFileTest, ReadsWhatTheLoaderWouldSee) {
  const absl::StatusOr<ElfFile> file = ReadElf(SabotagePath("e2_exports_a_helper"));
  ASSERT_TRUE(file.ok()) << file.status();
  for (const char* name : {"plumb_norm_plugin_v1", "org_example_mean"}) {
    const ElfSymbol* symbol = Find(*file, name);
    ASSERT_NE(symbol, nullptr) << name;
    EXPECT_TRUE(symbol->Exported()) << name;
  }
  const ElfSymbol* imported = Find(*file, "calloc");
  ASSERT_NE(imported, nullptr);
  EXPECT_FALSE(imported->Exported());
  EXPECT_THAT(file->needed, ::testing::Contains("libc.so.6"));
  EXPECT_TRUE(file->HasEntry(DT_SYMTAB));
  EXPECT_FALSE(file->HasFlag(DT_FLAGS, DF_TEXTREL));
}

TEST(ElfFileTest, EveryBeginningOfAFileIsAnErrorOrAFile) {
  const std::string bytes = Bytes(SabotagePath("honest"));
  ASSERT_TRUE(ParseElf(bytes).ok());
  size_t refused = 0;
  for (size_t size = 0; size < bytes.size(); size += size < 1024 ? 1 : 37) {
    refused += ParseElf(absl::string_view(bytes).substr(0, size)).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 1000u);
}

// The words that say where everything is are in the first kilobytes and in the dynamic section; any
// of them may be anything.
TEST(ElfFileTest, SurvivesFilesThatLie) {
  const std::string bytes = Bytes(SabotagePath("honest"));
  std::mt19937_64 random(7);
  constexpr uint64_t kOdd[] = {0, 1, 0x7f, 0xffff, 0xffffffff, uint64_t{1} << 63, ~uint64_t{0}};
  for (int round = 0; round < 20000; ++round) {
    std::string spoilt = bytes;
    const size_t reach = round % 2 == 0 ? 1024 : bytes.size() - 8;
    for (int k = 0; k < 3; ++k) {
      const uint64_t value = random() % 2 == 0 ? kOdd[random() % 7] : random();
      const size_t length = size_t{1} << random() % 4;
      spoilt.replace(random() % reach, length, reinterpret_cast<const char*>(&value), length);
    }
    const absl::StatusOr<ElfFile> file = ParseElf(spoilt);
    if (!file.ok()) {
      EXPECT_FALSE(file.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace plumb::check
