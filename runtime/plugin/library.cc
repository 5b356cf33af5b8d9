#include "runtime/plugin/library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// A library built with -ffast-math sets flush-to-zero for the thread that loads it, from a
// constructor.
class FloatingPointGuard {
 public:
  FloatingPointGuard() { std::fegetenv(&environment_); }
  ~FloatingPointGuard() { std::fesetenv(&environment_); }
  FloatingPointGuard(const FloatingPointGuard&) = delete;
  FloatingPointGuard& operator=(const FloatingPointGuard&) = delete;

 private:
  std::fenv_t environment_;
};

FileKey KeyOf(const struct stat& info) {
  return {static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino)};
}

// Why others than root and this user could put code into `path`; "" if they cannot.
std::string WhoElseCanChange(const std::string& path, const struct stat& info) {
  if (info.st_uid != 0 && info.st_uid != geteuid()) {
    return absl::StrFormat(
        "%s: belongs to user %u, who is neither root nor the user of this process", path,
        info.st_uid);
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::StrFormat("%s: can be written by others than its owner (mode %04o); chmod go-w %s",
                           path, info.st_mode & 07777, path);
  }
  return "";
}

// The first objection to the file itself, the directory it lies in, or the one it was found in.
std::string Objection(const std::string& asked, const std::string& real, const struct stat& file) {
  if (std::string why = WhoElseCanChange(real, file); !why.empty()) return why;
  for (const std::string& directory : {DirectoryOf(real), DirectoryOf(asked)}) {
    struct stat info;
    if (stat(directory.c_str(), &info) != 0) continue;
    if (std::string why = WhoElseCanChange(directory, info); !why.empty()) return why;
  }
  return "";
}

absl::Status CannotOpen(const std::string& path) {
  const int error = errno;
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat(path, ": there is no such file"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": cannot be opened: ", ErrnoText(error)));
}

// Of the notes, is there one for this host?
absl::Status CheckMajor(const LibraryFile& file) {
  if (file.notes.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path, ": is a shared library but not a plumb plugin (it has no ",
                     PLUMB_NORM_NOTE_SECTION, " note); docs/plugin-abi.md says what makes one"));
  }
  for (const NormNote& note : file.notes) {
    if (note.abi_major == PLUMB_NORM_ABI_MAJOR) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      file.path, ": is a plugin for norm ABI ", file.notes[0].abi_major,
      ", and this plumb has norm ABI ", PLUMB_NORM_ABI_MAJOR, "; see docs/plugin-abi.md"));
}

std::string RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real == nullptr ? path : std::string(real.get());
}

}  // namespace

bool LibraryFile::Names(const std::string& id) const {
  return std::any_of(notes.begin(), notes.end(),
                     [&id](const NormNote& note) { return note.id == id; });
}

LibraryFile InspectLibrary(const std::string& path, FileOrigin origin) {
  LibraryFile file;
  file.path = path;
  // O_NONBLOCK: a FIFO of that name must not hang the host.
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat info;
  if (fd.get() < 0 || fstat(fd.get(), &info) != 0) {
    file.problem = CannotOpen(path);
    return file;
  }
  file.path = RealPath(path);
  file.key = KeyOf(info);
  absl::StatusOr<std::vector<NormNote>> notes = ReadNormNotes(fd.get());
  if (!notes.ok()) {
    file.problem = Annotate(notes.status(), absl::StrCat(file.path, ": "));
    return file;
  }
  file.notes = *std::move(notes);
  const std::string objection = Objection(path, file.path, info);
  if (!objection.empty() && origin == FileOrigin::kNamed) file.warnings.push_back(objection);
  file.problem = CheckMajor(file);
  if (file.problem.ok() && !objection.empty() && origin == FileOrigin::kSearched) {
    file.problem = absl::FailedPreconditionError(objection);
  }
  return file;
}

absl::StatusOr<plumb_norm_plugin_v1_fn> LoadLibrary(const LibraryFile& file) {
  PLUMB_CHECK(file.problem.ok(), "a library with a known problem must not be loaded");
  void* handle = nullptr;
  {
    const FloatingPointGuard guard;
    handle = dlopen(file.path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }
  if (handle == nullptr) {
    const char* why = dlerror();
    return absl::FailedPreconditionError(
        absl::StrCat(file.path, ": cannot be loaded: ", why == nullptr ? "no reason given" : why));
  }
  struct stat info;
  if (stat(file.path.c_str(), &info) != 0 || KeyOf(info) != file.key) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path, ": was replaced while it was being loaded"));
  }
  void* entry = dlsym(handle, PLUMB_NORM_ENTRY_SYMBOL);
  if (entry == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        file.path, ": does not export ", PLUMB_NORM_ENTRY_SYMBOL, "; see docs/plugin-abi.md"));
  }
  return reinterpret_cast<plumb_norm_plugin_v1_fn>(entry);
}

}  // namespace plumb
