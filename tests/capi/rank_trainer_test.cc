// SPDX-License-Identifier: Apache-2.0
// Tests of trainers with several ranks, which are threads, through plumb.h.
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "runtime/ranks/host_communicator.h"
#include "runtime/ranks/local_ranks.h"
#include "tests/capi/capi_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::HasSubstr;

constexpr char kUnits[] =
    "max_steps: 9 batch_size: 4 gradient_accumulation_steps: 2 units: 4 seed: 3 "
    "learning_rate: 0.01 ";

// Objects of one rank of a job.
struct RankOfJob {
  RankOfJob(Communicator* ranks, const std::string& model_text) : host(ranks) {
    auto options = MakeStruct<plumb_runtime_options>();
    options.flags = PLUMB_RUNTIME_NO_ENVIRONMENT;
    options.threads = 1;
    EXPECT_PLUMB_OK(plumb_runtime_create(PLUMB_ABI_VERSION, &options, &runtime.get, err));
    SpecHandle spec;
    EXPECT_PLUMB_OK(plumb_spec_from_text(model_text.c_str(), "model", &spec.get, err));
    EXPECT_PLUMB_OK(plumb_model_create(runtime.get, spec.get, &model.get, err));
  }
  plumb_status Train(const std::string& recipe, plumb_error** error) {
    plumb_trainer_options options = Recipe(recipe.c_str());
    options.draw_weights = 1;
    options.communicator = host.get();
    return plumb_trainer_create(model.get, &options, &trainer.get, error);
  }
  plumb_step_info Step() {
    const auto n = static_cast<size_t>(plumb_trainer_step_tokens(trainer.get));
    std::vector<int32_t> inputs(n), targets(n);
    for (size_t i = 0; i < n; ++i) {
      inputs[i] =
          static_cast<int32_t>((i * 7 + static_cast<size_t>(plumb_trainer_steps(trainer.get))) % 5);
      targets[i] = static_cast<int32_t>((i * 3 + 1) % 5);
    }
    auto info = MakeStruct<plumb_step_info>();
    EXPECT_PLUMB_OK(plumb_trainer_step(trainer.get, inputs.data(), targets.data(), n, &info, err));
    return info;
  }
  // Runs `use` on rank 0, whose states all ranks get.
  plumb_status TryShare(std::function<int32_t()> use, plumb_error** error) {
    const auto call = [](void* user) { return (*static_cast<std::function<int32_t()>*>(user))(); };
    return plumb_trainer_share_states(trainer.get, call, &use, error);
  }

  void Share(const std::function<int32_t()>& use) { EXPECT_PLUMB_OK(TryShare(use, err)); }

  const ForHost host;
  RuntimeHandle runtime;
  ModelHandle model;
  TrainerHandle trainer;
};

class RankTrainerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void Run(int size, const std::function<void(RankOfJob*)>& body) {
    const std::string text = TinyModel().Text();
    for (const absl::Status& result : RunRanks(size, [&](Communicator* ranks) {
           RankOfJob rank(ranks, text);
           body(&rank);
           return absl::OkStatus();
         })) {
      EXPECT_TRUE(result.ok()) << result;
    }
  }
  std::string Path(const std::string& name) const {
    return absl::StrCat(scratch_.path(), "/", name);
  }
  static std::string Content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Returns the saved file of `size` ranks after `steps` steps from the state `start`.
  std::string Train(int size, const std::string& recipe, const std::string& start, int steps,
                    std::vector<double>* losses) {
    const std::string path = Path(absl::StrCat("of", size));
    Run(size, [&](RankOfJob* rank) {
      EXPECT_PLUMB_OK(rank->Train(recipe, err));
      rank->Share([&] {
        if (start.empty()) return 0;
        EXPECT_EQ(rank->host.get()->rank, 0);
        EXPECT_PLUMB_OK(plumb_trainer_load(rank->trainer.get, start.c_str(), err));
        return 0;
      });
      for (int i = 0; i < steps; ++i) {
        const plumb_step_info info = rank->Step();
        if (rank->host.get()->rank == size - 1) losses->push_back(info.loss);
      }
      if (rank->host.get()->rank != size - 1) return;
      EXPECT_PLUMB_OK(plumb_trainer_save(rank->trainer.get, path.c_str(), err));
    });
    return Content(path);
  }

  const ScratchDir scratch_;
};

TEST_P(RankTrainerTest, FilesResumeOnAnyNumberOfRanks) {
  const std::string recipe = absl::StrCat(kUnits, GetParam());
  std::vector<double> expected_losses;
  const std::string expected = Train(1, recipe, "", 3, &expected_losses);
  ASSERT_GT(expected.size(), 1000u);
  const std::string start = Path("start");
  std::ofstream(start, std::ios::binary) << expected;
  std::vector<double> later_losses;
  const std::string later = Train(1, recipe, start, 2, &later_losses);
  EXPECT_NE(later, expected);
  for (const int size : {2, 3, 4}) {
    SCOPED_TRACE(size);
    std::vector<double> losses;
    EXPECT_EQ(Train(size, recipe, "", 3, &losses), expected);
    EXPECT_EQ(losses, expected_losses);
    losses.clear();
    EXPECT_EQ(Train(size, recipe, start, 2, &losses), later);
    EXPECT_EQ(losses, later_losses);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RankTrainerTest,
                         ::testing::Values("", "ema_decay: 0.9", "dtype: BF16 ema_decay: 0.9",
                                           "optimizer: MUON", "optimizer: MUON dtype: BF16"));

using RanksTrainerTest = RankTrainerTest;

TEST_F(RanksTrainerTest, RankZeroWritesStatesOfAllRanks) {
  Run(2, [&](RankOfJob* rank) {
    EXPECT_PLUMB_OK(rank->Train(absl::StrCat(kUnits, "dtype: BF16"), err));
    rank->Step();
    plumb_trainer* const trainer = rank->trainer.get;
    const float written = 0.3f;  // not exact in bf16
    rank->Share([&] {
      for (const int kind : {PLUMB_STATE_MODEL, PLUMB_STATE_OPTIMIZER}) {
        EXPECT_PLUMB_OK(plumb_trainer_write_state(trainer, kind, 0, 1, 1, &written, err));
      }
      EXPECT_THAT(Fails(PLUMB_STATUS_FAILED_PRECONDITION,
                        [&](plumb_error** error) {
                          const std::vector<int32_t> ids(plumb_trainer_step_tokens(trainer));
                          return plumb_trainer_step(trainer, ids.data(), ids.data(), ids.size(),
                                                    nullptr, error);
                        }),
                  HasSubstr("there are no steps in it"));
      return 0;
    });
    for (const int kind : {PLUMB_STATE_MODEL, PLUMB_STATE_OPTIMIZER}) {
      float value = 0;
      EXPECT_PLUMB_OK(plumb_trainer_read_state(trainer, kind, 0, 1, 1, &value, err));
      EXPECT_EQ(value, written);
    }
    ErrorHandle error;
    EXPECT_EQ(rank->TryShare([] { return 1; }, &error.get), PLUMB_STATUS_CANCELLED);
  });
}

TEST_F(RanksTrainerTest, RefusesInvalidOptions) {
  Run(2, [&](RankOfJob* rank) {
    ErrorHandle error;
    EXPECT_EQ(rank->Train("batch_size: 4 units: 1", &error.get), PLUMB_STATUS_INVALID_ARGUMENT);
    EXPECT_THAT(plumb_error_message(error.get), HasSubstr("2 ranks, and a step of 1 unit"));
    ErrorHandle of_sequences;
    EXPECT_EQ(rank->Train("batch_size: 1", &of_sequences.get), PLUMB_STATUS_INVALID_ARGUMENT);
    EXPECT_THAT(plumb_error_message(of_sequences.get),
                HasSubstr("2 ranks, and a step of 1 sequence"));
    plumb_communicator broken = *rank->host.get();
    broken.wait = nullptr;
    plumb_trainer_options options = Recipe(kUnits);
    options.communicator = &broken;
    EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT,
                      [&](plumb_error** e) {
                        TrainerHandle trainer;
                        return plumb_trainer_create(rank->model.get, &options, &trainer.get, e);
                      }),
                HasSubstr("NULL"));
    options.communicator = nullptr;
    options.ranks = -1;
    auto memory = MakeStruct<plumb_trainer_memory>();
    EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_trainer_plan, rank->model.get, &options,
                      &memory),
                HasSubstr("ranks must be in 0..1048576"));
  });
}

TEST_F(RanksTrainerTest, WithoutCommunicatorStatesAreLocal) {
  Run(1, [&](RankOfJob* rank) {
    plumb_trainer_options options = Recipe(kUnits);
    options.draw_weights = 1;
    EXPECT_PLUMB_OK(plumb_trainer_create(rank->model.get, &options, &rank->trainer.get, err));
    int calls = 0;
    rank->Share([&] { return calls++; });
    EXPECT_EQ(calls, 1);
    EXPECT_THAT(Fails(PLUMB_STATUS_CANCELLED,
                      [&](plumb_error** error) { return rank->TryShare([] { return 1; }, error); }),
                HasSubstr("plumb_trainer_share_states"));
  });
}

TEST_F(RanksTrainerTest, PlansTheMemoryOfRanks) {
  for (const char* dtype : {"", "dtype: BF16"}) {
    const std::string recipe = absl::StrCat(kUnits, dtype);
    plumb_trainer_options options = Recipe(recipe.c_str());
    int64_t planned = 0, max = 0;
    std::mutex mutex;
    Run(4, [&](RankOfJob* rank) {
      EXPECT_PLUMB_OK(rank->Train(recipe, err));
      auto memory = MakeStruct<plumb_trainer_memory>();
      EXPECT_PLUMB_OK(plumb_trainer_get_memory(rank->trainer.get, &memory, err));
      EXPECT_GT(memory.exchange, 0);
      const std::lock_guard<std::mutex> lock(mutex);
      max = std::max(max, memory.total);
      if (rank->host.get()->rank != 0) return;
      plumb_trainer_options of_four = options;
      of_four.ranks = 4;
      EXPECT_PLUMB_OK(plumb_trainer_plan(rank->model.get, &of_four, &memory, err));
      planned = memory.total;
    });
    EXPECT_EQ(planned, max) << dtype;
  }
}

// A job of such a size is refused before any message.
TEST(RankTrainerSizeTest, RefusesAbsurdlyManyRanks) {
  for (const absl::Status& result : RunRanks(1, [&](Communicator* ranks) {
         RankOfJob rank(ranks, TinyModel().Text());
         plumb_communicator absurd = *rank.host.get();
         absurd.size = std::numeric_limits<int32_t>::max();
         absurd.start_send = [](void*, int32_t, int32_t, const void*, size_t, void** transfer) {
           *transfer = transfer;
           return plumb_status{PLUMB_OK};
         };
         absurd.start_receive = [](void*, int32_t, int32_t, void*, size_t, void** transfer) {
           *transfer = transfer;
           return plumb_status{PLUMB_OK};
         };
         absurd.wait = [](void*, void*) { return plumb_status{PLUMB_OK}; };
         plumb_trainer_options options = Recipe("batch_size: 2");
         options.draw_weights = 1;
         options.communicator = &absurd;
         EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_trainer_create, rank.model.get,
                           &options, &rank.trainer.get),
                     HasSubstr("communicator: size is 2147483647"));
         options.communicator = nullptr;
         options.ranks = std::numeric_limits<int32_t>::max();
         auto memory = MakeStruct<plumb_trainer_memory>();
         EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_trainer_plan, rank.model.get,
                           &options, &memory),
                     HasSubstr("options: ranks must be in 0..1048576"));
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(result.ok()) << result;
  }
}

// A recipe without units uses as many as the ranks need, and has the losses of one process with as
// many.
TEST_P(RankTrainerTest, ChoosesUnitsForTheRanks) {
  const std::string recipe =
      absl::StrCat("max_steps: 9 batch_size: 6 seed: 3 learning_rate: 0.01 ", GetParam());
  std::vector<double> expected, losses;
  const std::string one = Train(1, absl::StrCat(recipe, " units: 6"), "", 2, &expected);
  EXPECT_EQ(Train(4, recipe, "", 2, &losses), one);
  EXPECT_EQ(losses, expected);
}

}  // namespace
}  // namespace plumb
