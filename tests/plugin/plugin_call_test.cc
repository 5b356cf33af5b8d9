// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/plugin_call.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "runtime/plugin/registry.h"
#include "tests/plugin/test_norm.h"

namespace plumb {
namespace {

// Records that the last call of forward() saw.
SeenPluginCall seen_inside[8];
int n_seen_inside = 0;
std::string own_inside;

plumb_status LookAtRecords(const plumb_norm_instance*, const plumb_norm_call*, int64_t, int64_t) {
  const PluginCall* const own = CurrentPluginCall();
  own_inside = own == nullptr ? "" : std::string(own->function) + " of " + own->norm;
  std::thread([] { n_seen_inside = PluginCallsInProgress(seen_inside, 8); }).join();
  return PLUMB_OK;
}

class PluginCallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static const plumb_norm_plugin table = [] {
      plumb_norm_plugin norm = test_norm::Table();
      norm.forward = LookAtRecords;
      return norm;
    }();
    ASSERT_TRUE(registry_.Register(&table).ok());
    instance_ = registry_.Find("org.example.test").value()->Instantiate(4, {}).value();
  }
  void Forward() {
    plumb_norm_call call{};
    call.struct_size = sizeof(call);
    ASSERT_TRUE(instance_->Forward(call, 0, 0).ok());
  }

  PluginRegistry registry_;
  std::shared_ptr<const NormInstance> instance_;
};

TEST_F(PluginCallTest, ReportsTheCallToAllThreads) {
  EXPECT_EQ(CurrentPluginCall(), nullptr);
  Forward();
  EXPECT_EQ(own_inside, "forward of org.example.test");
  ASSERT_EQ(n_seen_inside, 1);
  EXPECT_STREQ(seen_inside[0].call.function, "forward");
  EXPECT_EQ(CurrentPluginCall(), nullptr);
  EXPECT_EQ(PluginCallsInProgress(seen_inside, 8), 0);
}

TEST_F(PluginCallTest, DistinguishesConsecutiveCalls) {
  Forward();
  const SeenPluginCall first = seen_inside[0];
  Forward();
  EXPECT_EQ(seen_inside[0].thread, first.thread);
  EXPECT_NE(seen_inside[0].entered, first.entered);
}

TEST_F(PluginCallTest, ReusesSlotsOfEndedThreads) {
  for (int i = 0; i < 2000; ++i) {
    std::thread([this] { Forward(); }).join();
    ASSERT_EQ(n_seen_inside, 1) << "thread " << i << " is not seen";
  }
}

}  // namespace
}  // namespace plumb
