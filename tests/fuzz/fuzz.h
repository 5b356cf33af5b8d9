// SPDX-License-Identifier: Apache-2.0
// What the fuzzers share. A fuzzer is a function of bytes that ends the process when a promise is
// broken:
//
//   PLUMB_FUZZER(metrics) { ... data, size ... }
//
// Built with PLUMB_FUZZ it is libFuzzer's entry, in a program of its own (tests/fuzz/run.sh); else
// one more row of FuzzTargets(), which the tests run on the corpus and on mutations of it, with any
// compiler.
#ifndef PLUMB_TESTS_FUZZ_FUZZ_H_
#define PLUMB_TESTS_FUZZ_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "runtime/app/host_runtime.h"

namespace plumb {

using FuzzFunction = void (*)(const uint8_t* data, size_t size);

// By the name of the target, which is that of the folder of its corpus.
std::map<std::string, FuzzFunction>& FuzzTargets();

// Structured input: choices taken from the bytes one after another; zeros when they are used up.
class FuzzBytes {
 public:
  FuzzBytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  uint32_t Next() {  // 0 to 65535, so that two bytes make a choice
    uint32_t value = 0;
    for (int i = 0; i < 2 && size_ > 0; ++i, ++data_, --size_) value = value << 8 | *data_;
    return value;
  }
  uint32_t Below(uint32_t n) { return Next() % n; }
  // Up to `n` bytes.
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

// A file in memory, with a path for what opens files by name.
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

// A runtime of one thread with the norms of this build and the placements of this source tree;
// lives as long as the process.
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
