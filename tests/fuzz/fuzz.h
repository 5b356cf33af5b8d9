// SPDX-License-Identifier: Apache-2.0
// Shared parts of the fuzzers. A fuzzer is a function of bytes that ends the process if an
// invariant fails:
//
//   PLUMB_FUZZER(metrics) { ... data, size ... }
//
// Built with PLUMB_FUZZ it is the entry point of a libFuzzer program (tests/fuzz/run.sh). Otherwise
// it is one entry of FuzzTargets(), which the tests run with any compiler on the corpus and on
// mutations of it.
#ifndef PLUMB_TESTS_FUZZ_FUZZ_H_
#define PLUMB_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "runtime/client/host_runtime.h"

namespace plumb {

using FuzzFunction = void (*)(const uint8_t* data, size_t size);

// Returns the fuzzers by the names of their targets, which are those of the folders of their
// corpora.
std::map<std::string, FuzzFunction>& FuzzTargets();

// Reader of structured input: takes choices from the bytes one after another, and zeros after their
// end.
class FuzzBytes {
 public:
  FuzzBytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  uint32_t Next() {  // 0 to 65535: two bytes per choice
    uint32_t value = 0;
    for (int i = 0; i < 2 && size_ > 0; ++i, ++data_, --size_) value = value << 8 | *data_;
    return value;
  }
  uint32_t Below(uint32_t n) { return Next() % n; }
  // Returns up to `n` bytes.
  std::string Text(size_t n) {
    n = n < size_ ? n : size_;
    std::string text(reinterpret_cast<const char*>(data_), n);
    data_ += n;
    size_ -= n;
    return text;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

inline absl::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// File in memory, with a path for functions that open files by name.
class MemoryFile {
 public:
  explicit MemoryFile(absl::string_view content);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

 private:
  int fd_;
  std::string path_;
};

// Returns a runtime of one thread with the norms of this build and the placements of this source
// tree. It lives as long as the process.
HostRuntime* FuzzRuntime();

#if defined(PLUMB_FUZZ)
#define PLUMB_FUZZER(name)                                       \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t); \
  static void Fuzz_##name(const uint8_t* data, size_t size);     \
  int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    Fuzz_##name(data, size);                                     \
    return 0;                                                    \
  }                                                              \
  static void Fuzz_##name(const uint8_t* data, size_t size)
#else
#define PLUMB_FUZZER(name)                                        \
  static void Fuzz_##name(const uint8_t* data, size_t size);      \
  [[maybe_unused]] static const bool kRegistered_##name =         \
      ::plumb::FuzzTargets().emplace(#name, &Fuzz_##name).second; \
  static void Fuzz_##name(const uint8_t* data, size_t size)
#endif

}  // namespace plumb

#endif  // PLUMB_TESTS_FUZZ_FUZZ_H_
