// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/file_system.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/base/unfinished_paths.h"
#include "runtime/base/utf8.h"

namespace plumb {
namespace {

constexpr absl::string_view kTemporary = ".tmp.";  // followed by digits

// A name that is longer than the system allows cannot exist.
bool IsAbsent(int error) { return error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG; }

absl::Status FromErrno(absl::string_view path, absl::string_view what) {
  const int error = errno;
  const std::string message = absl::StrCat(ShortMessage(path), ": ", what, ": ", ErrnoText(error));
  if (IsAbsent(error)) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(message);
  }
  if (error == ENOSPC || error == ENOMEM || error == EFBIG || error == EMFILE)
    return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Reset(-1); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  void Reset(int fd) {
    if (fd_ >= 0) Files().Close(fd_);
    fd_ = fd;
  }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

absl::Status WriteAll(int fd, absl::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = Files().Write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      // EAGAIN: the pipe is full.
      if (errno == EAGAIN && (Files().Poll(fd, POLLOUT, -1) >= 0 || errno == EINTR)) continue;
      return FromErrno(path, "cannot write");
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Opens a regular file for reading. Does not block on a pipe without a writer.
absl::Status OpenRegular(const std::string& path, FileDescriptor* file, struct stat* info) {
  file->Reset(Files().Open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0));
  if (file->get() < 0) return FromErrno(path, "cannot open");
  if (Files().FileStat(file->get(), info) != 0) return FromErrno(path, "cannot stat");
  if (S_ISREG(info->st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
}

// Place where the content of a file is written.
struct Target {
  std::string path;      // with all symbolic links followed
  bool replaces = true;  // renamed over; false: written in place (a device, a pipe, /dev/stdout)
  bool exists = false;
  struct stat info = {};  // valid if the file exists
};

// Returns true for links below /proc, which lead to open files that a rename would not reach, for
// example the target of a shell's "> file" behind /dev/stdout.
bool IsOfOpenFiles(const std::string& link) {
  std::error_code error;
  const auto directory = std::filesystem::canonical(ParentDirectory(link), error);
  return !error && absl::StartsWith(directory.string(), "/proc/");
}

absl::StatusOr<Target> FollowLinks(const std::string& path) {
  constexpr int kMaxLinks = 40;  // Linux's own limit
  Target target;
  target.path = path;
  for (int links = 0; links <= kMaxLinks; ++links) {
    if (Files().LinkStat(target.path.c_str(), &target.info) != 0) {
      if (errno == ENOENT) return target;
      return FromErrno(path, "cannot create");
    }
    if (S_ISDIR(target.info.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, not a file"));
    }
    if (!S_ISLNK(target.info.st_mode)) {
      target.exists = true;
      target.replaces = S_ISREG(target.info.st_mode);
      return target;
    }
    if (IsOfOpenFiles(target.path)) {
      target.exists = true;
      target.replaces = false;
      return target;
    }
    std::error_code error;
    const std::string next = std::filesystem::read_symlink(target.path, error).string();
    if (error) return absl::UnavailableError(absl::StrCat(path, ": cannot read the link"));
    target.path = JoinPath(ParentDirectory(target.path), next);
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": too many symbolic links"));
}

// Returns a name next to `path` that no other call of this process uses, so that two calls that
// write one file at once each replace it whole.
std::string TemporaryName(const std::string& path) {
  static std::atomic<uint32_t> calls{0};
  constexpr size_t kMaxName = 255;
  constexpr size_t kMaxDigits = 20;
  const std::string end =
      absl::StrFormat("%s%d%06d", kTemporary, getpid(), calls.fetch_add(1) % 1000000);
  const size_t name = path.rfind('/') + 1;
  if (path.size() - name + kTemporary.size() + kMaxDigits <= kMaxName) {
    return absl::StrCat(path, end);
  }
  return absl::StrCat(path.substr(0, name + kMaxName - kTemporary.size() - kMaxDigits), end);
}

// Creates a file with the mode and, if possible, the owner of the file that it will replace. The
// name is on the list of unfinished paths before the file exists, since a signal may come at once.
int CreateTemporary(std::string* temporary, std::optional<UnfinishedPath>* unfinished,
                    const Target& target) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;  // never through a link
  constexpr int kTries = 100;  // names may remain from a killed process with the same process id
  int fd = -1;
  for (int i = 0; i < kTries; ++i) {
    *temporary = TemporaryName(target.path);
    unfinished->emplace(*temporary);
    fd = Files().Open(temporary->c_str(), kFlags, 0666);
    if (fd >= 0) break;
    unfinished->reset();
    if (errno != EEXIST) break;
  }
  if (fd < 0 || !target.exists) return fd;
  // Only root may change the owner. Failing to keep owner or mode is no reason to lose the content.
  [[maybe_unused]] const int owned =
      Files().ChangeOwner(fd, target.info.st_uid, target.info.st_gid);
  [[maybe_unused]] const int moded = Files().ChangeMode(fd, target.info.st_mode & 07777);
  return fd;
}

// Errors name `path`, the file as the caller named it.
absl::Status WritePieces(int fd, absl::FunctionRef<absl::Status(PieceSink sink)> produce,
                         const std::string& path) {
  return produce([&](absl::string_view piece) { return WriteAll(fd, piece, path); });
}

// Sets `*temporary` to the name of the file, or to "" if none was created, and lists it in
// `*unfinished`.
absl::Status WriteAndSync(const Target& target,
                          absl::FunctionRef<absl::Status(PieceSink sink)> produce,
                          const std::string& path, std::string* temporary,
                          std::optional<UnfinishedPath>* unfinished) {
  FileDescriptor file(CreateTemporary(temporary, unfinished, target));
  if (file.get() < 0) {
    temporary->clear();
    return FromErrno(path, "cannot create");
  }
  PLUMB_RETURN_IF_ERROR(WritePieces(file.get(), produce, path));
  if (Files().Sync(file.get()) != 0) return FromErrno(path, "cannot sync");
  return absl::OkStatus();
}

absl::Status WriteThrough(const Target& target,
                          absl::FunctionRef<absl::Status(PieceSink sink)> produce,
                          const std::string& path) {
  // O_NONBLOCK, because opening a pipe would wait for a reader.
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  FileDescriptor file(Files().Open(target.path.c_str(), kFlags, 0));
  if (file.get() < 0 && errno == ENXIO && S_ISFIFO(target.info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a pipe that nobody reads from"));
  }
  if (file.get() < 0) return FromErrno(path, "cannot open");
  return WritePieces(file.get(), produce, path);
}

// Waits until a file that was opened with O_NONBLOCK has something to read or has ended. A pipe
// that has no writer yet looks like one at its end. Unless `begun` (bytes or a writer were seen),
// it gets some time, since the writer of "cat model.pbtxt > pipe &" may start later than plumb.
absl::Status WaitForWriter(int fd, bool begun, const std::string& path) {
  constexpr int kPatienceMs = 2000;
  int ready;
  do {
    ready = Files().Poll(fd, POLLIN, begun ? -1 : kPatienceMs);
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return FromErrno(path, "cannot read");
  if (ready == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a pipe that nobody writes to"));
  }
  return absl::OkStatus();
}

// Appends the content of a file that was opened with O_NONBLOCK, until `*content` is longer than
// `max_bytes`. May throw std::bad_alloc.
absl::Status AppendContent(int fd, bool is_pipe, int64_t max_bytes, const std::string& path,
                           std::string* content) {
  bool begun = !is_pipe;  // true once the pipe is known to have or have had a writer
  char buffer[1 << 16];
  while (static_cast<int64_t>(content->size()) <= max_bytes) {
    const ssize_t n = Files().Read(fd, buffer, sizeof(buffer));
    if (n > 0) {
      content->append(buffer, static_cast<size_t>(n));
      begun = true;
    } else if (n == 0) {
      if (begun) return absl::OkStatus();
      PLUMB_RETURN_IF_ERROR(WaitForWriter(fd, begun, path));
      begun = true;
    } else if (errno == EAGAIN) {
      begun = true;  // a writer has it open
      PLUMB_RETURN_IF_ERROR(WaitForWriter(fd, begun, path));
    } else if (errno != EINTR) {
      return FromErrno(path, "cannot read");
    }
  }
  return absl::OkStatus();
}

// Reads a file as ReadFile does. `because` ends the error message about a file that is too long.
absl::StatusOr<std::string> ReadUpTo(const std::string& path, int64_t max_bytes,
                                     absl::string_view because) {
  FileDescriptor file(Files().Open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0));
  if (file.get() < 0) return FromErrno(path, "cannot open");
  struct stat info;
  if (Files().FileStat(file.get(), &info) != 0) return FromErrno(path, "cannot stat");
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, not a file"));
  }
  constexpr int64_t kMaxDeviceBytes = 1 << 20;
  if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode))
    max_bytes = std::min(max_bytes, kMaxDeviceBytes);
  const absl::Status too_long = absl::InvalidArgumentError(absl::StrCat(
      path, ": is longer than the ", max_bytes, " bytes that are read of it", because));
  if (S_ISREG(info.st_mode) && info.st_size > max_bytes) return too_long;
  std::string content;
  try {
    if (S_ISREG(info.st_mode)) content.reserve(static_cast<size_t>(info.st_size));
    PLUMB_RETURN_IF_ERROR(
        AppendContent(file.get(), S_ISFIFO(info.st_mode), max_bytes, path, &content));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": no memory for more than ", content.size(), " bytes of it; ", MemoryLimitText()));
  }
  if (static_cast<int64_t>(content.size()) > max_bytes) return too_long;
  return content;
}

// Replaces a file as WriteFileAtomically does, without the sync of its directory, which is added to
// `directories`.
absl::Status ReplaceFile(const std::string& path,
                         absl::FunctionRef<absl::Status(PieceSink sink)> produce,
                         std::set<std::string>* directories) {
  PLUMB_ASSIGN_OR_RETURN(const Target target, FollowLinks(path));
  if (!target.replaces) return WriteThrough(target, produce, path);
  std::string temporary;
  std::optional<UnfinishedPath> unfinished;
  absl::Status status = WriteAndSync(target, produce, path, &temporary, &unfinished);
  if (status.ok() && Files().Rename(temporary.c_str(), target.path.c_str()) != 0) {
    status = FromErrno(path, "cannot replace");
  }
  if (status.ok()) {
    directories->insert(ParentDirectory(target.path));
  } else if (!temporary.empty()) {
    Files().Unlink(temporary.c_str());
  }
  return status;
}

absl::Status SyncDirectories(const std::set<std::string>& directories) {
  for (const std::string& directory : directories) {
    PLUMB_RETURN_IF_ERROR(SyncDirectory(directory));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t MaxDataBytes() { return ProcessMemoryLimit().bytes / 2; }

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  return ReadUpTo(path, max_bytes, "");
}

absl::StatusOr<std::string> ReadData(const std::string& path, int64_t times) {
  const std::string memory =
      times > 1 ? absl::StrCat("reading it takes memory of ", times, " times its size") : "";
  return ReadUpTo(path, MaxDataBytes() / times,
                  absl::StrCat("; ", memory, times > 1 ? ", and " : "", MemoryLimitText()));
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::FunctionRef<absl::Status(PieceSink sink)> produce) {
  std::set<std::string> directories;
  PLUMB_RETURN_IF_ERROR(ReplaceFile(path, produce, &directories));
  return SyncDirectories(directories);
}

absl::Status WriteFilesAtomically(absl::Span<const FileContent> files) {
  std::set<std::string> directories;
  for (const FileContent& file : files) {
    PLUMB_RETURN_IF_ERROR(ReplaceFile(
        file.path, [&](PieceSink sink) { return sink(file.content); }, &directories));
  }
  return SyncDirectories(directories);
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> parts) {
  return WriteFileAtomically(path, [&](PieceSink sink) -> absl::Status {
    for (absl::string_view part : parts) PLUMB_RETURN_IF_ERROR(sink(part));
    return absl::OkStatus();
  });
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) {
  return WriteFileAtomically(path, absl::MakeConstSpan(&content, 1));
}

absl::Status WriteNewFile(const std::string& path, absl::string_view content) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  FileDescriptor file(Files().Open(path.c_str(), kFlags, 0666));
  if (file.get() < 0) return FromErrno(path, "cannot create");
  return WritePieces(
      file.get(), [content](PieceSink sink) { return sink(content); }, path);
}

absl::Status RemoveTemporaries(const std::string& directory,
                               absl::Span<const absl::string_view> names) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> found, ListDirectory(directory));
  for (const std::string& name : found) {
    const size_t at = absl::string_view(name).rfind(kTemporary);
    if (at == absl::string_view::npos) continue;
    if (std::find(names.begin(), names.end(), name.substr(0, at)) == names.end()) continue;
    const std::string process = name.substr(at + kTemporary.size());
    if (process.empty() || process.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string path = JoinPath(directory, name);
    if (Files().Unlink(path.c_str()) != 0 && errno != ENOENT)
      return FromErrno(path, "cannot remove");
  }
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& path) {
  if (IsDirectory(path)) return absl::OkStatus();
  const std::string above = ParentDirectory(path);
  if (above != path && above != ".") PLUMB_RETURN_IF_ERROR(MakeDirectories(above));
  if (Files().MakeDirectory(path.c_str()) == 0) return absl::OkStatus();
  if (errno == EEXIST && IsDirectory(path))
    return absl::OkStatus();  // another process created it just now
  return FromErrno(path, "cannot create the directory");
}

absl::Status SyncDirectory(const std::string& path) {
  FileDescriptor directory(Files().Open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
  if (directory.get() < 0) return FromErrno(path, "cannot open the directory");
  // Some file systems cannot sync a directory and return EINVAL; nothing more can be done there.
  if (Files().Sync(directory.get()) != 0 && errno != EINVAL) return FromErrno(path, "cannot sync");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  std::vector<std::string> names;
  if (Files().List(path.c_str(), &names) != 0) return FromErrno(path, "cannot list");
  std::sort(names.begin(), names.end());  // readdir's order is arbitrary
  return names;
}

absl::Status RemoveTree(const std::string& path) {
  struct stat info;
  if (Files().LinkStat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : FromErrno(path, "cannot delete");
  }
  if (!S_ISDIR(info.st_mode)) {
    if (Files().Unlink(path.c_str()) != 0) return FromErrno(path, "cannot delete");
    return absl::OkStatus();
  }
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
  for (const std::string& name : names) PLUMB_RETURN_IF_ERROR(RemoveTree(JoinPath(path, name)));
  if (Files().RemoveDirectory(path.c_str()) != 0) return FromErrno(path, "cannot delete");
  return absl::OkStatus();
}

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat info_a, info_b;
  if (Files().Stat(a.c_str(), &info_a) == 0 && Files().Stat(b.c_str(), &info_b) == 0) {
    return S_ISREG(info_a.st_mode) && info_a.st_dev == info_b.st_dev &&
           info_a.st_ino == info_b.st_ino;
  }
  std::error_code error_a, error_b;
  const auto path_a = std::filesystem::weakly_canonical(std::filesystem::absolute(a), error_a);
  const auto path_b = std::filesystem::weakly_canonical(std::filesystem::absolute(b), error_b);
  return !error_a && !error_b && path_a == path_b;
}

int64_t FreeSpace(const std::string& path) {
  for (std::string place = path;; place = ParentDirectory(place)) {
    int64_t bytes;
    if (Files().FreeSpace(place.c_str(), &bytes) == 0) return bytes;
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    if (!missing || place == "." || place == "/") return -1;
  }
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  if (Files().Stat(path.c_str(), &info) != 0) return !IsAbsent(errno);
  return S_ISDIR(info.st_mode);
}

bool FileExists(const std::string& path) {
  struct stat info;
  return Files().Stat(path.c_str(), &info) == 0 || !IsAbsent(errno);
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  if (directory.empty() || (!name.empty() && name[0] == '/')) return std::string(name);
  if (directory.back() == '/') return absl::StrCat(directory, name);
  return absl::StrCat(directory, "/", name);
}

std::string ParentDirectory(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  if (slash == 0) return "/";
  return std::string(path.substr(0, slash));
}

absl::StatusOr<RandomAccessFile> RandomAccessFile::Open(const std::string& path,
                                                        Descriptor descriptor) {
  FileDescriptor file;
  struct stat info;
  PLUMB_RETURN_IF_ERROR(OpenRegular(path, &file, &info));
  RandomAccessFile opened(path, info.st_size);
  opened.device_ = info.st_dev;
  opened.inode_ = info.st_ino;
  if (descriptor == Descriptor::kKept) opened.fd_ = file.Release();
  return opened;
}

RandomAccessFile RandomAccessFile::Borrow(absl::string_view content, const std::string& path) {
  RandomAccessFile borrowed(path, static_cast<int64_t>(content.size()));
  borrowed.borrowed_ = content.data();
  return borrowed;
}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept
    : path_(std::move(other.path_)),
      size_(other.size_),
      fd_(std::exchange(other.fd_, -1)),
      borrowed_(other.borrowed_),
      device_(other.device_),
      inode_(other.inode_) {}

RandomAccessFile& RandomAccessFile::operator=(RandomAccessFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  std::swap(borrowed_, other.borrowed_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  return *this;
}

RandomAccessFile::~RandomAccessFile() {
  if (fd_ >= 0) Files().Close(fd_);
}

absl::Status RandomAccessFile::Read(int64_t offset, int64_t n, char* to) const {
  if (borrowed_ != nullptr) {
    if (n > 0) std::memcpy(to, borrowed_ + offset, static_cast<size_t>(n));
    return absl::OkStatus();
  }
  if (fd_ >= 0 || n == 0) return ReadFrom(fd_, offset, n, to);
  FileDescriptor file;
  struct stat info;
  PLUMB_RETURN_IF_ERROR(OpenRegular(path_, &file, &info));
  if (info.st_dev != device_ || info.st_ino != inode_) {
    return absl::UnavailableError(absl::StrCat(path_, ": was replaced while it was in use"));
  }
  return ReadFrom(file.get(), offset, n, to);
}

absl::Status RandomAccessFile::ReadFrom(int fd, int64_t offset, int64_t n, char* to) const {
  while (n > 0) {
    const ssize_t read = Files().ReadAt(fd, to, static_cast<size_t>(n), offset);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return FromErrno(path_, "cannot read");
    if (read == 0) {
      return absl::UnavailableError(
          absl::StrCat(path_, ": was truncated while it was in use: it had ", size_,
                       " bytes, and now ends at or before byte ", offset));
    }
    to += read;
    n -= read;
    offset += read;
  }
  return absl::OkStatus();
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path, Access access) {
  FileDescriptor file;
  struct stat info;
  PLUMB_RETURN_IF_ERROR(OpenRegular(path, &file, &info));
  if (info.st_size == 0) return MappedFile(nullptr, 0, false);
  void* p = Files().Map(file.get(), static_cast<size_t>(info.st_size),
                        access == Access::kCopyOnWrite ? PROT_READ | PROT_WRITE : PROT_READ);
  if (p == MAP_FAILED) return FromErrno(path, "cannot map");
  return MappedFile(static_cast<const char*>(p), static_cast<size_t>(info.st_size), true);
}

MappedFile MappedFile::Borrow(absl::string_view content) {
  return MappedFile(content.data(), content.size(), false);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      is_mapped_(std::exchange(other.is_mapped_, false)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(is_mapped_, other.is_mapped_);
  return *this;
}

MappedFile::~MappedFile() {
  if (is_mapped_) munmap(const_cast<char*>(data_), size_);
}

absl::StatusOr<DirectoryLock> DirectoryLock::Acquire(const std::string& path) {
  const int directory = Files().Open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (directory < 0) return FromErrno(path, "cannot open the directory");
  DirectoryLock lock(directory, -1);  // closes the descriptors on every return
  int locked = Files().Lock(directory);
  if (locked != 0 && (errno == EBADF || errno == EINVAL || errno == EISDIR)) {
    // NFS locks only files that are open for writing.
    const std::string file = JoinPath(path, ".lock");
    lock.file_ = Files().Open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock.file_ < 0) return FromErrno(file, "cannot create");
    locked = Files().Lock(lock.file_);
  }
  if (locked == 0) return lock;
  if (errno != EWOULDBLOCK) return FromErrno(path, "cannot lock");
  return absl::AlreadyExistsError(absl::StrCat(path, ": another process holds the lock"));
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept
    : directory_(std::exchange(other.directory_, -1)), file_(std::exchange(other.file_, -1)) {}

DirectoryLock& DirectoryLock::operator=(DirectoryLock&& other) noexcept {
  std::swap(directory_, other.directory_);
  std::swap(file_, other.file_);
  return *this;
}

DirectoryLock::~DirectoryLock() {  // closing a descriptor releases its lock
  if (file_ >= 0) Files().Close(file_);
  if (directory_ >= 0) Files().Close(directory_);
}

bool DirectoryLock::Holds(const std::string& path) const {
  struct stat locked, there;
  return Files().FileStat(directory_, &locked) == 0 && Files().Stat(path.c_str(), &there) == 0 &&
         locked.st_dev == there.st_dev && locked.st_ino == there.st_ino;
}

}  // namespace plumb
