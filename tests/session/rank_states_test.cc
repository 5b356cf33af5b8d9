// The states of a job of ranks, read and written by rank 0.
#include <gmock/gmock.h>

#include <map>

#include "tests/session/rank_train_fixture.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

using States = std::map<std::string, std::vector<float>>;

// All that a checkpoint holds.
States StatesOf(const TrainSession& session) {
  States states;
  const auto add = [&states](const std::vector<TensorToWrite>& tensors) {
    for (const TensorToWrite& tensor : tensors) {
      std::vector<float>& to = states[tensor.name];
      to.resize(static_cast<size_t>(tensor.type.num_elements()));
      if (tensor.data != nullptr) {
        std::copy_n(static_cast<const float*>(tensor.data), to.size(), to.begin());
      } else {
        // In pieces, as files are written.
        const int64_t n = tensor.type.num_elements();
        for (int64_t at = 0; at < n; at += 100) {
          tensor.copy(at, std::min<int64_t>(100, n - at), to.data() + at);
        }
      }
    }
  };
  add(session.parameters().Tensors());
  add(session.optimizer().Tensors());
  if (session.average() != nullptr) add(session.average()->Tensors("ema."));
  return states;
}

void Write(const States& states, TrainSession* session) {
  const auto write = [&states](const ParameterStore& store, const std::string& prefix) {
    for (size_t i = 0; i < store.layout().entries.size(); ++i) {
      const std::vector<float>& from = states.at(prefix + store.layout().entries[i].name);
      store.Write(i, 0, static_cast<int64_t>(from.size()), from.data());
    }
  };
  write(session->parameters(), "");
  if (session->average() != nullptr) write(*session->average(), "ema.");
  const Optimizer& optimizer = session->optimizer();
  const std::vector<TensorToWrite> tensors = optimizer.Tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<float>& from = states.at(tensors[i].name);
    optimizer.Write(optimizer.states()[i], 0, static_cast<int64_t>(from.size()), from.data());
  }
  session->SetStatesWritten();
}

class RankStatesTest : public RankTrainTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(RankStatesTest, AreThoseOfOneRankAndGoOnOnAnyOtherNumber) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const Dataset data = TextOf(2000, 26);
  const TrainSpec spec = Recipe(GetParam());
  const auto one = *TrainSession::Create(context.get(), &data, spec, 1);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(one->Step().ok());
  const States expected = StatesOf(*one);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(one->Step().ok());
  const States at_the_end = StatesOf(*one);

  for (const int ranks : {1, 2, 3, 8}) {
    States found;
    auto results = RunRanks(ranks, [&](Communicator* rank) -> absl::Status {
      PLUMB_ASSIGN_OR_RETURN(const auto session,
                             TrainSession::Create(context.get(), &data, spec, 1, rank));
      for (int i = 0; i < 2; ++i) PLUMB_RETURN_IF_ERROR(session->Step().status());
      return session->ShareStates([&] {
        EXPECT_EQ(rank->rank(), 0);
        PLUMB_RETURN_IF_ERROR(session->CheckStatesAreHere());
        found = StatesOf(*session);
        return absl::OkStatus();
      });
    });
    for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
    EXPECT_EQ(found, expected) << ranks << " ranks";

    // Another job, whose rank 0 alone has what was saved.
    results = RunRanks(ranks, [&](Communicator* rank) -> absl::Status {
      PLUMB_ASSIGN_OR_RETURN(const auto session,
                             TrainSession::Create(context.get(), &data, spec, 1, rank));
      PLUMB_RETURN_IF_ERROR(session->ShareStates([&] {
        Write(expected, session.get());
        session->ResumeAt(2);
        return absl::OkStatus();
      }));
      EXPECT_EQ(session->step(), 2);
      for (int i = 0; i < 2; ++i) PLUMB_RETURN_IF_ERROR(session->Step().status());
      return session->ShareStates([&] {
        found = StatesOf(*session);
        return absl::OkStatus();
      });
    });
    for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
    EXPECT_EQ(found, at_the_end) << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(All, RankStatesTest,
                         ::testing::Values("ema_decay: 0.9", "shard: OPTIMIZER",
                                           "shard: GRADIENTS ema_decay: 0.9",
                                           "shard: GRADIENTS optimizer: MUON",
                                           "shard: OPTIMIZER dtype: BF16",
                                           "shard: GRADIENTS dtype: BF16 optimizer: MUON",
                                           "shard: OPTIMIZER dtype: BF16 ema_decay: 0.9"));

TEST_F(RankTrainTest, StatesOfOtherRanksAreThereWhenAllShareThemOnly) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const Dataset data = TextOf(2000, 26);
  const auto results = RunRanks(2, [&](Communicator* rank) -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(
        const auto session,
        TrainSession::Create(context.get(), &data, Recipe("shard: OPTIMIZER"), 1, rank));
    PLUMB_ASSIGN_OR_RETURN(const auto bf16,
                           TrainSession::Create(context.get(), &data,
                                                Recipe("shard: OPTIMIZER dtype: BF16"), 1, rank));
    EXPECT_EQ(bf16->parameters().CheckWhole().code(), absl::StatusCode::kFailedPrecondition);
    const absl::Status refused = session->CheckStatesAreHere();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("plumb_trainer_share_states"));
    // What rank 0 fails of, all fail of.
    const absl::Status failed =
        session->ShareStates([] { return absl::DataLossError("a damaged file"); });
    EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(failed.message()), HasSubstr("rank 0 on host host0: a damaged file"));
    return absl::OkStatus();
  });
  for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

}  // namespace
}  // namespace plumb
