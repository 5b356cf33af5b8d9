// SPDX-License-Identifier: Apache-2.0
// Tests of loading oneDNN: the library that plumb was built with, and limits of the address space
// (ulimit -v), each in a process that has not loaded it yet.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/base/memory.h"
#include "runtime/onednn/gemm.h"
#include "runtime/onednn/library.h"

namespace plumb {
namespace {

// The headers of oneDNN were installed at build time, and their package depends on the library. The
// name must be the library's, because distributions choose different names for the same version.
TEST(OneDnnLibraryTest, LoadsTheLibraryOfTheBuildByItsName) {
  EXPECT_TRUE(OneDnn().usable()) << OneDnn().problem;
  void* const handle = dlopen(OneDnnFileName(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  if (handle != nullptr) dlclose(handle);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need terabytes of it

constexpr int64_t kMiB = 1 << 20;

// Limits the address space so that this process has `bytes` left.
void LeaveAddresses(int64_t bytes) {
  const rlimit all = {rlim_t{1} << 46, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &all);
  const int64_t used = static_cast<int64_t>(all.rlim_cur) - AddressSpaceLeft();
  const rlimit limit = {static_cast<rlim_t>(used + bytes), RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
}

// Limits the memory of this process that is not backed by files.
void LimitData(int64_t bytes) {
  const rlimit limit = {static_cast<rlim_t>(bytes), RLIM_INFINITY};
  setrlimit(RLIMIT_DATA, &limit);
}

// Product of a square matrix of ones with itself.
struct Product {
  explicit Product(int64_t n)
      : side(n), ones(static_cast<size_t>(n * n), 1.0f), result(static_cast<size_t>(n * n)) {}

  absl::Status Multiply(bool transpose_a, bool transpose_b, int64_t rows, bool accumulate) {
    const GemmArgs args = {transpose_a, transpose_b, rows, side,       side,          ones.data(),
                           side,        ones.data(), side, accumulate, result.data(), side};
    return OneDnnGemm(DType::kF32, args);
  }

  const int64_t side;
  const std::vector<float> ones;
  std::vector<float> result;
};

// Prints the outcome of a product to stderr and ends the process.
[[noreturn]] void End(const absl::Status& status, const Product& product) {
  std::fprintf(stderr, "code %d: %s, c %g\n", static_cast<int>(status.code()),
               std::string(status.message()).c_str(), static_cast<double>(product.result[0]));
  std::_Exit(0);
}

[[noreturn]] void MultiplyOnce() {
  Product product(64);
  End(product.Multiply(false, false, 64, false), product);
}

// Multiplies in every way after one product of that size, with almost no memory left.
[[noreturn]] void MultiplyInEveryWay(int64_t first_side) {
  Product first(first_side), small(8);
  if (!first.Multiply(false, false, first_side, false).ok()) std::_Exit(1);
  LeaveAddresses(kMiB / 2);
  for (int kind = 0; kind < 8; ++kind) {
    for (const int64_t rows : {1, 2, 3, 4, 8}) {
      const absl::Status status =
          small.Multiply((kind & 1) != 0, (kind & 2) != 0, rows, (kind & 4) != 0);
      if (!status.ok()) End(status, small);
    }
  }
  End(small.Multiply(false, false, 8, false), small);
}

class OneDnnMemoryTest : public ::testing::Test {
 protected:
  // This style starts the program again for each death test, so that nothing is loaded or generated
  // yet.
  OneDnnMemoryTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(OneDnnMemoryTest, IsNotLoadedWithoutMemory) {
  EXPECT_EXIT(
      {
        LeaveAddresses(60 * kMiB);
        MultiplyOnce();
      },
      ::testing::ExitedWithCode(0), "code 9: libdnnl.*not loaded.*of which ulimit -v leaves");
}

// The first product generates the code, so that a run that only names its engine does not need the
// memory.
TEST_F(OneDnnMemoryTest, TheFirstProductNeedsMemoryForItsCode) {
  EXPECT_EXIT(
      {
        LimitData(20 * kMiB);
        if (!OneDnn().usable()) std::_Exit(1);
        MultiplyOnce();
      },
      ::testing::ExitedWithCode(0), "code 8: .*libdnnl.*its kernels need");
}

// oneDNN generates the code of some kernels at their first use, and ends the process if that finds
// no memory. Therefore the first product of any kind generates all code, or fails.
TEST_F(OneDnnMemoryTest, NoLaterProductNeedsMemoryForItsCode) {
  EXPECT_EXIT(MultiplyInEveryWay(64), ::testing::ExitedWithCode(0), "code 0: , c 8");
  EXPECT_EXIT(MultiplyInEveryWay(1200), ::testing::ExitedWithCode(0), "code 0: , c 8");
}

#endif

}  // namespace
}  // namespace plumb
