#include "runtime/plugin/elf_check.h"

#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "runtime/base/file.h"
#include "runtime/plugin/library.h"
#include "runtime/plugin/registry.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

constexpr int kFlipsPerPlugin = 60;

std::vector<std::string> ShippedPlugins() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(PLUMB_TEST_PLUGIN_DIR)) {
    if (entry.path().extension() == ".so") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::Status Check(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const absl::Status status = CheckElf(fd).status();
  close(fd);
  return status;
}

template <class T>
T At(const std::string& bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

// Does a relocation of this type call a function of the library (an indirect one)?
bool IsResolved(uint64_t type) {
#if defined(__x86_64__)
  return type == R_X86_64_IRELATIVE;
#elif defined(__aarch64__)
  return type == R_AARCH64_IRELATIVE;
#elif defined(__riscv)
  return type == R_RISCV_IRELATIVE;
#else
  return type == R_PPC64_IRELATIVE;
#endif
}

// The offsets in a library of what the loader reads before any code of it runs: headers, dynamic
// section, names, symbols, hashes, versions, relocations, notes. Left out is what no table says:
// the addresses of the functions that are called while it is loaded. Their code may be anywhere.
std::vector<uint64_t> TablesOfTheLoader(const std::string& bytes) {
  const auto header = At<Elf64_Ehdr>(bytes, 0);
  std::vector<uint64_t> offsets;
  const auto add = [&offsets](uint64_t begin, uint64_t size) {
    for (uint64_t i = 0; i < size; ++i) offsets.push_back(begin + i);
  };
  add(0, sizeof(header));
  add(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr));
  std::set<uint64_t> left_out;
  const auto leave_out = [&left_out](uint64_t begin) {
    for (uint64_t i = 0; i < 8; ++i) left_out.insert(begin + i);
  };
  std::vector<Elf64_Shdr> sections;
  for (int i = 0; i < header.e_shnum; ++i) {
    sections.push_back(At<Elf64_Shdr>(bytes, header.e_shoff + i * sizeof(Elf64_Shdr)));
  }
  for (const Elf64_Shdr& section : sections) {
    if ((section.sh_flags & SHF_ALLOC) == 0) continue;
    const uint64_t begin = section.sh_offset, end = begin + section.sh_size;
    switch (section.sh_type) {
      case SHT_DYNAMIC:
        for (uint64_t at = begin; at < end; at += sizeof(Elf64_Dyn)) {
          const auto tag = At<Elf64_Dyn>(bytes, at).d_tag;
          if (tag == DT_INIT || tag == DT_FINI) leave_out(at + offsetof(Elf64_Dyn, d_un));
        }
        break;
      case SHT_RELA:
        for (uint64_t at = begin; at < end; at += sizeof(Elf64_Rela)) {
          const uint64_t place = At<Elf64_Rela>(bytes, at).r_offset;
          if (IsResolved(ELF64_R_TYPE(At<Elf64_Rela>(bytes, at).r_info))) {
            leave_out(at + offsetof(Elf64_Rela, r_addend));
          }
          for (const Elf64_Shdr& list : sections) {
            const bool of_functions =
                list.sh_type == SHT_INIT_ARRAY || list.sh_type == SHT_FINI_ARRAY;
            if (of_functions && place >= list.sh_addr && place < list.sh_addr + list.sh_size) {
              leave_out(at + offsetof(Elf64_Rela, r_addend));
            }
          }
        }
        break;
      case SHT_DYNSYM:
      case SHT_STRTAB:
      case SHT_HASH:
      case SHT_GNU_HASH:
      case SHT_GNU_versym:
      case SHT_GNU_verneed:
      case SHT_GNU_verdef:
      case SHT_NOTE:
        break;
      default:
        continue;
    }
    add(begin, end - begin);
  }
  offsets.erase(std::remove_if(offsets.begin(), offsets.end(),
                               [&](uint64_t at) { return left_out.count(at) != 0; }),
                offsets.end());
  return offsets;
}

// Loads the library in a child; false if it did not survive.
struct ChildResult {
  bool survived = false, loaded = false;
  int signal = 0;
};
ChildResult LoadInChild(const std::string& path) {
  const pid_t pid = fork();
  if (pid == 0) {
    const LibraryFile file = InspectLibrary(path, FileOrigin::kNamed);
    const absl::Status status = file.problem.ok() ? LoadLibrary(file).status() : file.problem;
    if (status.ok()) _exit(0);
    _exit(status.message().find(path) == 0 ? 1 : 2);
  }
  int wait_status = 0;
  waitpid(pid, &wait_status, 0);
  ChildResult result;
  result.survived = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) <= 1;
  result.loaded = result.survived && WEXITSTATUS(wait_status) == 0;
  if (WIFSIGNALED(wait_status)) result.signal = WTERMSIG(wait_status);
  return result;
}

class ElfCheckTest : public ::testing::Test {
 protected:
  ElfCheckTest() {
    char name[] = "/tmp/plumb_elf_check_test_XXXXXX";
    directory_ = std::filesystem::canonical(mkdtemp(name)).string();
  }
  ~ElfCheckTest() override { std::filesystem::remove_all(directory_); }

  // A file of these bytes, of its own inode.
  std::string Put(const std::string& bytes) {
    const std::string path = directory_ + "/plugin.so";
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << bytes;
    chmod(path.c_str(), 0700);
    return path;
  }

  std::string directory_;
};

TEST_F(ElfCheckTest, TakesEveryShippedPlugin) {
  ASSERT_FALSE(ShippedPlugins().empty());
  for (const std::string& path : ShippedPlugins()) EXPECT_TRUE(Check(path).ok()) << Check(path);
}

// The libraries that this very process was linked with: another linker's work, with versions of
// their own, indirect functions, thread-local storage and both kinds of hash tables.
TEST_F(ElfCheckTest, FindsNothingDamagedInLibrariesOfTheSystem) {
  const std::string maps = ReadFile("/proc/self/maps").value_or("");
  std::set<std::string> paths;
  for (size_t at = 0; (at = maps.find('/', at)) != std::string::npos;) {
    const size_t end = maps.find('\n', at);
    const std::string path = maps.substr(at, end - at);
    if (path.find(".so") != std::string::npos) paths.insert(path);
    at = end;
  }
  if (paths.empty()) GTEST_SKIP() << "no /proc, or linked statically";
  for (const std::string& path : paths) {
    EXPECT_THAT(std::string(Check(path).message()), HasSubstr("does not export")) << path;
  }
}

TEST_F(ElfCheckTest, ADamagedTableNeverReachesTheLoader) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitized library registers its data, whose addresses no table checks";
#endif
  int refused = 0, loaded = 0;
  std::mt19937 random(1);
  for (const std::string& path : ShippedPlugins()) {
    const std::string good = ReadFile(path).value();
    const std::vector<uint64_t> offsets = TablesOfTheLoader(good);
    ASSERT_GT(offsets.size(), 1000u);
    for (int i = 0; i < kFlipsPerPlugin; ++i) {
      std::string bytes = good;
      const uint64_t offset = offsets[random() % offsets.size()];
      const int bit = static_cast<int>(random() % 8);
      bytes[offset] = static_cast<char>(bytes[offset] ^ (1 << bit));
      const ChildResult result = LoadInChild(Put(bytes));
      EXPECT_TRUE(result.survived) << path << ": bit " << bit << " of byte " << offset
                                   << " flipped: signal " << result.signal;
      ++(result.loaded ? loaded : refused);
    }
  }
  // Both happen: much of a name or of a section's flags is nobody's business.
  EXPECT_GT(refused, 0);
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace plumb
