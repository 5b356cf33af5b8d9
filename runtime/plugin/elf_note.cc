// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/elf_note.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plumb/norm_plugin.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr int kMachine = EM_RISCV;
#elif defined(__powerpc64__)
constexpr int kMachine = EM_PPC64;
#else
#error "name this machine's ELF number here"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
constexpr unsigned char kByteOrder = ELFDATA2MSB;
#else
constexpr unsigned char kByteOrder = ELFDATA2LSB;
#endif

// Limits far above those of real plugins, with a handful of program headers and some hundred bytes
// of notes.
constexpr size_t kMaxProgramHeaders = 512;
constexpr uint64_t kMaxNoteBytes = 1 << 16;
constexpr size_t kMaxNotes = 64;

absl::Status RefusedFile(absl::string_view why) { return absl::FailedPreconditionError(why); }

// Reads bytes [offset, offset + size) of the file; fails unless all are there.
absl::Status ReadAt(int fd, uint64_t file_size, uint64_t offset, uint64_t size, void* to) {
  if (offset > file_size || size > file_size - offset) return RefusedFile("is truncated");
  char* out = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = pread(fd, out, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return RefusedFile(absl::StrCat("cannot be read: ", ErrnoText(errno)));
    if (n == 0) return RefusedFile("is truncated");
    out += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

absl::Status CheckHeader(const Elf64_Ehdr& header) {
  const unsigned char* ident = header.e_ident;
  if (std::memcmp(ident, ELFMAG, SELFMAG) != 0) {
    return RefusedFile("is not a shared library (it has no ELF header)");
  }
  if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != kByteOrder ||
      header.e_machine != kMachine) {
    return RefusedFile("is a program file for another kind of machine");
  }
  if (header.e_type != ET_DYN) return RefusedFile("is an ELF file but not a shared library");
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
      header.e_phnum > kMaxProgramHeaders) {
    return RefusedFile("has a malformed ELF header");
  }
  return absl::OkStatus();
}

// Parses the description of a note as stored in the file.
absl::StatusOr<NormNote> ParseDescription(absl::string_view description) {
  constexpr size_t kIdSize = sizeof(plumb_norm_note::id);
  if (description.size() < 2 * sizeof(uint32_t)) return RefusedFile("has a malformed plumb note");
  NormNote note;
  std::memcpy(&note.abi_major, description.data(), sizeof(uint32_t));
  std::memcpy(&note.abi_minor, description.data() + sizeof(uint32_t), sizeof(uint32_t));
  // Only the two numbers have a fixed place in other majors.
  const absl::string_view text = description.substr(2 * sizeof(uint32_t), kIdSize);
  const size_t length = text.find('\0');
  if (length != absl::string_view::npos) note.id = std::string(text.substr(0, length));
  if (!IsNormId(note.id)) {
    if (note.abi_major == PLUMB_NORM_ABI_MAJOR) return RefusedFile("has a malformed plumb note");
    note.id.clear();
  }
  return note;
}

// Adds the plumb notes among `bytes`, the content of a note segment.
absl::Status ParseSegment(absl::string_view bytes, uint64_t alignment,
                          std::vector<NormNote>* notes) {
  const auto align = [alignment](uint64_t n) {
    return (n + alignment - 1) / alignment * alignment;
  };
  // Includes the NUL.
  const absl::string_view owner(PLUMB_NORM_NOTE_OWNER, sizeof(PLUMB_NORM_NOTE_OWNER));
  while (bytes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const uint64_t description_at = align(sizeof(header) + uint64_t{header.n_namesz});
    const uint64_t end = description_at + header.n_descsz;
    if (end > bytes.size()) return RefusedFile("has a malformed note segment");
    if (bytes.substr(sizeof(header), header.n_namesz) == owner &&
        header.n_type == PLUMB_NORM_NOTE_TYPE) {
      if (notes->size() == kMaxNotes) return RefusedFile("has too many plumb notes");
      PLUMB_ASSIGN_OR_RETURN(NormNote note,
                             ParseDescription(bytes.substr(description_at, header.n_descsz)));
      notes->push_back(std::move(note));
    }
    bytes.remove_prefix(std::min<uint64_t>(align(end), bytes.size()));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsNormId(const std::string& id) {
  if (id.empty() || id.size() >= sizeof(plumb_norm_note::id)) return false;
  if (id[0] < 'a' || id[0] > 'z') return false;
  char before = '.';
  for (const char c : id) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    if (!word && (c != '.' || before == '.')) return false;
    before = c;
  }
  return before != '.';
}

absl::StatusOr<std::vector<NormNote>> ReadNormNotes(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return RefusedFile("is not a file");
  const uint64_t file_size = static_cast<uint64_t>(info.st_size);

  Elf64_Ehdr header = {};
  char magic[SELFMAG] = {};
  if (file_size < SELFMAG) return RefusedFile("is not a shared library (it has no ELF header)");
  PLUMB_RETURN_IF_ERROR(ReadAt(fd, file_size, 0, SELFMAG, magic));
  if (std::memcmp(magic, ELFMAG, SELFMAG) == 0) {
    PLUMB_RETURN_IF_ERROR(ReadAt(fd, file_size, 0, sizeof(header), &header));
  }
  PLUMB_RETURN_IF_ERROR(CheckHeader(header));

  std::vector<Elf64_Phdr> segments(header.e_phnum);
  PLUMB_RETURN_IF_ERROR(
      ReadAt(fd, file_size, header.e_phoff, segments.size() * sizeof(Elf64_Phdr), segments.data()));
  std::vector<NormNote> notes;
  for (const Elf64_Phdr& segment : segments) {
    // The loader maps segments beyond the end of a truncated file, and a fault follows.
    if (segment.p_type == PT_LOAD &&
        (segment.p_offset > file_size || segment.p_filesz > file_size - segment.p_offset)) {
      return RefusedFile("is truncated");
    }
    if (segment.p_type != PT_NOTE) continue;
    if (segment.p_filesz > kMaxNoteBytes) return RefusedFile("has a malformed note segment");
    std::string bytes(segment.p_filesz, '\0');
    PLUMB_RETURN_IF_ERROR(ReadAt(fd, file_size, segment.p_offset, segment.p_filesz, bytes.data()));
    PLUMB_RETURN_IF_ERROR(ParseSegment(bytes, segment.p_align == 8 ? 8 : 4, &notes));
  }
  return notes;
}

}  // namespace plumb
