// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/elf_note.h"

#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "plumb/norm_plugin.h"
#include "runtime/base/file.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::vector<NormNote>> ReadBytes(const std::string& bytes) {
  const int fd = memfd_create("elf_note_test", MFD_CLOEXEC);
  EXPECT_GE(fd, 0);
  EXPECT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  auto notes = ReadNormNotes(fd);
  close(fd);
  return notes;
}

std::string Content(const std::string& path) { return ReadFile(path).value(); }
std::string Plugin() { return Content(PLUMB_TEST_PLUGIN_DIR "/none.so"); }

TEST(ElfNoteTest, ReadsTheIdAndTheAbi) {
  const auto notes = ReadBytes(Plugin());
  ASSERT_TRUE(notes.ok()) << notes.status();
  ASSERT_EQ(notes->size(), 1u);
  EXPECT_EQ((*notes)[0].id, "none");
  EXPECT_EQ((*notes)[0].abi_major, 1u);
  EXPECT_EQ((*notes)[0].abi_minor, uint32_t{PLUMB_NORM_ABI_MINOR});
}

TEST(ElfNoteTest, ReadsANoteOfAnotherMajor) {
  const auto notes = ReadBytes(Content(PLUMB_MUTANT_DIR "/major_two.so"));
  ASSERT_TRUE(notes.ok()) << notes.status();
  ASSERT_EQ(notes->size(), 1u);
  EXPECT_EQ((*notes)[0].abi_major, 2u);
}

TEST(ElfNoteTest, FindsNothingInAnotherLibrary) {
  const auto notes = ReadBytes(Content(PLUMB_MUTANT_DIR "/plain_library.so"));
  ASSERT_TRUE(notes.ok()) << notes.status();
  EXPECT_TRUE(notes->empty());
}

TEST(ElfNoteTest, RefusesForeignLibraries) {
  EXPECT_THAT(std::string(ReadBytes("").status().message()), HasSubstr("no ELF header"));
  EXPECT_THAT(std::string(ReadBytes("hello, world").status().message()),
              HasSubstr("no ELF header"));
  std::string bytes = Plugin();
  bytes[EI_CLASS] = ELFCLASS32;
  EXPECT_THAT(std::string(ReadBytes(bytes).status().message()),
              HasSubstr("another kind of machine"));
  bytes = Plugin();
  bytes[offsetof(Elf64_Ehdr, e_type)] = ET_REL;
  EXPECT_THAT(std::string(ReadBytes(bytes).status().message()), HasSubstr("not a shared library"));
}

TEST(ElfNoteTest, RefusesEveryTruncationOfTheLoadedPart) {
  const std::string bytes = Plugin();
  for (size_t size = 4; size < bytes.size() / 2; size += 1 + size / 64) {
    EXPECT_THAT(std::string(ReadBytes(bytes.substr(0, size)).status().message()),
                HasSubstr("truncated"))
        << size;
  }
}

TEST(ElfNoteTest, RefusesNumbersThatPointOutsideTheFile) {
  const std::string good = Plugin();
  Elf64_Ehdr header;
  std::memcpy(&header, good.data(), sizeof(header));
  const auto with = [&good](size_t offset, uint64_t value, size_t size) {
    std::string bytes = good;
    std::memcpy(bytes.data() + offset, &value, size);
    return ReadBytes(bytes).status();
  };
  EXPECT_FALSE(with(offsetof(Elf64_Ehdr, e_phoff), ~uint64_t{0} - 8, 8).ok());
  EXPECT_FALSE(with(offsetof(Elf64_Ehdr, e_phnum), 0xffff, 2).ok());
  EXPECT_FALSE(with(offsetof(Elf64_Ehdr, e_phentsize), 1, 2).ok());
  int note_segments = 0;
  for (int i = 0; i < header.e_phnum; ++i) {
    const size_t at = header.e_phoff + i * sizeof(Elf64_Phdr);
    Elf64_Phdr segment;
    std::memcpy(&segment, good.data() + at, sizeof(segment));
    if (segment.p_type != PT_NOTE) continue;
    ++note_segments;
    EXPECT_FALSE(with(at + offsetof(Elf64_Phdr, p_offset), ~uint64_t{0}, 8).ok());
    EXPECT_FALSE(with(at + offsetof(Elf64_Phdr, p_filesz), ~uint64_t{0}, 8).ok());
    EXPECT_FALSE(with(segment.p_offset, 0xffffffff, 4).ok());      // length of a name
    EXPECT_FALSE(with(segment.p_offset + 4, 0xffffffff, 4).ok());  // length of a description
  }
  EXPECT_GT(note_segments, 0);
}

TEST(ElfNoteTest, RefusesAnIdThatDoesNotEnd) {
  std::string bytes = Plugin();
  const size_t id = bytes.find(std::string("none\0\0\0\0\0\0\0\0", 12));
  ASSERT_NE(id, std::string::npos);
  bytes.replace(id, 64, std::string(64, 'a'));
  EXPECT_THAT(std::string(ReadBytes(bytes).status().message()), HasSubstr("malformed plumb note"));
  bytes.replace(id, 64, std::string("../evil") + std::string(57, '\0'));
  EXPECT_THAT(std::string(ReadBytes(bytes).status().message()), HasSubstr("malformed plumb note"));
}

TEST(ElfNoteTest, SurvivesRandomDamage) {
  const std::string good = Plugin();
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    // The damage is in the part with headers and notes.
    for (int k = 0; k < 4; ++k) bytes[random() % 1024] = static_cast<char>(random());
    const auto notes = ReadBytes(bytes);
    if (notes.ok()) {
      for (const NormNote& note : *notes) EXPECT_LE(note.id.size(), 63u);
    }
  }
}

TEST(ElfNoteTest, RefusesADirectory) {
  const int fd = open("/", O_RDONLY | O_DIRECTORY);
  EXPECT_FALSE(ReadNormNotes(fd).ok());
  close(fd);
}

}  // namespace
}  // namespace plumb
