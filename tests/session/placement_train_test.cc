// Training under every shipped placement: the bits of a run depend neither on threads nor on what
// is recomputed, nor on where it was interrupted and resumed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/io/safetensors.h"
#include "runtime/session/train_session.h"
#include "tests/api/test_models.h"
#include "tests/session/scratch_dir.h"
#include "tests/session/test_datasets.h"

namespace plumb {
namespace {

constexpr int kSteps = 6;

class PlacementTrainTest : public ::testing::TestWithParam<std::string> {
 protected:
  PlacementTrainTest() {
    TinyModel model;
    model.placement = GetParam();
    model.n_layer = model.placement == "swin_v2" ? 6 : 2;
    model.n_kv_head = 1;
    context_ = MakeContext(runtime_.get(), model.Text());
    spec_.batch_size = 3;
    spec_.learning_rate = 0.01;
  }

  std::unique_ptr<TrainSession> Make(int threads = 1) {
    auto session = TrainSession::Create(context_.get(), &data_, spec_, threads);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  static std::vector<double> Losses(TrainSession* session, int steps) {
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      const auto step = session->Step();
      EXPECT_TRUE(step.ok()) << step.status();
      if (step.ok()) losses.push_back(step->loss);
    }
    return losses;
  }

  static std::vector<float> Weights(const TrainSession& session) {
    return Floats(session.parameters());
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  std::unique_ptr<ModelContext> context_;
  const Dataset data_ = TextOf(300, 5);
  TrainSpec spec_;
};

TEST_P(PlacementTrainTest, TheBitsDependNeitherOnThreadsNorOnWhatIsRecomputed) {
  const auto one = Make();
  const std::vector<double> losses = Losses(one.get(), kSteps);
  const auto three = Make(/*threads=*/3);
  EXPECT_EQ(Losses(three.get(), kSteps), losses);
  EXPECT_EQ(Weights(*three), Weights(*one));
  spec_.recompute_blocks = true;
  const auto again = Make();
  EXPECT_EQ(Losses(again.get(), kSteps), losses);
  EXPECT_EQ(Weights(*again), Weights(*one));
}

TEST_P(PlacementTrainTest, ARunThatIsResumedIsTheRunThatWasNot) {
  const auto whole = Make();
  const std::vector<double> losses = Losses(whole.get(), kSteps);
  const auto first = Make();
  Losses(first.get(), kSteps / 2);
  const ScratchDir scratch;
  ASSERT_TRUE(WriteSafetensors(scratch.File("model"), first->parameters().Tensors()).ok());
  ASSERT_TRUE(WriteSafetensors(scratch.File("optimizer"), first->optimizer().Tensors()).ok());
  const auto second = Make();
  ASSERT_TRUE(second->parameters().Read(*SafetensorsFile::Open(scratch.File("model"))).ok());
  ASSERT_TRUE(second->optimizer().Read(*SafetensorsFile::Open(scratch.File("optimizer"))).ok());
  second->ResumeAt(first->step());
  EXPECT_EQ(Losses(second.get(), kSteps - kSteps / 2),
            std::vector<double>(losses.begin() + kSteps / 2, losses.end()));
  EXPECT_EQ(Weights(*second), Weights(*whole));
}

INSTANTIATE_TEST_SUITE_P(Shipped, PlacementTrainTest, ::testing::ValuesIn(ShippedPlacements()),
                         TestName);

// What is for training only draws from the seed, the step and the place.
class DroppingTrainTest : public PlacementTrainTest {
 protected:
  void SetUp() override {
    TinyModel model;
    model.n_layer = 3;
    model.placement = "mine";
    model.more =
        "placement { name: \"mine\" block: \"x = x + drop(attention(norm_1(x)), 0.2)\" "
        "block: \"x = x + drop_path(min(1, step / 4) * mlp(norm_2(x)), 0.3)\" end: \"x = norm(x)\" "
        "}";
    context_ = MakeContext(runtime_.get(), model.Text());
  }
};

TEST_P(DroppingTrainTest, TheBitsDependNeitherOnThreadsNorOnWhatIsRecomputed) {
  const auto one = Make();
  const std::vector<double> losses = Losses(one.get(), kSteps);
  const auto three = Make(/*threads=*/3);
  EXPECT_EQ(Losses(three.get(), kSteps), losses);
  spec_.recompute_blocks = true;
  EXPECT_EQ(Losses(Make().get(), kSteps), losses);
  spec_.recompute_blocks = false;
  spec_.seed = 2;
  EXPECT_NE(Losses(Make().get(), kSteps), losses);
}

INSTANTIATE_TEST_SUITE_P(Mine, DroppingTrainTest, ::testing::Values("pre"), TestName);

}  // namespace
}  // namespace plumb
