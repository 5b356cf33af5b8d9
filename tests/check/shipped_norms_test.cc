// SPDX-License-Identifier: Apache-2.0
// The shipped norms obey the rules for which they are examples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/check/checker_process.h"

namespace plumb::check {
namespace {

std::vector<std::string> ShippedPlugins() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(PLUMB_TEST_PLUGIN_DIR)) {
    if (entry.path().extension() == ".so") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(ShippedNormsTest, PassEveryCheck) {
  const std::vector<std::string> paths = ShippedPlugins();
  ASSERT_FALSE(paths.empty());
  for (const std::string& path : paths) {
    const CheckerRun run = RunChecker({"--only-failed", path});
    EXPECT_EQ(run.exit_code, 0) << path << "\n" << run.out << run.err;
  }
}

// A test seldom reaches these calls in its time, and they were false alarms once.
TEST(ShippedNormsTest, PassAtPointsAwayFromTheCorners) {
  const std::vector<std::vector<std::string>> calls = {
      {"R4", "dim=16,rows=1,flush=1,seed=717298"},              // the point flushes, not the norm
      {"R4", "dim=16,rows=1,flush=1,x=10,seed=9931"},           // like a new process
      {"N1", "dim=1,rows=400,to=400,seed=4"},                   // a part of the gain cancels a bias
      {"N1", "dim=9,rows=15,to=15,attributes=8,seed=224506"}};  // 1 - tanh^2 of saturated elements
  for (const std::string& path : ShippedPlugins()) {
    for (const std::vector<std::string>& call : calls) {
      const CheckerRun run = RunChecker({"--check", call[0], "--point", call[1], path});
      EXPECT_EQ(run.exit_code, 0) << path << "\n" << run.out << run.err;
    }
  }
}

}  // namespace
}  // namespace plumb::check
