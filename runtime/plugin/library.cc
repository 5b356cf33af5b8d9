// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/plugin/guarded_call.h"

namespace plumb {

// A file descriptor, closed by the destructor unless Keep was called, and the file's metadata.
class OpenLibrary {
 public:
  explicit OpenLibrary(int fd) : fd_(fd) {}
  ~OpenLibrary() {
    if (fd_ >= 0) close(fd_);
  }
  OpenLibrary(const OpenLibrary&) = delete;
  OpenLibrary& operator=(const OpenLibrary&) = delete;

  int fd() const { return fd_; }
  void Keep() { fd_ = -1; }

  struct stat info = {};  // at the time of inspection

 private:
  int fd_;
};

namespace {

// Restores the floating-point environment: a constructor of a library built with -ffast-math sets
// flush-to-zero for the thread that loads it.
class FloatingPointGuard {
 public:
  FloatingPointGuard() { std::fegetenv(&environment_); }
  ~FloatingPointGuard() { std::fesetenv(&environment_); }
  FloatingPointGuard(const FloatingPointGuard&) = delete;
  FloatingPointGuard& operator=(const FloatingPointGuard&) = delete;

 private:
  std::fenv_t environment_;
};

FileKey MakeKey(const struct stat& info) {
  return {static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino)};
}

// Returns why users other than root and this one could put code into `path`; "" if they cannot.
std::string FindOtherWriters(const std::string& path, const struct stat& info) {
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

// Returns the first objection to the file, its directory, or the directory it was found in; "" if
// there is none.
std::string Objection(const std::string& asked, const std::string& real, const struct stat& file) {
  if (std::string why = FindOtherWriters(real, file); !why.empty()) return why;
  for (const std::string& directory : {ParentDirectory(real), ParentDirectory(asked)}) {
    struct stat info;
    if (stat(directory.c_str(), &info) != 0) continue;
    if (std::string why = FindOtherWriters(directory, info); !why.empty()) return why;
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

// Fails unless one of the notes is for this host.
absl::Status CheckMajor(const LibraryFile& file) {
  if (file.notes.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path, ": is a shared library but not a plumb plugin (it has no ",
                     PLUMB_NORM_NOTE_SECTION, " note); plumb docs plugin-abi describes plugins"));
  }
  for (const NormNote& note : file.notes) {
    if (note.abi_major == PLUMB_NORM_ABI_MAJOR) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(file.path, ": is a plugin for norm ABI ", file.notes[0].abi_major,
                   ", and this plumb has norm ABI ", PLUMB_NORM_ABI_MAJOR,
                   "; plumb docs plugin-abi describes plugins"));
}

// Ignores the time of status changes, which also changes when a name of the file is removed.
bool IsUnchanged(const struct stat& before, const struct stat& now) {
  return MakeKey(before) == MakeKey(now) && before.st_size == now.st_size &&
         before.st_mtim.tv_sec == now.st_mtim.tv_sec &&
         before.st_mtim.tv_nsec == now.st_mtim.tv_nsec;
}

// Returns true if the file contains "$ORIGIN", with which a library requests that the loader search
// next to it. False positives do no harm.
bool MentionsOrigin(int fd) {
  const std::string origins[] = {"$ORIGIN", "${ORIGIN"};
  std::string text;  // end of the previous part, and this part
  std::vector<char> part(1 << 16);
  for (off_t at = 0;;) {
    const ssize_t count = pread(fd, part.data(), part.size(), at);
    if (count <= 0) return false;  // the loader reports an unreadable file
    at += count;
    text.append(part.data(), static_cast<size_t>(count));
    for (const std::string& origin : origins) {
      if (absl::StrContains(text, origin)) return true;
    }
    text.erase(0, text.size() - std::min(text.size(), origins[1].size()));
  }
}

// Returns the name by which the loader opens the inspected file, even if another file has its path
// by now: the name of its descriptor. The loader identifies libraries by name, and descriptor
// numbers are reused, so the name also encodes device and inode, in slashes and dots that do not
// change its meaning. Debuggers need the process id in it.
//
// Returns the path if there is no /proc, and for a library that searches next to itself.
std::string LoaderName(const LibraryFile& file) {
  if (MentionsOrigin(file.opened->fd())) return file.path;
  std::string name = absl::StrCat("/proc/", getpid());
  for (uint64_t number : {file.key.first, file.key.second}) {
    for (int bit = 0; bit < 64; ++bit, number >>= 1) name += (number & 1) != 0 ? "/." : "/";
  }
  absl::StrAppend(&name, "/fd/", file.opened->fd());
  return access(name.c_str(), R_OK) == 0 ? name : file.path;
}

// Returns the mutex for reading the loader's data. The loader has its own lock, which the thread
// sanitizer does not see. Recursive, since an initializer may load another library.
std::recursive_mutex& LoaderMutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

// Returns false if the library had been loaded before under another name.
bool IsLoadedAs(const std::string& name, void* handle) {
  struct link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && name == map->l_name;
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

std::string LibraryFile::NormIds() const {
  return absl::StrJoin(
      notes, ", ", [](std::string* out, const NormNote& note) { absl::StrAppend(out, note.id); });
}

LibraryFile InspectLibrary(const std::string& path, FileOrigin origin) {
  LibraryFile file;
  file.path = path;
  // O_NONBLOCK, so that a FIFO of that name cannot hang the host.
  const auto opened = std::make_shared<OpenLibrary>(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (opened->fd() < 0 || fstat(opened->fd(), &opened->info) != 0) {
    file.problem = CannotOpen(path);
    return file;
  }
  file.path = RealPath(path);
  file.key = MakeKey(opened->info);
  absl::StatusOr<std::vector<NormNote>> notes = ReadNormNotes(opened->fd());
  if (!notes.ok()) {
    file.problem = Annotate(notes.status(), absl::StrCat(file.path, ": "));
    return file;
  }
  file.notes = *std::move(notes);
  const std::string objection = Objection(path, file.path, opened->info);
  if (!objection.empty() && origin == FileOrigin::kNamed) file.warnings.push_back(objection);
  file.problem = CheckMajor(file);
  if (file.problem.ok() && !objection.empty() && origin == FileOrigin::kSearched) {
    file.problem = absl::FailedPreconditionError(objection);
  }
  if (!file.problem.ok()) return file;
  file.opened = opened;
  return file;
}

absl::StatusOr<plumb_norm_plugin_v1_fn> LoadLibrary(const LibraryFile& file) {
  PLUMB_CHECK(file.problem.ok() && file.opened != nullptr,
              "a library with a known problem must not be loaded");
  OpenLibrary* const opened = file.opened.get();
  const std::string name = LoaderName(file);
  void* handle = nullptr;
  const std::string ids = file.NormIds();
  const PluginCall record = {"dlopen", ids.c_str(), file.path.c_str()};
  const std::lock_guard<std::recursive_mutex> lock(LoaderMutex());
  const absl::Status left = Guarded(record, [&] {
    const FloatingPointGuard guard;
    handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  });
  if (!left.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(file.path, ": ", left.message()));
  }
  if (handle == nullptr) {
    const char* why = dlerror();
    return absl::FailedPreconditionError(
        absl::StrCat(file.path, ": cannot be loaded: ",
                     absl::StrReplaceAll(why == nullptr ? "no reason given" : why,
                                         {{name, file.path},
                                          {std::strerror(EMFILE), ErrnoText(EMFILE)},
                                          {std::strerror(ENOMEM), ErrnoText(ENOMEM)}})));
  }
  struct stat now;
  const bool is_same =
      (name == file.path ? stat(name.c_str(), &now) : fstat(opened->fd(), &now)) == 0 &&
      IsUnchanged(opened->info, now);
  // A debugger opens the library by the loader's name for it.
  if (IsLoadedAs(name, handle) && name != file.path) opened->Keep();
  if (!is_same) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path, ": was replaced or changed while it was being loaded"));
  }
  void* entry = dlsym(handle, PLUMB_NORM_ENTRY_SYMBOL);
  if (entry == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(file.path, ": does not export ",
                                                      PLUMB_NORM_ENTRY_SYMBOL,
                                                      "; plumb docs plugin-abi describes plugins"));
  }
  return reinterpret_cast<plumb_norm_plugin_v1_fn>(entry);
}

}  // namespace plumb
