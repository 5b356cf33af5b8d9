// Loading of oneDNN: the library that plumb was built with, and limits of the address space (ulimit
// -v), each in a process that has not loaded it yet.
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

// The headers were there when this was built, and the package that has them needs the library. The
// name must be the library's own: distributions choose different ones for the same version.
TEST(OneDnnLibraryTest, LoadsTheLibraryOfTheBuildByItsName) {
  EXPECT_TRUE(OneDnn().usable()) << OneDnn().problem;
  void* const handle = dlopen(OneDnnFileName(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  if (handle != nullptr) dlclose(handle);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need terabytes of it

constexpr int64_t kMiB = 1 << 20;

// Leaves this process so much of its address space.
void Leave(int64_t bytes) {
  const rlimit all = {rlim_t{1} << 46, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &all);
  const int64_t used = static_cast<int64_t>(all.rlim_cur) - AddressSpaceLeft();
  const rlimit limit = {static_cast<rlim_t>(used + bytes), RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
}

// The message of a product's error, "" if there is none, on stderr; ends the process.
[[noreturn]] void Multiply() {
  constexpr int64_t kSide = 64;
  const std::vector<float> a(kSide * kSide, 1.0f);
  std::vector<float> c(kSide * kSide);
  const GemmArgs args = {false, false,    kSide, kSide, kSide,    a.data(),
                         kSide, a.data(), kSide, false, c.data(), kSide};
  const absl::Status status = OneDnnGemm(DType::kF32, args);
  std::fprintf(stderr, "code %d: %s, c %g\n", static_cast<int>(status.code()),
               std::string(status.message()).c_str(), static_cast<double>(c[0]));
  std::_Exit(0);
}

class OneDnnRoomTest : public ::testing::Test {
 protected:
  // A death test of this style begins the program anew: nothing is loaded or generated yet.
  OneDnnRoomTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(OneDnnRoomTest, IsNotLoadedWithoutRoom) {
  EXPECT_EXIT(
      {
        Leave(60 * kMiB);
        Multiply();
      },
      ::testing::ExitedWithCode(0), "code 9: libdnnl.*not loaded.*of which ulimit -v leaves");
}

TEST_F(OneDnnRoomTest, AFirstProductWithoutRoomForItsCodeIsAnError) {
  for (const int64_t bytes : {1 * kMiB, 3 * kMiB, 5 * kMiB, 15 * kMiB}) {
    EXPECT_EXIT(
        {
          if (!OneDnn().usable()) std::_Exit(1);
          Leave(bytes);
          Multiply();
        },
        ::testing::ExitedWithCode(0), "code 8: out of memory: oneDNN .*ulimit -v.*, c 0");
  }
  EXPECT_EXIT(
      {
        if (!OneDnn().usable()) std::_Exit(1);
        Leave(32 * kMiB);
        Multiply();
      },
      ::testing::ExitedWithCode(0), "code 0: , c 64");
}

#endif

}  // namespace
}  // namespace plumb
