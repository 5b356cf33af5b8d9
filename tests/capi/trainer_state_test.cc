// SPDX-License-Identifier: Apache-2.0
// Tests of trainers that are planned, stepped on short sequences, saved tensor by tensor, probed
// without a callback, and profiled.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/formats/safetensors.h"
#include "tests/capi/host_life.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kWideVocabulary = 40;
constexpr char kThreeSteps[] = "max_steps: 9 batch_size: 2 gradient_accumulation_steps: 2 seed: 3 ";

// Source of micro-batches whose rows have `seqs` ids in turn and differ between steps.
struct Filler {
  std::vector<int64_t> seqs;
  int64_t step = 0;
  int32_t more = 0;  // added to the ids, to exceed the vocabulary
  int32_t result = 0;

  static int32_t Fill(void* self, int64_t i, int32_t* inputs, int32_t* targets, int64_t* seq) {
    auto* const filler = static_cast<Filler*>(self);
    const int64_t room = *seq;
    if (!filler->seqs.empty()) {
      *seq = filler->seqs[static_cast<size_t>(i) % filler->seqs.size()];
    }
    for (int64_t at = 0; at < 2 * std::min(*seq, room); ++at) {
      inputs[at] = static_cast<int32_t>((at * 11 + i * 5 + filler->step * 3) % kWideVocabulary) +
                   filler->more;
      targets[at] = at % 5 == 0 ? -1 : static_cast<int32_t>((at * 7 + i) % kWideVocabulary);
    }
    return filler->result;
  }
};

class TrainerStateTest : public CapiTest {
 protected:
  TrainerHandle Train(plumb_model* model, const std::string& recipe, int64_t seq = 0) {
    plumb_trainer_options options = Recipe(recipe.c_str(), seq);
    options.draw_weights = 1;
    TrainerHandle trainer;
    EXPECT_PLUMB_OK(plumb_trainer_create(model, &options, &trainer.get, err));
    return trainer;
  }
  static plumb_step_info Step(plumb_trainer* trainer, Filler filler) {
    filler.step = plumb_trainer_steps(trainer);
    auto info = MakeStruct<plumb_step_info>();
    EXPECT_PLUMB_OK(plumb_trainer_step_with_callback(trainer, Filler::Fill, &filler, &info, err));
    return info;
  }
  std::string Saved(const plumb_trainer* trainer) {
    const std::string path = absl::StrCat(scratch_.path(), "/trainer");
    EXPECT_PLUMB_OK(plumb_trainer_save(trainer, path.c_str(), err));
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::vector<plumb_tensor> GetState(const plumb_trainer* trainer, int32_t kind) {
    std::vector<plumb_tensor> tensors;
    auto tensor = MakeStruct<plumb_tensor>();
    for (int64_t i = 0; i < plumb_trainer_state_count(trainer, kind); ++i) {
      EXPECT_PLUMB_OK(plumb_trainer_state(trainer, kind, i, &tensor, err));
      tensors.push_back(tensor);
    }
    return tensors;
  }
  static int64_t CountElements(const plumb_tensor& tensor) {
    return tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3];
  }
  static std::vector<plumb_probe> GetProbes(const plumb_trainer* trainer) {
    const int64_t count = plumb_trainer_probes(trainer, nullptr, 0);
    std::vector<plumb_probe> figures(static_cast<size_t>(count), MakeStruct<plumb_probe>());
    EXPECT_EQ(plumb_trainer_probes(trainer, figures.data(), count), count);
    return figures;
  }

  ScratchDir scratch_;
};

// A host may store all states in one file of its own.
TEST_F(TrainerStateTest, AFileOfWeightsAndAveragesIsOneOfWeights) {
  const ModelHandle model = CreateWithWeights();
  plumb_trainer_options options = Recipe("batch_size: 2 ema_decay: 0.5");
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
  const std::vector<int32_t> ids(16, 1);
  EXPECT_PLUMB_OK(plumb_trainer_step(trainer.get, ids.data(), ids.data(), 16, nullptr, err));
  std::vector<TensorToWrite> tensors;
  for (const int32_t kind : {PLUMB_STATE_MODEL, PLUMB_STATE_OPTIMIZER}) {
    for (const plumb_tensor& tensor : GetState(trainer.get, kind)) {
      const std::vector<int64_t> shape(tensor.shape, tensor.shape + tensor.rank);
      tensors.push_back({tensor.name, F32(Shape(shape)), tensor.data});
    }
  }
  const std::string path = absl::StrCat(scratch_.path(), "/all");
  EXPECT_TRUE(WriteSafetensors(path, tensors, {{"step", "1"}}).ok());
  const ModelHandle again = CreateWithWeights();
  const std::string left = GetText(plumb_model_load, again.get, path.c_str());
  EXPECT_THAT(left, testing::AllOf(HasSubstr("surplus: ema."), testing::Not(HasSubstr("missing"))));
  EXPECT_EQ(Weights(again.get), Weights(model.get));
}

TEST_F(TrainerStateTest, CompletesARecipe) {
  const auto text = [](const std::string& recipe, const std::vector<const char*>& settings,
                       plumb_error** error, std::string* to) {
    char* made = nullptr;
    const plumb_status status =
        plumb_recipe_text(recipe.c_str(), "train.pbtxt", settings.data(),
                          static_cast<int64_t>(settings.size() / 2), &made, error);
    if (status == PLUMB_OK) *to = made;
    plumb_free(made);
    return status;
  };
  std::string whole, again;
  EXPECT_PLUMB_OK(
      text("max_steps: 7", {"learning_rate", "0.5", "data.format", "DOCUMENTS"}, err, &whole));
  EXPECT_THAT(whole, StartsWith("max_steps: 7\nbatch_size: 1\n"));
  EXPECT_THAT(whole, HasSubstr("learning_rate: 0.5\n"));
  EXPECT_THAT(whole, HasSubstr("format: DOCUMENTS\n"));
  EXPECT_THAT(whole, HasSubstr("decay_steps: 7\n"));
  EXPECT_PLUMB_OK(text(whole, {}, err, &again));
  EXPECT_EQ(again, whole);
  const auto fails = [&](const std::string& recipe, const std::vector<const char*>& settings) {
    return Fails(PLUMB_STATUS_INVALID_ARGUMENT,
                 [&](plumb_error** e) { return text(recipe, settings, e, &again); });
  };
  EXPECT_THAT(fails("max_steps: 7\n  beta1: 2", {}), StartsWith("train.pbtxt:2:3: beta1 must be"));
  EXPECT_THAT(fails("max_step: 7", {}), HasSubstr("max_step"));
  EXPECT_THAT(fails("", {"max_steps", "many"}), StartsWith("train.max_steps"));
  EXPECT_THAT(fails("", {"max_steps", nullptr}), HasSubstr("NULL"));
}

TEST_F(TrainerStateTest, TrainerTakesThePlannedMemory) {
  const ModelHandle model = Create(WideModel());
  plumb_trainer_options options = Recipe("batch_size: 2 gradient_accumulation_steps: 3", 16);
  options.draw_weights = 1;
  plumb_trainer_memory planned = {}, taken = {};
  planned.struct_size = taken.struct_size = sizeof(planned);
  EXPECT_PLUMB_OK(plumb_trainer_plan(model.get, &options, &planned, err));
  EXPECT_GT(planned.workspace, 0);
  EXPECT_EQ(planned.total, planned.weights + planned.gradients + planned.moments +
                               planned.norm_states + planned.inputs + planned.workspace);
  EXPECT_EQ(planned.moments, 2 * planned.weights);
  EXPECT_EQ(planned.gradients, 2 * planned.weights);
  auto evaluator = MakeStruct<plumb_evaluator_options>();
  int64_t small = 0, large = 0;
  EXPECT_PLUMB_OK(plumb_evaluator_plan(model.get, &evaluator, &small, err));
  evaluator.logits = 1;
  EXPECT_PLUMB_OK(plumb_evaluator_plan(model.get, &evaluator, &large, err));
  EXPECT_GE(large - small, int64_t{4} * 64 * kWideVocabulary);
  evaluator.gradients = 1;
  int64_t largest = 0;
  EXPECT_PLUMB_OK(plumb_evaluator_plan(model.get, &evaluator, &largest, err));
  EXPECT_GE(largest - large, planned.weights);
  // A reserve beyond the available memory is refused, and the model then has no trainer.
  options.reserve = std::numeric_limits<int64_t>::max() / 2;
  TrainerHandle trainer;
  const auto create = [&](plumb_error** e) {
    return plumb_trainer_create(model.get, &options, &trainer.get, e);
  };
  EXPECT_THAT(Fails(PLUMB_STATUS_RESOURCE_EXHAUSTED, create), HasSubstr("training takes"));
  options.reserve = -1;
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, create), HasSubstr("reserve"));
  options.reserve = 0;
  EXPECT_PLUMB_OK(create(err));
  EXPECT_PLUMB_OK(plumb_trainer_get_memory(trainer.get, &taken, err));
  EXPECT_EQ(std::memcmp(&planned, &taken, sizeof(planned)), 0);
}

TEST_F(TrainerStateTest, DrawnWeightsEqualAnInitializedModel) {
  for (const char* const dtype : {"dtype: F32", "dtype: BF16"}) {
    const std::string recipe = absl::StrCat(kThreeSteps, dtype);
    const ModelHandle drawn = Create(WideModel()), initialized = Create(WideModel());
    const TrainerHandle drawing = Train(drawn.get, recipe);
    EXPECT_PLUMB_OK(plumb_model_init(initialized.get, 3, err));
    const plumb_trainer_options options = Recipe(recipe.c_str());
    TrainerHandle other;
    EXPECT_PLUMB_OK(plumb_trainer_create(initialized.get, &options, &other.get, err));
    EXPECT_EQ(Saved(drawing.get), Saved(other.get));
    EXPECT_EQ(Step(drawing.get, {}).loss, Step(other.get, {}).loss);
    EXPECT_EQ(Saved(drawing.get), Saved(other.get));
  }
}

TEST_F(TrainerStateTest, MicroBatchesMayBeShort) {
  // Micro-batches of one length give the bits of a trainer of that length.
  const ModelHandle long_model = Create(WideModel()), short_model = Create(WideModel());
  const TrainerHandle of_long = Train(long_model.get, kThreeSteps);
  const TrainerHandle of_short = Train(short_model.get, kThreeSteps, 17);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Step(of_long.get, {{17}}).loss, Step(of_short.get, {}).loss);
  }
  EXPECT_EQ(Saved(of_long.get), Saved(of_short.get));
  // Micro-batches have two lengths, and each fifth id has no target.
  EXPECT_EQ(Step(of_long.get, {{64, 5}}).tokens, 128 - 26 + 10 - 2);
  EXPECT_EQ(Step(of_long.get, {{5, 64}}).tokens, 128 - 26 + 10 - 2);
}

// Micro-batches have 1, 30, 0 and 7 targets, or as many in pairs. The step's loss is the mean over
// all targets, as it is in one batch.
TEST_F(TrainerStateTest, StepAveragesAllTargets) {
  struct Host {
    int64_t rows;
    int calls = 0;
    static int32_t Fill(void* user, int64_t i, int32_t* inputs, int32_t* targets, int64_t* seq) {
      auto* const host = static_cast<Host*>(user);
      ++host->calls;
      for (int64_t row = 0; row < host->rows; ++row) {
        const int64_t of_step = i * host->rows + row;
        const int64_t valid = of_step == 0 ? 1 : of_step == 1 ? 30 : of_step == 2 ? 0 : 7;
        for (int64_t at = 0; at < *seq; ++at, ++inputs, ++targets) {
          *inputs = static_cast<int32_t>((at * 11 + of_step * 5) % kWideVocabulary);
          *targets = at < valid ? static_cast<int32_t>((at * 7 + of_step) % kWideVocabulary) : -1;
        }
      }
      return 0;
    }
  };
  const auto train = [&](int64_t rows, int64_t micro_batches, std::vector<float>* gradient) {
    const ModelHandle model = Create(WideModel());
    const TrainerHandle trainer =
        Train(model.get,
              absl::StrCat("max_steps: 3 seed: 5 batch_size: ", rows,
                           " gradient_accumulation_steps: ", micro_batches),
              32);
    Host host{rows};
    auto info = MakeStruct<plumb_step_info>();
    EXPECT_PLUMB_OK(plumb_trainer_step_with_callback(trainer.get, Host::Fill, &host, &info, err));
    EXPECT_EQ(host.calls, micro_batches);
    auto tensor = MakeStruct<plumb_tensor>();
    EXPECT_PLUMB_OK(plumb_trainer_gradient(trainer.get, 0, &tensor, err));
    gradient->assign(tensor.data, tensor.data + CountElements(tensor));
    return info;
  };
  std::vector<float> whole_gradient, gradient;
  const plumb_step_info whole = train(4, 1, &whole_gradient);
  EXPECT_EQ(whole.tokens, 38);
  float largest = 0;
  for (const float g : whole_gradient) largest = std::max(largest, std::fabs(g));
  for (const int64_t rows : {2, 1}) {
    const plumb_step_info split = train(rows, 4 / rows, &gradient);
    EXPECT_EQ(split.tokens, whole.tokens);
    EXPECT_NEAR(split.loss, whole.loss, 1e-6);
    EXPECT_NEAR(split.gradient_norm, whole.gradient_norm, 1e-5 * whole.gradient_norm);
    ASSERT_EQ(gradient.size(), whole_gradient.size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_NEAR(gradient[i], whole_gradient[i], 1e-5F * largest) << i;
    }
  }
}

TEST_F(TrainerStateTest, AFailedBatchCallbackChangesNothing) {
  const ModelHandle model = Create(WideModel());
  const TrainerHandle trainer = Train(model.get, kThreeSteps);
  Step(trainer.get, {});
  const std::string before = Saved(trainer.get);
  const auto fails = [&](plumb_status code, Filler filler) {
    std::string message = Fails(code, [&](plumb_error** e) {
      return plumb_trainer_step_with_callback(trainer.get, Filler::Fill, &filler, nullptr, e);
    });
    EXPECT_EQ(Saved(trainer.get), before);
    return message;
  };
  Filler none, foreign;
  none.result = 1;
  foreign.more = kWideVocabulary;
  fails(PLUMB_STATUS_CANCELLED, none);
  EXPECT_THAT(fails(PLUMB_STATUS_INVALID_ARGUMENT, foreign), HasSubstr("inputs: id 40 at 0"));
  EXPECT_THAT(fails(PLUMB_STATUS_INVALID_ARGUMENT, {{8, 0}}), HasSubstr("seq: must be in 1..64"));
  EXPECT_THAT(fails(PLUMB_STATUS_INVALID_ARGUMENT, {{65}}), HasSubstr("seq: must be in 1..64"));
  Step(trainer.get, {});
  EXPECT_NE(Saved(trainer.get), before);
}

TEST_F(TrainerStateTest, CopiesStateTensorByTensor) {
  for (const char* const dtype : {"dtype: F32", "dtype: BF16"}) {
    const std::string recipe = absl::StrCat(kThreeSteps, dtype);
    const ModelHandle first = Create(WideModel()), second = Create(WideModel());
    const TrainerHandle from = Train(first.get, recipe);
    for (int i = 0; i < 3; ++i) Step(from.get, {});
    const TrainerHandle to =
        Train(second.get, "batch_size: 2 gradient_accumulation_steps: 2 " + std::string(dtype));
    bool is_split = false;
    for (const int32_t kind : {PLUMB_STATE_MODEL, PLUMB_STATE_OPTIMIZER}) {
      const std::vector<plumb_tensor> tensors = GetState(from.get, kind);
      const auto parameters = static_cast<size_t>(plumb_model_tensor_count(first.get));
      EXPECT_EQ(tensors.size(), kind == PLUMB_STATE_MODEL ? parameters : 2 * parameters);
      for (size_t i = 0; i < tensors.size(); ++i) {
        is_split |= tensors[i].data == nullptr;
        std::vector<float> copy(static_cast<size_t>(CountElements(tensors[i])));
        const auto n = static_cast<int64_t>(copy.size());
        EXPECT_PLUMB_OK(plumb_trainer_read_state(from.get, kind, i, 0, n, copy.data(), err));
        if (tensors[i].data != nullptr) {
          EXPECT_EQ(std::memcmp(copy.data(), tensors[i].data, copy.size() * sizeof(float)), 0);
        }
        // The tensor is written in two parts.
        EXPECT_PLUMB_OK(plumb_trainer_write_state(to.get, kind, i, 0, 1, copy.data(), err));
        EXPECT_PLUMB_OK(plumb_trainer_write_state(to.get, kind, i, 1, n - 1, &copy[1], err));
      }
    }
    EXPECT_EQ(is_split, std::string(dtype) == "dtype: BF16");
    EXPECT_PLUMB_OK(plumb_trainer_set_steps(to.get, 3, err));
    EXPECT_EQ(plumb_trainer_steps(to.get), 3);
    EXPECT_EQ(Saved(to.get), Saved(from.get));
    Step(from.get, {});
    Step(to.get, {});
    EXPECT_EQ(Saved(to.get), Saved(from.get));
  }
}

TEST_F(TrainerStateTest, WeightsTrainedInBf16AreReadAsFloats) {
  const ModelHandle model = Create(WideModel());
  std::vector<float> before, after;
  const int64_t i = plumb_model_find_tensor(model.get, "head.weight");
  ASSERT_GE(i, 0);
  EXPECT_EQ(plumb_model_find_tensor(model.get, "head"), -1);
  {
    const TrainerHandle trainer = Train(model.get, absl::StrCat(kThreeSteps, " dtype: BF16"));
    Step(trainer.get, {});
    auto tensor = MakeStruct<plumb_tensor>();
    EXPECT_PLUMB_OK(plumb_trainer_state(trainer.get, PLUMB_STATE_MODEL, i, &tensor, err));
    EXPECT_STREQ(tensor.name, "head.weight");
    before.resize(static_cast<size_t>(CountElements(tensor)));
    EXPECT_PLUMB_OK(plumb_trainer_read_state(trainer.get, PLUMB_STATE_MODEL, i, 0,
                                             CountElements(tensor), before.data(), err));
  }
  after.resize(before.size());
  const auto n = static_cast<int64_t>(before.size());
  EXPECT_PLUMB_OK(plumb_model_read_tensor(model.get, i, 0, 3, after.data(), err));
  EXPECT_PLUMB_OK(plumb_model_read_tensor(model.get, i, 3, n - 3, after.data() + 3, err));
  EXPECT_EQ(after, before);
  Fails(PLUMB_STATUS_OUT_OF_RANGE, plumb_model_read_tensor, model.get, i, 1, n, after.data());
  Fails(PLUMB_STATUS_OUT_OF_RANGE, plumb_model_read_tensor, model.get, -1, 0, 1, after.data());
  Fails(PLUMB_STATUS_OUT_OF_RANGE, plumb_model_read_tensor, model.get, 1 << 20, 0, 0, after.data());
}

TEST_F(TrainerStateTest, RefusesReadsOutsideAState) {
  const ModelHandle model = Create(WideModel());
  const TrainerHandle trainer = Train(model.get, kThreeSteps);
  float value = 0;
  const auto read = [&](int32_t kind, int64_t i, int64_t begin, int64_t count) {
    return [&, kind, i, begin, count](plumb_error** e) {
      return plumb_trainer_read_state(trainer.get, kind, i, begin, count, &value, e);
    };
  };
  Fails(PLUMB_STATUS_INVALID_ARGUMENT, read(2, 0, 0, 1));
  Fails(PLUMB_STATUS_INVALID_ARGUMENT, read(-1, 0, 0, 1));
  Fails(PLUMB_STATUS_OUT_OF_RANGE, read(PLUMB_STATE_MODEL, 1000, 0, 1));
  Fails(PLUMB_STATUS_OUT_OF_RANGE, read(PLUMB_STATE_MODEL, -1, 0, 1));
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const auto& [begin, count] :
       {std::pair<int64_t, int64_t>{-1, 1}, {0, -1}, {1 << 20, 1}, {1, kMax}, {kMax, kMax}}) {
    EXPECT_THAT(Fails(PLUMB_STATUS_OUT_OF_RANGE, read(PLUMB_STATE_MODEL, 0, begin, count)),
                HasSubstr("embedding"));
  }
  for (const int64_t steps : {int64_t{-1}, kMax}) {
    Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_trainer_set_steps, trainer.get, steps);
  }
}

TEST_F(TrainerStateTest, NonFiniteNumberIsNamed) {
  const ModelHandle model = Create(WideModel());
  const TrainerHandle trainer = Train(model.get, kThreeSteps);
  EXPECT_PLUMB_OK(plumb_trainer_check(trainer.get, err));
  const float nan = std::nanf("");
  EXPECT_PLUMB_OK(
      plumb_trainer_write_state(trainer.get, PLUMB_STATE_OPTIMIZER, 0, 7, 1, &nan, err));
  EXPECT_THAT(Fails(PLUMB_STATUS_ABORTED, plumb_trainer_check, trainer.get),
              HasSubstr("Adam's first moment of embedding.token.weight"));
}

TEST_F(TrainerStateTest, ScalesTheLearningRate) {
  const ModelHandle model = Create(WideModel());
  const TrainerHandle trainer =
      Train(model.get, absl::StrCat(kThreeSteps, "learning_rate: 0.5 schedule: LINEAR"));
  EXPECT_EQ(plumb_trainer_learning_rate(trainer.get), 0.5);
  EXPECT_PLUMB_OK(plumb_trainer_scale_learning_rate(trainer.get, 0.25, err));
  EXPECT_EQ(plumb_trainer_learning_rate(trainer.get), 0.125);
  EXPECT_EQ(Step(trainer.get, {}).learning_rate, 0.125);
  EXPECT_PLUMB_OK(plumb_trainer_set_steps(trainer.get, 9, err));
  EXPECT_EQ(plumb_trainer_learning_rate(trainer.get), 0);
  for (const double scale : {-1.0, std::nan(""), HUGE_VAL}) {
    Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_trainer_scale_learning_rate, trainer.get, scale);
  }
}

TEST_F(TrainerStateTest, FrozenTensorsHaveNeitherGradientsNorStates) {
  const ModelHandle model = Create(WideModel());
  const std::string recipe =
      absl::StrCat(kThreeSteps, "rule { match: 'head.*' } rule { match: '*' freeze: true }");
  const TrainerHandle trainer = Train(model.get, recipe);
  const plumb_step_info info = Step(trainer.get, {});
  double squares = 0;
  const std::vector<plumb_tensor> weights = GetState(trainer.get, PLUMB_STATE_MODEL);
  for (size_t i = 0; i < weights.size(); ++i) {
    auto gradient = MakeStruct<plumb_tensor>();
    if (absl::StartsWith(weights[i].name, "head.")) {
      EXPECT_PLUMB_OK(plumb_trainer_gradient(trainer.get, i, &gradient, err));
      const auto* const data = static_cast<const float*>(gradient.data);
      for (int64_t e = 0; e < CountElements(gradient); ++e) {
        squares += static_cast<double>(data[e]) * static_cast<double>(data[e]);
      }
      continue;
    }
    EXPECT_THAT(
        Fails(PLUMB_STATUS_FAILED_PRECONDITION, plumb_trainer_gradient, trainer.get, i, &gradient),
        HasSubstr("is frozen by a rule of the recipe, so it has no gradient"))
        << weights[i].name;
  }
  EXPECT_NEAR(info.gradient_norm, std::sqrt(squares), 1e-5);
  for (const plumb_tensor& state : GetState(trainer.get, PLUMB_STATE_OPTIMIZER)) {
    EXPECT_THAT(std::string(state.name), HasSubstr(".head."));
  }
}

TEST_F(TrainerStateTest, StepFiguresCoverAllMicroBatches) {
  const ModelHandle model = Create(WideModel());
  const TrainerHandle trainer = Train(model.get, kThreeSteps);
  const char* const points[] = {"logits", "grad.logits", "param.head.weight"};
  std::vector<plumb_probe> told;
  const plumb_probe_fn tell = [](void* user, const plumb_probe* probe) -> int32_t {
    static_cast<std::vector<plumb_probe>*>(user)->push_back(*probe);
    return 0;
  };
  EXPECT_PLUMB_OK(plumb_trainer_probe(trainer.get, 2, points, 3, tell, &told, err));
  EXPECT_TRUE(GetProbes(trainer.get).empty()) << "before a step";
  Step(trainer.get, {});
  const std::vector<plumb_probe> figures = GetProbes(trainer.get);
  ASSERT_EQ(figures.size(), 4u);
  ASSERT_EQ(told.size(), 6u);  // logits and their gradient, each twice
  double squares = 0;
  for (const plumb_probe& probe : told) {
    if (probe.kind == PLUMB_PROBE_ACTIVATION) squares += probe.norm * probe.norm;
  }
  EXPECT_EQ(figures[0].kind, PLUMB_PROBE_ACTIVATION);
  EXPECT_STREQ(figures[0].name, "logits");
  EXPECT_EQ(figures[0].step, 1);
  EXPECT_EQ(figures[0].elements, 2 * 2 * 64 * kWideVocabulary);
  EXPECT_NEAR(figures[0].norm, std::sqrt(squares), 1e-9 * figures[0].norm);
  EXPECT_NEAR(figures[0].rms, figures[0].norm / std::sqrt(static_cast<double>(figures[0].elements)),
              1e-12);
  EXPECT_EQ(figures[1].kind, PLUMB_PROBE_GRADIENT);
  EXPECT_EQ(figures[2].kind, PLUMB_PROBE_PARAMETER);
  EXPECT_EQ(figures[3].kind, PLUMB_PROBE_PARAMETER_GRADIENT);
  EXPECT_NEAR(figures[3].norm, told.back().norm, 1e-9) << "of the step's loss";
  // Without a callback the statistics are the same. A step that is not probed has none.
  const ModelHandle other = Create(WideModel());
  const TrainerHandle quiet = Train(other.get, kThreeSteps);
  EXPECT_PLUMB_OK(plumb_trainer_probe(quiet.get, 3, points, 3, nullptr, nullptr, err));
  Step(quiet.get, {});
  const std::vector<plumb_probe> same = GetProbes(quiet.get);
  ASSERT_EQ(same.size(), figures.size());
  for (size_t i = 0; i < same.size(); ++i) EXPECT_EQ(same[i].norm, figures[i].norm);
  Step(quiet.get, {});
  EXPECT_TRUE(GetProbes(quiet.get).empty());
}

TEST_F(TrainerStateTest, ProfileHasTheTimeOfSteps) {
  const ModelHandle model = Create(WideModel()), plain = Create(WideModel());
  const TrainerHandle trainer = Train(model.get, kThreeSteps),
                      other = Train(plain.get, kThreeSteps);
  std::vector<plumb_profile_row> rows(99);
  EXPECT_EQ(plumb_trainer_profile_rows(trainer.get, rows.data(), 99), 0);
  EXPECT_PLUMB_OK(plumb_trainer_profile(trainer.get, 1, err));
  for (int i = 0; i < 3; ++i) Step(trainer.get, {});
  EXPECT_PLUMB_OK(plumb_trainer_profile(trainer.get, 0, err));
  Step(trainer.get, {});
  EXPECT_EQ(plumb_trainer_profile_rows(trainer.get, rows.data(), 99), -1) << "no struct_size";
  rows[0].struct_size = sizeof(plumb_profile_row);
  const int64_t count = plumb_trainer_profile_rows(trainer.get, rows.data(), 99);
  ASSERT_GT(count, 3);
  ASSERT_LT(count, 99);
  // An array that is too small, of structs of an older version, gets the first rows.
  struct {
    uint32_t struct_size;
    int32_t in_graph;
    const char* name;
  } old[3] = {{sizeof(old[0]), 0, nullptr}, {}, {0, 0, "untouched"}};
  EXPECT_EQ(plumb_trainer_profile_rows(trainer.get, reinterpret_cast<plumb_profile_row*>(old), 2),
            count);
  EXPECT_STREQ(old[0].name, "step");
  EXPECT_EQ(old[1].in_graph, 1);
  EXPECT_STREQ(old[2].name, "untouched");
  EXPECT_EQ(plumb_trainer_profile_rows(trainer.get, rows.data(), 99), count);
  EXPECT_STREQ(rows[0].name, "step");
  EXPECT_EQ(rows[0].runs, 3);
  const double seconds = rows[0].seconds;
  double sum = 0, flops = 0;
  for (size_t i = 1; i < static_cast<size_t>(count); ++i) {
    sum += rows[i].seconds;
    if (rows[i].in_graph == 1) flops += rows[i].flops;
  }
  EXPECT_STREQ(rows[static_cast<size_t>(count) - 1].name, "other");
  EXPECT_GT(flops, 0);
  EXPECT_NEAR(sum, seconds, 1e-6 * seconds);
  for (int i = 0; i < 4; ++i) Step(other.get, {});
  EXPECT_EQ(Saved(trainer.get), Saved(other.get));
  // A new profile starts at zero.
  EXPECT_PLUMB_OK(plumb_trainer_profile(trainer.get, 1, err));
  EXPECT_GE(plumb_trainer_profile_rows(trainer.get, rows.data(), 99), 1);
  EXPECT_EQ(rows[0].runs, 0);
}

TEST_F(TrainerStateTest, ModelTextIsSelfContained) {
  const ModelHandle model = Create(TinyModel().Text());
  const std::string whole = GetText(plumb_model_text, model.get);
  EXPECT_THAT(whole, HasSubstr("each: \"x = x + f(norm(x))\""));  // the rule of the placement "pre"
  EXPECT_EQ(GetText(plumb_model_text, Create(whole).get), whole);
  EXPECT_THAT(GetText(plumb_model_norms, model.get), StartsWith("{\"rms_norm\":\""));
}

}  // namespace
}  // namespace plumb
