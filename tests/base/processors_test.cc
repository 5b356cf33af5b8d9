// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/process.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <filesystem>
#include <system_error>
#include <thread>

#include "runtime/base/file.h"
#include "runtime/base/memory.h"

namespace plumb {
namespace {

class CgroupTest : public ::testing::Test {
 protected:
  CgroupTest() : mount_(JoinPath(::testing::TempDir(), "plumb-cgroup-XXXXXX")) {
    if (mkdtemp(&mount_[0]) == nullptr) ADD_FAILURE() << "cannot create " << mount_;
  }
  ~CgroupTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(mount_, ignored);
  }

  void Write(const std::string& name, const std::string& content) {
    const std::string path = JoinPath(mount_, name);
    ASSERT_TRUE(MakeDirectories(ParentDirectory(path)).ok());
    ASSERT_TRUE(WriteFileAtomically(path, content).ok());
  }

  std::string mount_;
};

TEST_F(CgroupTest, WithoutQuotaReturnsZero) {
  EXPECT_EQ(CgroupProcessors("", mount_), 0);
  EXPECT_EQ(CgroupProcessors("0::/\n", mount_), 0);
  Write("cpu.max", "max 100000\n");
  EXPECT_EQ(CgroupProcessors("0::/\n", mount_), 0);
}

TEST_F(CgroupTest, AQuotaIsRoundedUp) {
  Write("cpu.max", "150000 100000\n");
  EXPECT_EQ(CgroupProcessors("0::/\n", mount_), 2);
  Write("cpu.max", "200000 100000\n");
  EXPECT_EQ(CgroupProcessors("0::/\n", mount_), 2);
  Write("cpu.max", "1000 100000\n");
  EXPECT_EQ(CgroupProcessors("0::/\n", mount_), 1);
}

TEST_F(CgroupTest, SmallestQuotaOfAllParentsCounts) {
  Write("a/b/cpu.max", "800000 100000\n");
  Write("a/cpu.max", "300000 100000\n");
  Write("cpu.max", "max 100000\n");
  Write("a/other/cpu.max", "100000 100000\n");
  EXPECT_EQ(CgroupProcessors("0::/a/b\n", mount_), 3);
  EXPECT_EQ(CgroupProcessors("0::/a/b/missing/here\n", mount_), 3);
}

TEST_F(CgroupTest, SmallestMemoryLimitOfAllParentsCounts) {
  int64_t available = 0;
  EXPECT_EQ(CgroupMemory("0::/a/b\n", mount_, &available), -1);
  Write("a/b/memory.max", "max\n");
  Write("a/memory.max", "3000000\n");
  Write("a/memory.current", "1000000\n");
  Write("memory.max", "9000000\n");
  Write("memory.current", "8500000\n");
  EXPECT_EQ(CgroupMemory("0::/a/b\n", mount_, &available), 3000000);
  EXPECT_EQ(available, 500000);
  Write("memory/box/memory.limit_in_bytes", "7000\n");
  Write("memory/box/memory.usage_in_bytes", "8000\n");
  EXPECT_EQ(CgroupMemory("4:memory:/box\n", mount_, &available), 7000);
  EXPECT_EQ(available, 0);
}

#ifndef __SANITIZE_ADDRESS__  // AddressSanitizer needs terabytes of it
TEST(MemoryTest, TheLimitOfTheAddressSpaceCounts) {
  const MemoryLimit before = ProcessMemoryLimit();
  EXPECT_GT(before.bytes, 0);
  EXPECT_GE(before.bytes, before.available);
  struct rlimit old, less;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &old), 0);
  less = old;
  less.rlim_cur = static_cast<rlim_t>(before.bytes) / 2;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &less), 0);
  const MemoryLimit after = ProcessMemoryLimit();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &old), 0);
  EXPECT_EQ(after.bytes, before.bytes / 2);
  EXPECT_EQ(after.by, "ulimit -v");
  EXPECT_LT(after.available, after.bytes);
}
#endif

TEST_F(CgroupTest, ReadsVersion1) {
  Write("cpu/box/cpu.cfs_quota_us", "400000\n");
  Write("cpu/box/cpu.cfs_period_us", "100000\n");
  Write("cpu/cpu.cfs_quota_us", "-1\n");
  Write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CgroupProcessors("7:memory:/box\n4:cpu,cpuacct:/box\n", mount_), 4);
  EXPECT_EQ(CgroupProcessors("4:cpu,cpuacct:/\n", mount_), 0);
  EXPECT_EQ(CgroupProcessors("4:cpuset:/box\n", mount_), 0);
}

TEST_F(CgroupTest, IgnoresUnknownContents) {
  Write("cpu.max", "lots of time\n");
  EXPECT_EQ(CgroupProcessors("0::/\nnonsense\n::\n", mount_), 0);
}

TEST(AvailableProcessorsTest, IsAtMostTheProcessorsThatTheThreadMayUse) {
  EXPECT_GE(AvailableProcessors(), 1);
  std::thread([] {  // the affinity changes only in this thread
    cpu_set_t set, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
      if (CPU_ISSET(i, &set)) CPU_SET(i, &one);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(AvailableProcessors(), 1);
  })
      .join();
}

}  // namespace
}  // namespace plumb
