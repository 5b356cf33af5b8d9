// SPDX-License-Identifier: Apache-2.0
#include "runtime/ranks/host_communicator.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/ranks/collectives.h"
#include "runtime/ranks/communicator.h"
#include "runtime/ranks/local_ranks.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

// Calls over the C interface, in both directions, have the same results as direct calls.
TEST(HostCommunicatorTest, ForwardsCallsAndErrors) {
  for (const absl::Status& each : RunRanks(3, [](Communicator* local) -> absl::Status {
         const ForHost for_host(local);
         PLUMB_ASSIGN_OR_RETURN(const auto ranks, FromHost(*for_host.get()));
         EXPECT_EQ(ranks->rank(), local->rank());
         EXPECT_EQ(ranks->size(), 3);
         EXPECT_EQ(ranks->host(), local->host());
         PLUMB_ASSIGN_OR_RETURN(const auto texts,
                                AllGather(ranks.get(), absl::StrCat("of ", ranks->rank())));
         EXPECT_THAT(texts, ::testing::ElementsAre("of 0", "of 1", "of 2"));

         // These calls are Test, Probe, and one call of each kind that fails.
         const int next = (ranks->rank() + 1) % 3, previous = (ranks->rank() + 2) % 3;
         PLUMB_ASSIGN_OR_RETURN(auto none, ranks->Probe(kTagStudy));
         EXPECT_FALSE(none.has_value());
         PLUMB_RETURN_IF_ERROR(ranks->Barrier());
         int64_t number = 7;
         PLUMB_ASSIGN_OR_RETURN(auto send, ranks->StartSend(next, kTagStudy, &number, 4));
         std::optional<Communicator::Message> message;
         while (!message.has_value()) {
           PLUMB_ASSIGN_OR_RETURN(message, ranks->Probe(kTagStudy));
         }
         EXPECT_EQ(message->from, previous);
         EXPECT_EQ(message->bytes, 4u);
         PLUMB_ASSIGN_OR_RETURN(const bool early, ranks->Test(&send));
         int64_t received = 0;
         const absl::Status wrong = Receive(ranks.get(), previous, kTagStudy, &received, 8);
         EXPECT_EQ(wrong.code(), absl::StatusCode::kInternal);
         EXPECT_THAT(wrong.message(), HasSubstr(absl::StrCat("rank ", previous, " sent 4")));
         for (bool over = early; !over;) {
           PLUMB_ASSIGN_OR_RETURN(over, ranks->Test(&send));
         }
         EXPECT_EQ(send.handle, nullptr);
         PLUMB_RETURN_IF_ERROR(ranks->Barrier());
         ranks->Abort(9);
         EXPECT_THAT(ranks->Barrier().message(), HasSubstr("code 9"));
         EXPECT_THAT(ranks->Probe(kTagStudy).status().message(), HasSubstr("code 9"));
         EXPECT_EQ(ranks->StartSend(next, kTagStudy, nullptr, 0).status().code(),
                   absl::StatusCode::kAborted);
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(each.ok()) << each;
  }
}

TEST(HostCommunicatorTest, RefusesIncompleteCommunicators) {
  std::vector<std::unique_ptr<Communicator>> locals = LocalRanks(2);
  const ForHost for_host(locals[1].get());
  EXPECT_TRUE(FromHost(*for_host.get()).ok());
  plumb_communicator host = *for_host.get();
  host.error = nullptr;
  EXPECT_TRUE(FromHost(host).ok());
  host.probe = nullptr;
  EXPECT_THAT(FromHost(host).status().message(), HasSubstr("a function is NULL"));
  host = *for_host.get();
  host.rank = 2;
  EXPECT_THAT(FromHost(host).status().message(), HasSubstr("rank 2 of 2"));
  // A loop over so many ranks would not end.
  host.size = std::numeric_limits<int32_t>::max();
  EXPECT_THAT(FromHost(host).status().message(), HasSubstr("size is 2147483647, more than"));
  // A program with an older header has a struct that ends before the functions.
  host = *for_host.get();
  host.struct_size = offsetof(plumb_communicator, start_send);
  EXPECT_EQ(FromHost(host).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace plumb
