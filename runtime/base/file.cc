#include "runtime/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

constexpr absl::string_view kTemporary = ".tmp.";  // and the number of the process

absl::Status FromErrno(absl::string_view path, absl::string_view what) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(message);
  }
  if (error == ENOSPC || error == ENOMEM) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status WriteAll(int fd, absl::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return FromErrno(path, "cannot write");
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// `path` is what errors name: the file that the caller asked for.
absl::Status WriteAndSync(const std::string& temporary,
                          absl::FunctionRef<absl::Status(PieceSink sink)> produce,
                          const std::string& path) {
  FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return FromErrno(path, "cannot create");
  PLUMB_RETURN_IF_ERROR(
      produce([&](absl::string_view piece) { return WriteAll(file.get(), piece, path); }));
  if (fsync(file.get()) != 0) return FromErrno(path, "cannot sync");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  if (IsDirectory(path)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, not a file"));
  }
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return FromErrno(path, "cannot open");
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = read(file.get(), buffer, sizeof(buffer));
    if (n < 0) {
      if (errno == EINTR) continue;
      return FromErrno(path, "cannot read");
    }
    if (n == 0) return content;
    content.append(buffer, static_cast<size_t>(n));
    if (static_cast<int64_t>(content.size()) > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": is longer than the ", max_bytes, " bytes that are read of it"));
    }
  }
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::FunctionRef<absl::Status(PieceSink sink)> produce) {
  const std::string temporary = absl::StrCat(path, kTemporary, getpid());
  absl::Status status = WriteAndSync(temporary, produce, path);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = FromErrno(path, "cannot replace");
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return SyncDirectory(DirectoryOf(path));
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

absl::Status RemoveTemporaries(const std::string& directory) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  for (const std::string& name : names) {
    const size_t at = absl::string_view(name).rfind(kTemporary);
    if (at == absl::string_view::npos || at == 0) continue;
    const std::string process = name.substr(at + kTemporary.size());
    if (process.empty() || process.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string path = JoinPath(directory, name);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return FromErrno(path, "cannot remove");
  }
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat(path, ": cannot create the directory: ", error.message()));
  }
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  FileDescriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) return FromErrno(path, "cannot open the directory");
  // Some file systems cannot sync a directory and say EINVAL; their renames are as safe as they
  // get.
  if (fsync(directory.get()) != 0 && errno != EINVAL) return FromErrno(path, "cannot sync");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator it(path, error), end;
  for (; !error && it != end; it.increment(error)) names.push_back(it->path().filename().string());
  if (error) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot list: ", error.message()));
  }
  std::sort(names.begin(), names.end());  // readdir's order is arbitrary
  return names;
}

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

bool FileExists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  if (directory.empty() || (!name.empty() && name[0] == '/')) return std::string(name);
  if (directory.back() == '/') return absl::StrCat(directory, name);
  return absl::StrCat(directory, "/", name);
}

std::string DirectoryOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  if (slash == 0) return "/";
  return std::string(path.substr(0, slash));
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return FromErrno(path, "cannot open");
  struct stat info;
  if (fstat(file.get(), &info) != 0) return FromErrno(path, "cannot stat");
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  if (info.st_size == 0) return MappedFile(nullptr, 0);
  void* p = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (p == MAP_FAILED) return FromErrno(path, "cannot map");
  return MappedFile(static_cast<const char*>(p), static_cast<size_t>(info.st_size));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return FromErrno(path, "cannot create");
  FileLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return FromErrno(path, "cannot lock");
  return absl::UnavailableError(absl::StrCat(path, ": another process holds the lock"));
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);  // which gives the lock back
}

}  // namespace plumb
