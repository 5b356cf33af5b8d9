// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/collectives.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/ranks/local_ranks.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

class CollectivesTest : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
  void Run(const std::function<absl::Status(Communicator*)>& run) {
    const std::vector<absl::Status> results = RunRanks(size(), run);
    for (int rank = 0; rank < size(); ++rank) {
      EXPECT_TRUE(results[rank].ok())
          << "rank " << rank << " of " << size() << ": " << results[rank];
    }
  }
  // Returns the text of `rank` in round `seed`, of random length and often empty.
  static std::string Text(uint32_t seed, int rank) {
    std::mt19937 random(seed * 1000 + rank);
    std::string text(random() % 3 == 0 ? 0 : random() % 3000, '\0');
    for (char& each : text) each = static_cast<char>(random());
    return text;
  }
};

TEST_P(CollectivesTest, BroadcastsFromTheRoot) {
  Run([this](Communicator* ranks) -> absl::Status {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const int root = seed % size();
      std::string text = Text(seed, ranks->rank());
      PLUMB_RETURN_IF_ERROR(Broadcast(ranks, root, &text));
      EXPECT_EQ(text, Text(seed, root));
      uint64_t number = ranks->rank() == root ? 77 + seed : 0;
      PLUMB_RETURN_IF_ERROR(Broadcast(ranks, root, &number, sizeof(number)));
      EXPECT_EQ(number, 77 + seed);
    }
    return absl::OkStatus();
  });
}

TEST_P(CollectivesTest, GathersTextsInRankOrder) {
  Run([this](Communicator* ranks) -> absl::Status {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      std::vector<std::string> expected;
      for (int rank = 0; rank < size(); ++rank) expected.push_back(Text(seed, rank));
      PLUMB_ASSIGN_OR_RETURN(auto everywhere, AllGather(ranks, expected[ranks->rank()]));
      EXPECT_EQ(everywhere, expected);
      PLUMB_ASSIGN_OR_RETURN(auto at_root, Gather(ranks, expected[ranks->rank()]));
      if (ranks->rank() != 0) expected.clear();
      EXPECT_EQ(at_root, expected);
    }
    return absl::OkStatus();
  });
}

TEST_P(CollectivesTest, AllGatherOfNumbersKeepsTheirBitsAndOrder) {
  Run([this](Communicator* ranks) -> absl::Status {
    std::vector<double> expected, mine;
    for (int rank = 0; rank < size(); ++rank) {
      for (int i = 0; i < (rank * 7) % 4; ++i) {
        const double value = 1.0 / (1 + rank + 10 * i);
        expected.push_back(value);
        if (rank == ranks->rank()) mine.push_back(value);
      }
    }
    PLUMB_ASSIGN_OR_RETURN(const std::vector<double> all,
                           AllGather(ranks, absl::MakeConstSpan(mine)));
    EXPECT_EQ(all, expected);
    return absl::OkStatus();
  });
}

TEST_P(CollectivesTest, FirstErrorIsShared) {
  Run([this](Communicator* ranks) -> absl::Status {
    EXPECT_TRUE(AllOk(ranks, absl::OkStatus()).ok());
    const int first = size() / 2;
    const absl::Status all =
        AllOk(ranks, ranks->rank() < first
                         ? absl::OkStatus()
                         : absl::NotFoundError(absl::StrCat("no file of ", ranks->rank())));
    EXPECT_EQ(all.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(all.message(), size() == 1 ? "no file of 0"
                                         : absl::StrCat("rank ", first, " on host host", first,
                                                        ": no file of ", first));
    return absl::OkStatus();
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, CollectivesTest, ::testing::Values(1, 2, 3, 4, 5, 7, 8, 13));

TEST(AllAgreeTest, NamesTheFactAndTheRanksThatDiffer) {
  for (const absl::Status& each : RunRanks(4, [](Communicator* ranks) {
         EXPECT_TRUE(AllAgree(ranks, {{"model", "abc"}, {"data", ""}}).ok());
         const absl::Status differs =
             AllAgree(ranks, {{"model", "abc"},
                              {"processor kind", ranks->rank() % 2 == 0 ? "amx" : "avx2"},
                              {"data", absl::StrCat(ranks->rank())}});
         EXPECT_EQ(differs.code(), absl::StatusCode::kFailedPrecondition);
         EXPECT_EQ(differs.message(),
                   "the processor kind differs between ranks: amx on rank 0 (host host0), rank 2 "
                   "(host host2); avx2 on rank 1 (host host1), rank 3 (host host3)");
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(each.ok()) << each;
  }
}

// Micro-batches are divided into equal units. The rank with the most sequences has as few as
// possible.
TEST(ChooseUnitsTest, MinimizesSequencesOfTheBusiestRank) {
  EXPECT_EQ(ChooseUnits(8, 1, 1), 1);
  EXPECT_EQ(ChooseUnits(8, 1, 2), 2);
  EXPECT_EQ(ChooseUnits(8, 1, 3), 8) << "3 sequences at most, and 4 with 4 units";
  EXPECT_EQ(ChooseUnits(8, 1, 4), 4);
  EXPECT_EQ(ChooseUnits(12, 1, 5), 12) << "3 sequences at most, and 4 with 6 units";
  EXPECT_EQ(ChooseUnits(7, 1, 2), 7) << "4 sequences at most";
  EXPECT_EQ(ChooseUnits(2, 4, 4), 4) << "a micro-batch each";
  EXPECT_EQ(ChooseUnits(4, 3, 2), 3);
  EXPECT_EQ(ChooseUnits(4, 3, 4), 12);
  EXPECT_EQ(ChooseUnits(1, 3, 4), 0);
  for (int64_t batch_size = 1; batch_size <= 12; ++batch_size) {
    for (int64_t micro_batches = 1; micro_batches <= 4; ++micro_batches) {
      for (int ranks = 1; ranks <= 50; ++ranks) {
        const int64_t units = ChooseUnits(batch_size, micro_batches, ranks);
        if (batch_size * micro_batches < ranks) {
          EXPECT_EQ(units, 0);
          continue;
        }
        EXPECT_GE(units, ranks);
        EXPECT_EQ(units % micro_batches, 0);
        EXPECT_EQ(batch_size * micro_batches % units, 0);
      }
    }
  }
}

}  // namespace
}  // namespace plumb
