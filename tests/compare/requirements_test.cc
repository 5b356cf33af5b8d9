#include "cli/compare/requirements.h"

#include <gtest/gtest.h>

namespace plumb::cli {
namespace {

void ExpectDivision(const Division& division, int workers, int threads) {
  EXPECT_EQ(division.workers, workers);
  EXPECT_EQ(division.threads, threads);
}

TEST(DivideTest, EachRunHasAThreadWhileMemoryHoldsThem) {
  constexpr int64_t kMuch = int64_t{1} << 40, kGiB = 1 << 30;
  ExpectDivision(Divide(8, 100, 1000, kMuch), 8, 1);
  ExpectDivision(Divide(8, 3, 1000, kMuch), 3, 2);
  ExpectDivision(Divide(8, 1, 1000, kMuch), 1, 8);
  ExpectDivision(Divide(8, 100, kGiB, 6 * kGiB), 4, 2);
  ExpectDivision(Divide(8, 100, kGiB, 3 * kGiB), 2, 4);
  ExpectDivision(Divide(8, 100, kGiB, kGiB), 1, 8);
  ExpectDivision(Divide(8, 100, kGiB, 10), 1, 8);  // which says itself what it lacks
  ExpectDivision(Divide(1, 100, 1000, kMuch), 1, 1);
  ExpectDivision(Divide(8, 0, 0, kMuch), 1, 8);  // all runs have ended
}

}  // namespace
}  // namespace plumb::cli
