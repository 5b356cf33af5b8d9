#include "runtime/base/round_trip.h"

#include <pthread.h>
#include <sched.h>

#include "gtest/gtest.h"

namespace plumb {
namespace {

cpu_set_t Mine() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  pthread_getaffinity_np(pthread_self(), sizeof(mine), &mine);
  return mine;
}

TEST(RoundTripTest, LeavesTheCallerWhereItMayRun) {
  const cpu_set_t before = Mine();
  const double seconds = MeasureRoundTrip();
  const cpu_set_t after = Mine();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  if (CPU_COUNT(&before) > 1) {
    EXPECT_GT(seconds, 1e-9);  // light takes as long for a foot
  } else {
    EXPECT_EQ(seconds, 0);
  }
}

TEST(RoundTripTest, IsZeroOnOneProcessor) {
  const cpu_set_t before = Mine();
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  }
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof(one), &one), 0);
  EXPECT_EQ(MeasureRoundTrip(), 0);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof(before), &before), 0);
}

}  // namespace
}  // namespace plumb
