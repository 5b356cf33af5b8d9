#include "runtime/ranks/stall_watch.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/local_ranks.h"
#include "runtime/ranks/tags.h"

namespace plumb {
namespace {

TEST(StallWatchTest, SaysForWhomARankWaitsAndSinceWhen) {
  auto locals = LocalRanks(3);
  std::vector<std::unique_ptr<StallWatch>> ranks;
  for (auto& each : locals) ranks.push_back(std::make_unique<StallWatch>(std::move(each)));
  EXPECT_FALSE(ranks[0]->waiting().has_value());
  int received = 0, sent = 8;
  std::thread receiver(
      [&] { EXPECT_TRUE(Receive(ranks[0].get(), 2, kTagStudy, &received, sizeof(int)).ok()); });
  std::optional<StallWatch::Waiting> waiting;
  while (!waiting.has_value() || waiting->seconds < 0.05) waiting = ranks[0]->waiting();
  EXPECT_EQ(waiting->peer, 2);
  EXPECT_FALSE(ranks[2]->waiting().has_value());
  EXPECT_TRUE(Send(ranks[2].get(), 0, kTagStudy, &sent, sizeof(int)).ok());
  receiver.join();
  EXPECT_FALSE(ranks[0]->waiting().has_value());
  EXPECT_EQ(received, 8);
}

TEST(StallWatchTest, ABarrierWaitsForAllAndNamesOne) {
  constexpr int kRanks = 5;
  auto locals = LocalRanks(kRanks);
  std::vector<std::unique_ptr<StallWatch>> ranks;
  for (auto& each : locals) ranks.push_back(std::make_unique<StallWatch>(std::move(each)));
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks - 1; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_TRUE(ranks[rank]->Barrier().ok());
      ++passed;
    });
  }
  // Rank 0 receives from the last one in the first round.
  std::optional<StallWatch::Waiting> waiting;
  while (!waiting.has_value()) waiting = ranks[0]->waiting();
  EXPECT_EQ(waiting->peer, kRanks - 1);
  EXPECT_EQ(passed, 0);
  EXPECT_TRUE(ranks[kRanks - 1]->Barrier().ok());
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(passed, kRanks - 1);
}

// One thread waits for one message while another sends and receives others.
TEST(StallWatchTest, AnotherThreadMayUseItMeanwhile) {
  for (const absl::Status& each : RunRanks(2, [](Communicator* local) -> absl::Status {
         // RunRanks owns `local`: pass calls on.
         class Borrowed : public Communicator {
          public:
           explicit Borrowed(Communicator* ranks) : ranks_(ranks) {}
           int rank() const override { return ranks_->rank(); }
           int size() const override { return ranks_->size(); }
           std::string host() const override { return ranks_->host(); }
           absl::StatusOr<Transfer> StartSend(int to, int tag, const void* data,
                                              size_t bytes) override {
             return ranks_->StartSend(to, tag, data, bytes);
           }
           absl::StatusOr<Transfer> StartReceive(int from, int tag, void* data,
                                                 size_t bytes) override {
             return ranks_->StartReceive(from, tag, data, bytes);
           }
           absl::StatusOr<bool> Test(Transfer* transfer) override { return ranks_->Test(transfer); }
           absl::Status Wait(Transfer* transfer) override { return ranks_->Wait(transfer); }
           absl::StatusOr<std::optional<Message>> Probe(int tag) override {
             return ranks_->Probe(tag);
           }
           absl::Status Barrier() override { return ranks_->Barrier(); }
           void Abort(int code) override { ranks_->Abort(code); }

          private:
           Communicator* const ranks_;
         };
         StallWatch ranks(std::make_unique<Borrowed>(local));
         const int other = 1 - ranks.rank();
         int last = 0;
         std::thread waits(
             [&] { EXPECT_TRUE(Receive(&ranks, other, kTagStudy, &last, sizeof(last)).ok()); });
         for (int i = 0; i < 200; ++i) {
           int received = -1;
           PLUMB_ASSIGN_OR_RETURN(auto send, ranks.StartSend(other, kTagLinks, &i, sizeof(i)));
           PLUMB_RETURN_IF_ERROR(Receive(&ranks, other, kTagLinks, &received, sizeof(received)));
           PLUMB_RETURN_IF_ERROR(ranks.Wait(&send));
           EXPECT_EQ(received, i);
         }
         int nine = 9;
         PLUMB_ASSIGN_OR_RETURN(auto send, ranks.StartSend(other, kTagStudy, &nine, sizeof(nine)));
         waits.join();
         EXPECT_EQ(last, 9);
         return ranks.Wait(&send);
       })) {
    EXPECT_TRUE(each.ok()) << each;
  }
}

}  // namespace
}  // namespace plumb
