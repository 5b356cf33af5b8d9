// SPDX-License-Identifier: Apache-2.0
// Tests of the predicted time of a step against values computed by hand, and of links.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cli/scaling/predict.h"

namespace plumb::cli {
namespace {

StepCosts Costs(int64_t units, int buckets) {
  StepCosts costs;
  costs.units = units;
  costs.pass_seconds = 0.1;
  costs.other_seconds = 0.002;
  costs.add_bytes_per_second = 1e10;
  for (int b = 0; b < buckets; ++b) {
    costs.buckets.push_back({int64_t{1} << 20, 0.05 + 0.05 * (b + 1) / buckets, 0.001});
  }
  return costs;
}

TEST(LinkTest, IsARateAndALatency) {
  const absl::StatusOr<Link> link = ParseLink("25Gbit,20us");
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_DOUBLE_EQ(link->bytes_per_second, 25e9 / 8);
  EXPECT_DOUBLE_EQ(link->latency, 20e-6);
  EXPECT_EQ(LinkText(*link), "25 Gbit/s, 20 us");
  EXPECT_EQ(LinkText(ParseLink("1500kbit,0.5ms").value()), "1.5 Mbit/s, 500 us");
  EXPECT_EQ(LinkText(ParseLink("2Tbit,0s").value()), "2 Tbit/s, 0 s");
  EXPECT_EQ(LinkText(ParseLink("0.5kbit,2s").value()), "0.5 kbit/s, 2 s");
}

TEST(LinkTest, SaysWhatIsWrong) {
  for (const char* text : {"", "25Gbit", "25,20us", "Gbit,20us", "25Gbit,20", "25Gbit,-1us",
                           "0Gbit,1us", "nanGbit,1us", "25Gbit,20us,3", "infGbit,1us"}) {
    const absl::Status error = ParseLink(text).status();
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(std::string(error.message()).find("--link: the "), std::string::npos) << error;
  }
}

TEST(CostsTest, BucketsHoldEveryTensorOnce) {
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    std::vector<int64_t> tensors(1 + random() % 60);
    int64_t all = 0;
    for (int64_t& elements : tensors) all += elements = 1 + random() % 1000000;
    const int64_t ranks = 1 + static_cast<int64_t>(random() % 64);
    const StepCosts costs = CostsOf({0.6, 0.01, 0.002}, 4, tensors, 1e10, ranks);
    EXPECT_DOUBLE_EQ(costs.pass_seconds, 0.15);
    int64_t bytes = 0;
    double ready = 0.05, update = 0;
    for (const BucketCost& bucket : costs.buckets) {
      bytes += bucket.bytes;
      update += bucket.update_seconds;
      EXPECT_GT(bucket.ready_seconds, ready);
      ready = bucket.ready_seconds;
    }
    EXPECT_EQ(bytes, 4 * all);
    EXPECT_NEAR(update, 0.01, 1e-12);
    EXPECT_NEAR(ready, 0.15, 1e-12);
  }
}

TEST(CostsTest, AProfilesProportions) {
  Profile profile;
  profile.steps = 2;
  profile.rows = {{"matmul", true, 2, 3.0},
                  {"norm", true, 2, 1.0},
                  {"optimizer", false, 2, 0.5},
                  {"batches", false, 2, 0.25},
                  {"other", false, 2, 0.25}};
  const StepShares shares = SharesOf(profile, 10);
  EXPECT_DOUBLE_EQ(shares.passes, 8);
  EXPECT_DOUBLE_EQ(shares.update, 1);
  EXPECT_DOUBLE_EQ(shares.other, 1);
}

TEST(CostsTest, RankCountsAreNumbersAndRanges) {
  using Counts = std::vector<int64_t>;
  EXPECT_EQ(ParseRankCounts("4").value(), Counts({4}));
  EXPECT_EQ(ParseRankCounts("4,1,4").value(), Counts({1, 4}));
  EXPECT_EQ(ParseRankCounts("1..8").value(), Counts({1, 2, 4, 8}));
  EXPECT_EQ(ParseRankCounts("3..10,5").value(), Counts({3, 4, 5, 8, 10}));
  for (const char* bad : {"", "0", "-1", "1..", "..4", "4..1", "1,,2", "1...4", "1e3", "2000000"}) {
    EXPECT_EQ(ParseRankCounts(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(PredictTest, AloneIsWhatWasMeasured) {
  const RankStepTime time = PredictStep(Costs(4, 10), {{1e9, 1e-5}, 1});
  EXPECT_DOUBLE_EQ(time.passes, 0.4);
  EXPECT_NEAR(time.update, 0.01, 1e-12);
  EXPECT_EQ(time.waiting, 0);
  EXPECT_EQ(time.gathering, 0);
  EXPECT_NEAR(time.total(), 0.412, 1e-12);
}

TEST(PredictTest, AFastLinkLeavesTheUnitsOfTheBusiestRank) {
  StepCosts costs = Costs(4, 10);
  costs.add_bytes_per_second = 1e18;
  EXPECT_NEAR(PredictStep(costs, {{1e18, 0}, 2}).total(), 0.2 + 0.01 + 0.002, 1e-6);
  EXPECT_NEAR(PredictStep(costs, {{1e18, 0}, 3}).total(), 0.2 + 0.01 + 0.002, 1e-6);
  EXPECT_NEAR(PredictStep(costs, {{1e18, 0}, 4}).total(), 0.1 + 0.01 + 0.002, 1e-6);
  Cluster sharded = {{1e18, 0}, 2, Sharding::kGradients};
  EXPECT_NEAR(PredictStep(costs, sharded).total(), 0.2 + 0.005 + 0.002, 1e-6);
  sharded.slowdown = 2;
  EXPECT_NEAR(PredictStep(costs, sharded).total(), 2 * (0.2 + 0.005 + 0.002), 1e-6);
}

TEST(PredictTest, OneBucketByHand) {
  const StepCosts costs = Costs(2, 1);
  const double s = static_cast<double>(1 << 20), rate = 1e8, latency = 1e-3;
  const RankStepTime time = PredictStep(costs, {{rate, latency}, 2});
  EXPECT_DOUBLE_EQ(time.passes, 0.1);
  // Nothing overlaps: the bucket is ready when the pass ends, is transferred and is added. The
  // numbers of targets and the norm go to rank 0 and back.
  EXPECT_NEAR(time.waiting, latency + s / rate + s / 1e10 + 4 * latency, 1e-12);
  EXPECT_NEAR(time.gathering, latency + s / rate, 1e-12);
  Cluster narrow = {{rate, latency}, 2};
  narrow.wire_bf16 = true;
  EXPECT_NEAR(time.waiting - PredictStep(costs, narrow).waiting, s / rate / 2, 1e-12);
  Cluster sharded = {{rate, latency}, 2, Sharding::kOptimizer};
  EXPECT_NEAR(PredictStep(costs, sharded).gathering, latency + s / rate, 1e-12);
  sharded.weights_bf16 = true;
  EXPECT_NEAR(PredictStep(costs, sharded).gathering, latency + s / rate / 2, 1e-12);
}

TEST(PredictTest, EarlyBucketsOverlapThePass) {
  StepCosts costs = Costs(2, 2);
  const double rate = static_cast<double>(1 << 20) / 0.02;  // 20 ms per bucket
  costs.buckets[0].ready_seconds = 0.01;
  EXPECT_NEAR(PredictStep(costs, {{rate, 0}, 2}).waiting,
              0.02 + static_cast<double>(1 << 20) / costs.add_bytes_per_second, 1e-9);
  costs.buckets[0].ready_seconds = 0.1;
  EXPECT_NEAR(PredictStep(costs, {{rate, 0}, 2}).waiting,
              0.04 + static_cast<double>(1 << 20) / costs.add_bytes_per_second, 1e-9);
}

TEST(PredictTest, ASlowerLinkIsNeverFaster) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    StepCosts costs =
        Costs(1 + static_cast<int64_t>(random() % 64), 1 + static_cast<int>(random() % 40));
    for (BucketCost& bucket : costs.buckets) bucket.bytes = 1 + random() % (8 << 20);
    Cluster cluster;
    cluster.ranks = 1 + static_cast<int64_t>(random()) % costs.units;
    cluster.shard = static_cast<Sharding>(random() % 3);
    cluster.link = {std::pow(10, 6 + random() % 5), 1e-6 * static_cast<double>(random() % 1000)};
    const double before = PredictStep(costs, cluster).total();
    EXPECT_TRUE(std::isfinite(before) && before > 0);
    Cluster slower = cluster;
    slower.link.bytes_per_second /= 3;
    slower.link.latency += 1e-4;
    EXPECT_GE(PredictStep(costs, slower).total(), before) << "case " << i;
    const double passes = PredictStep(costs, cluster).passes;
    EXPECT_GE(before, passes);
  }
}

}  // namespace
}  // namespace plumb::cli
