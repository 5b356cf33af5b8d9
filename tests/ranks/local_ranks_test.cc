// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/local_ranks.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

void ExpectAllOk(const std::vector<absl::Status>& results) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_TRUE(results[rank].ok()) << "rank " << rank << ": " << results[rank];
  }
}

TEST(LocalRanksTest, MessagesOfATagArriveInOrder) {
  ExpectAllOk(RunRanks(2, [](Communicator* ranks) -> absl::Status {
    const int other = 1 - ranks->rank();
    std::vector<int> sent(20);
    std::vector<Communicator::Transfer> transfers;
    for (int i = 0; i < 20; ++i) {
      sent[i] = 100 * ranks->rank() + i;
      const int tag = i % 2 == 0 ? kTagGradients : kTagGradientSums;
      PLUMB_ASSIGN_OR_RETURN(auto transfer,
                             ranks->StartSend(other, tag, &sent[i], sizeof(sent[i])));
      transfers.push_back(transfer);
    }
    for (int first : {1, 0}) {  // the odd messages first
      for (int i = first; i < 20; i += 2) {
        int received = -1;
        PLUMB_RETURN_IF_ERROR(Receive(ranks, other, first == 0 ? kTagGradients : kTagGradientSums,
                                      &received, sizeof(received)));
        EXPECT_EQ(received, 100 * other + i);
      }
    }
    for (auto& transfer : transfers) PLUMB_RETURN_IF_ERROR(ranks->Wait(&transfer));
    return absl::OkStatus();
  }));
}

// Every rank sends to every rank, including itself, messages whose sizes and times depend on the
// seed, and receives them in an order that depends on the seed.
TEST(LocalRanksTest, MatchesSendsAndReceivesInAnyOrder) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 sizes(seed);
    const int size = 1 + static_cast<int>(sizes() % 6);
    constexpr int kMessages = 3;
    std::vector<size_t> bytes(size * size * kMessages);
    for (size_t& each : bytes) each = sizes() % 4 == 0 ? 0 : sizes() % 5000;
    ExpectAllOk(RunRanks(size, [&](Communicator* ranks) -> absl::Status {
      const int me = ranks->rank();
      std::mt19937 order(seed * 100 + me);
      struct One {
        int peer;
        bool send;
        int at;
        std::vector<char> data;
        Communicator::Transfer transfer;
      };
      const auto fill = [](int from, int to, int i, size_t k) {
        return static_cast<char>(from * 31 + to * 7 + i * 3 + k);
      };
      std::vector<One> all;
      for (int i = 0; i < kMessages; ++i) {
        std::vector<std::pair<int, bool>> round;
        for (int peer = 0; peer < size; ++peer) {
          round.push_back({peer, true});
          round.push_back({peer, false});
        }
        std::shuffle(round.begin(), round.end(), order);
        for (const auto& [peer, send] : round) all.push_back({peer, send, i, {}, {}});
      }
      for (One& each : all) {
        const int from = each.send ? me : each.peer;
        const int to = each.send ? each.peer : me;
        each.data.resize(bytes[(from * size + to) * kMessages + each.at]);
        for (size_t k = 0; each.send && k < each.data.size(); ++k) {
          each.data[k] = fill(from, to, each.at, k);
        }
        auto transfer =
            each.send ? ranks->StartSend(to, kTagStudy, each.data.data(), each.data.size())
                      : ranks->StartReceive(from, kTagStudy, each.data.data(), each.data.size());
        PLUMB_RETURN_IF_ERROR(transfer.status());
        each.transfer = *transfer;
      }
      std::shuffle(all.begin(), all.end(), order);
      for (One& each : all) {
        if (order() % 2 == 0) {
          PLUMB_RETURN_IF_ERROR(ranks->Wait(&each.transfer));
        } else {
          for (bool over = false; !over;) {
            PLUMB_ASSIGN_OR_RETURN(over, ranks->Test(&each.transfer));
            std::this_thread::yield();
          }
        }
        EXPECT_EQ(each.transfer.handle, nullptr);
        for (size_t k = 0; !each.send && k < each.data.size(); ++k) {
          if (each.data[k] != fill(each.peer, me, each.at, k)) {
            return absl::InternalError("a byte is another's");
          }
        }
      }
      return ranks->Barrier();
    }));
  }
}

TEST(LocalRanksTest, ProbeFindsTheNextMessageOfItsTag) {
  ExpectAllOk(RunRanks(3, [](Communicator* ranks) -> absl::Status {
    if (ranks->rank() != 0) {
      const std::string text(ranks->rank() * 10, 'x');
      return Send(ranks, 0, kTagStudy, text.data(), text.size());
    }
    PLUMB_ASSIGN_OR_RETURN(auto none, ranks->Probe(kTagGradientSums));
    EXPECT_FALSE(none.has_value());
    int seen = 0;
    while (seen < 2) {
      PLUMB_ASSIGN_OR_RETURN(auto message, ranks->Probe(kTagStudy));
      if (!message.has_value()) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_EQ(message->bytes, size_t(message->from) * 10);
      std::string text(message->bytes, '\0');
      PLUMB_RETURN_IF_ERROR(Receive(ranks, message->from, kTagStudy, text.data(), text.size()));
      ++seen;
    }
    return absl::OkStatus();
  }));
}

TEST(LocalRanksTest, ReceivingAnotherSizeIsAnError) {
  const std::vector<absl::Status> results = RunRanks(2, [](Communicator* ranks) {
    int64_t number = 0;
    return ranks->rank() == 0 ? Send(ranks, 1, kTagControl, &number, 4)
                              : Receive(ranks, 0, kTagControl, &number, 8);
  });
  EXPECT_TRUE(results[0].ok());
  EXPECT_EQ(results[1].code(), absl::StatusCode::kInternal);
  EXPECT_THAT(results[1].message(),
              HasSubstr("rank 1 receives 8 bytes of tag 1 and rank 0 sent 4"));
}

TEST(LocalRanksTest, AbortEndsPendingWaits) {
  const std::vector<absl::Status> results = RunRanks(4, [](Communicator* ranks) {
    int number = 0;
    switch (ranks->rank()) {
      case 0:
        return Receive(ranks, 1, kTagControl, &number, sizeof(number));
      case 1:
        return ranks->Barrier();
      case 2:
        return Send(ranks, 3, kTagControl, &number, sizeof(number));
    }
    ranks->Abort(7);
    return ranks->Probe(kTagControl).status();
  });
  for (const absl::Status& each : results) {
    EXPECT_EQ(each.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(each.message(), HasSubstr("code 7"));
  }
}

TEST(LocalRanksTest, WaitingForAReturnedRankIsAnError) {
  ExpectAllOk(RunRanks(3, [](Communicator* ranks) {
    if (ranks->rank() == 2) return absl::OkStatus();
    int number = 0;
    const absl::Status gone = ranks->rank() == 0
                                  ? Receive(ranks, 2, kTagControl, &number, sizeof(number))
                                  : ranks->Barrier();
    EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(gone.message(), HasSubstr("rank 2 has left the job"));
    return absl::OkStatus();
  }));
}

TEST(SingleRankTest, SendsToItselfWithoutDeadlock) {
  const std::unique_ptr<Communicator> ranks = SingleRank();
  EXPECT_EQ(ranks->rank(), 0);
  EXPECT_EQ(ranks->size(), 1);
  EXPECT_EQ(ranks->host(), OwnHostName());
  int sent = 5, received = 0;
  auto send = ranks->StartSend(0, kTagControl, &sent, sizeof(sent));
  ASSERT_TRUE(send.ok());
  ASSERT_TRUE(Receive(ranks.get(), 0, kTagControl, &received, sizeof(received)).ok());
  EXPECT_TRUE(ranks->Wait(&*send).ok());
  EXPECT_EQ(received, 5);
  EXPECT_TRUE(ranks->Barrier().ok());
  EXPECT_THAT(Receive(ranks.get(), 0, kTagControl, &received, sizeof(received)).message(),
              HasSubstr("waits for itself"));
  ranks->Abort(3);
  EXPECT_EQ(ranks->Probe(kTagControl).status().code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace plumb
