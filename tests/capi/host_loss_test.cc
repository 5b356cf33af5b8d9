// SPDX-License-Identifier: Apache-2.0
// Tests of losses that the host computes (plumb_loss_fn).
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/ranks/host_communicator.h"
#include "runtime/ranks/local_ranks.h"
#include "tests/capi/capi_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;
using Loss = std::function<int32_t(plumb_loss*)>;

int32_t CallLoss(void* user, plumb_loss* loss) { return (*static_cast<Loss*>(user))(loss); }

// Returns the log-probabilities of a row of logits.
std::vector<double> LogSoftmax(const float* logits, int64_t n) {
  std::vector<double> row(logits, logits + n);
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const double logit : row) sum += std::exp(logit - top);
  for (double& logit : row) logit -= top + std::log(sum);
  return row;
}

// Adds weight(position in the batch) times the cross-entropy of each target.
int32_t AddCrossEntropy(plumb_loss* loss, const std::function<double(int64_t)>& weight) {
  for (int64_t at = 0; at < loss->rows * loss->seq; ++at) {
    if (loss->targets[at] < 0) continue;
    const std::vector<double> log_p =
        LogSoftmax(loss->logits + at * loss->vocab_size, loss->vocab_size);
    const auto target = static_cast<size_t>(loss->targets[at]);
    loss->loss -= weight(at) * log_p[target];
    for (size_t j = 0; j < log_p.size(); ++j) {
      const double derivative = std::exp(log_p[j]) - (j == target ? 1 : 0);
      loss->gradient[at * loss->vocab_size + static_cast<int64_t>(j)] =
          static_cast<float>(weight(at) * derivative);
    }
  }
  return 0;
}
Loss MeanOver(double targets) {
  return
      [=](plumb_loss* loss) { return AddCrossEntropy(loss, [=](int64_t) { return 1 / targets; }); };
}

struct Ids {
  std::vector<int32_t> inputs, targets;
  explicit Ids(int64_t n) : inputs(static_cast<size_t>(n)), targets(inputs.size()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = static_cast<int32_t>(i * i * 7 % 5);
      targets[i] = i % 4 == 3 ? -1 : static_cast<int32_t>((i * 3 + 1) % 5);
    }
  }
  int64_t size() const { return static_cast<int64_t>(inputs.size()); }
};

class HostLossTest : public CapiTest {
 protected:
  struct Trained {
    std::vector<plumb_step_info> steps;
    std::vector<float> weights;
  };

  // Trains a new model for four steps; without `loss` by plumb's own.
  Trained Train(const std::string& model_text, const std::string& recipe, Loss loss) {
    const ModelHandle model = Create(model_text);
    plumb_trainer_options options = Recipe(recipe.c_str());
    options.draw_weights = 1;
    if (loss != nullptr) options.loss = CallLoss;
    options.loss_user = &loss;
    TrainerHandle trainer;
    EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
    Trained trained;
    if (trainer.get == nullptr) return trained;
    const Ids ids(plumb_trainer_step_tokens(trainer.get));
    for (int i = 0; i < 4; ++i) {
      auto info = MakeStruct<plumb_step_info>();
      EXPECT_PLUMB_OK(plumb_trainer_step(trainer.get, ids.inputs.data(), ids.targets.data(),
                                         ids.size(), &info, err));
      trained.steps.push_back(info);
    }
    for (int64_t i = 0; i < plumb_model_tensor_count(model.get); ++i) {
      plumb_tensor tensor = PLUMB_TENSOR_INIT;
      EXPECT_PLUMB_OK(plumb_trainer_state(trainer.get, PLUMB_STATE_MODEL, i, &tensor, err));
      std::vector<float> values(static_cast<size_t>(tensor.shape[0] * tensor.shape[1] *
                                                    tensor.shape[2] * tensor.shape[3]));
      EXPECT_PLUMB_OK(plumb_trainer_read_state(trainer.get, PLUMB_STATE_MODEL, i, 0,
                                               static_cast<int64_t>(values.size()), values.data(),
                                               err));
      trained.weights.insert(trained.weights.end(), values.begin(), values.end());
    }
    return trained;
  }
  static void ExpectNear(const Trained& trained, const Trained& expected, double tolerance) {
    ASSERT_EQ(trained.steps.size(), expected.steps.size());
    for (size_t i = 0; i < trained.steps.size(); ++i) {
      EXPECT_EQ(trained.steps[i].tokens, expected.steps[i].tokens);
      EXPECT_NEAR(trained.steps[i].loss, expected.steps[i].loss, tolerance);
      EXPECT_NEAR(trained.steps[i].gradient_norm, expected.steps[i].gradient_norm, tolerance);
    }
    EXPECT_LE(RelativeError(trained.weights, expected.weights), tolerance);
  }

  ScratchDir scratch_;
};

// AdamW divides by the root of the second moment, so a gradient near 0 makes rounding errors large:
// eps bounds that.
constexpr char kSteps[] =
    "max_steps: 9 batch_size: 4 gradient_accumulation_steps: 2 learning_rate: 0.01 seed: 3 "
    "eps: 1e-3 ";

TEST_F(HostLossTest, CrossEntropyTrainsToTheSameWeights) {
  TinyModel capped;
  capped.placement = "capped";
  capped.more =
      "placement { name: \"capped\" extends: \"pre\" "
      "inside { point: \"head.logits\" rule: \"logits = 2 * tanh(logits / 2)\" } }";
  TinyModel experts;  // balance losses are averaged over the calls, which have equally many targets
  experts.block =
      "sublayer { attention {} } sublayer { name: \"moe\" experts { n_expert: \"4\" top_k: \"2\" "
      "router: SOFTMAX balance_loss: \"0.1\" } } ";
  TinyModel bidirectional;
  bidirectional.more = "bidirectional: true";
  const std::string plain = TinyModel().Text();
  struct Case {
    std::string model, recipe;
    double targets, tolerance;
  };
  for (const Case& c : {Case{plain, "", 48, 2e-6},
                        {plain, "units: 8", 48, 2e-6},
                        {plain, "recompute: BLOCK grad_clip: 0.1", 48, 2e-6},
                        {plain, "optimizer: MUON", 48, 1e-5},
                        {plain, "dtype: BF16", 48, 2e-2},
                        {capped.Text(), "units: 4", 48, 2e-6},
                        {experts.Text(), "", 48, 2e-6},
                        {experts.Text(), "units: 8", 48, 2e-6},
                        {bidirectional.Text(), "masked_tokens {}", 8, 2e-6}}) {
    SCOPED_TRACE(absl::StrCat(c.recipe, "\n", c.model));
    const std::string recipe = kSteps + c.recipe;
    const Trained expected = Train(c.model, recipe, nullptr);
    ASSERT_EQ(expected.steps.size(), 4u);
    ASSERT_EQ(expected.steps[0].tokens, c.targets);
    ExpectNear(Train(c.model, recipe, MeanOver(c.targets)), expected, c.tolerance);
  }
}

TEST_F(HostLossTest, CallsNameTheirRows) {
  std::vector<std::vector<int64_t>> calls;
  const Loss record = [&](plumb_loss* loss) {
    const Ids ids(64);
    const int64_t begin = (loss->micro_batch * 4 + loss->first_row) * 8;
    EXPECT_TRUE(std::equal(loss->inputs, loss->inputs + 8, ids.inputs.begin() + begin));
    EXPECT_TRUE(std::equal(loss->targets, loss->targets + 8, ids.targets.begin() + begin));
    EXPECT_EQ(loss->struct_size, sizeof(plumb_loss));
    EXPECT_EQ(loss->vocab_size, 5);
    EXPECT_EQ(loss->rows * loss->seq, 2 * 8);
    calls.push_back({loss->step, loss->micro_batch, loss->first_row});
    return MeanOver(48)(loss);
  };
  Train(TinyModel().Text(), absl::StrCat(kSteps, "units: 4"), record);
  ASSERT_EQ(calls.size(), 16u);
  EXPECT_EQ(calls[0], (std::vector<int64_t>{1, 0, 0}));
  EXPECT_EQ(calls[1], (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(calls[6], (std::vector<int64_t>{2, 1, 0}));
}

TEST_F(HostLossTest, ZeroWeightsEqualAbsentTargets) {
  const std::string text = TinyModel().Text();
  const std::string recipe = absl::StrCat(kSteps, "units: 2");
  const Trained expected = Train(text, recipe, nullptr);
  // The same step, with a target everywhere and the weight 0 where there was none.
  const Loss weights = [](plumb_loss* loss) {
    std::vector<int32_t> targets(loss->targets, loss->targets + loss->rows * loss->seq);
    std::replace(targets.begin(), targets.end(), -1, 0);
    const int32_t* const given = std::exchange(loss->targets, targets.data());
    return AddCrossEntropy(loss, [=](int64_t at) { return given[at] < 0 ? 0.0 : 1 / 48.0; });
  };
  ExpectNear(Train(text, recipe, weights), expected, 2e-6);
}

// The loss of a distillation: the Kullback-Leibler divergence from a teacher, by plumb_evaluator.
class Teacher {
 public:
  Teacher(plumb_model* model, int64_t rows, double positions) : positions_(positions) {
    auto options = MakeStruct<plumb_evaluator_options>();
    options.rows = rows;
    options.logits = 1;
    EXPECT_PLUMB_OK(plumb_evaluator_create(model, &options, &evaluator_.get, err));
  }
  int32_t operator()(plumb_loss* loss) const {
    EXPECT_PLUMB_OK(plumb_evaluator_run(evaluator_.get, loss->inputs, nullptr,
                                        loss->rows * loss->seq, nullptr, err));
    const float* const teacher = plumb_evaluator_logits(evaluator_.get);
    const int64_t n = loss->vocab_size;
    for (int64_t at = 0; at < loss->rows * loss->seq; ++at) {
      const std::vector<double> p = LogSoftmax(teacher + at * n, n);
      const std::vector<double> q = LogSoftmax(loss->logits + at * n, n);
      for (size_t j = 0; j < p.size(); ++j) {
        loss->loss += std::exp(p[j]) * (p[j] - q[j]) / positions_;
        loss->gradient[at * n + static_cast<int64_t>(j)] =
            static_cast<float>((std::exp(q[j]) - std::exp(p[j])) / positions_);
      }
    }
    return 0;
  }

 private:
  EvaluatorHandle evaluator_;
  const double positions_;
};

TEST_F(HostLossTest, GradientsEqualDifferences) {
  const ModelHandle teacher = CreateWithWeights(7), student = CreateWithWeights(3);
  constexpr int64_t kPositions = 2 * 2 * 8;
  auto held = std::make_shared<Teacher>(teacher.get, 2, kPositions);
  Loss distill = [held](plumb_loss* loss) { return (*held)(loss); };
  plumb_trainer_options options = Recipe(
      "max_steps: 1000 batch_size: 2 gradient_accumulation_steps: 2 learning_rate: 0 "
      "weight_decay: 0");
  options.loss = CallLoss;
  options.loss_user = &distill;
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(student.get, &options, &trainer.get, err));
  Ids ids(kPositions);
  std::fill(ids.targets.begin(), ids.targets.end(), -1);  // the loss needs none
  // Returns the loss, and the gradient by an element of a tensor.
  const auto step = [&](int64_t tensor, int64_t element) {
    auto info = MakeStruct<plumb_step_info>();
    EXPECT_PLUMB_OK(plumb_trainer_step(trainer.get, ids.inputs.data(), ids.targets.data(),
                                       ids.size(), &info, err));
    EXPECT_EQ(info.tokens, 0);
    plumb_tensor gradient = PLUMB_TENSOR_INIT;
    EXPECT_PLUMB_OK(plumb_trainer_gradient(trainer.get, tensor, &gradient, err));
    return std::pair<double, double>(info.loss, gradient.data[element]);
  };
  for (int64_t i = 0; i < plumb_model_tensor_count(student.get); ++i) {
    plumb_tensor tensor = PLUMB_TENSOR_INIT;
    EXPECT_PLUMB_OK(plumb_model_tensor(student.get, i, &tensor, err));
    for (const int64_t e : {int64_t{0}, tensor.shape[0] * tensor.shape[1] - 1}) {
      const double gradient = step(i, e).second;
      const float at = tensor.data[e];
      constexpr float kOffset = 5e-3f;
      tensor.data[e] = at + kOffset;
      const double above = step(i, e).first;
      tensor.data[e] = at - kOffset;
      const double below = step(i, e).first;
      tensor.data[e] = at;
      EXPECT_NEAR(gradient, (above - below) / (2 * static_cast<double>(kOffset)), 1e-4)
          << tensor.name << " " << e;
    }
  }
}

TEST_F(HostLossTest, DistillsIntoASmallerModel) {
  const ModelHandle teacher = CreateWithWeights(7);
  TinyModel small;
  small.n_layer = 1;
  auto held = std::make_shared<Teacher>(teacher.get, 4, 64);
  const ModelHandle student = Create(small.Text());
  Loss distill = [held](plumb_loss* loss) { return (*held)(loss); };
  plumb_trainer_options options = Recipe(
      "max_steps: 200 batch_size: 4 gradient_accumulation_steps: 2 learning_rate: 0.03 seed: 3");
  options.draw_weights = 1;
  options.loss = CallLoss;
  options.loss_user = &distill;
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(student.get, &options, &trainer.get, err));
  const Ids ids(64);
  double first = 0, last = 0;
  for (int i = 0; i < 200; ++i) {
    auto info = MakeStruct<plumb_step_info>();
    EXPECT_PLUMB_OK(
        plumb_trainer_step(trainer.get, ids.inputs.data(), ids.targets.data(), 64, &info, err));
    (i == 0 ? first : last) = info.loss;
  }
  EXPECT_GT(first, 0);
  EXPECT_LT(last, first / 20);
}

TEST_F(HostLossTest, RefusesFieldsOfTheLoss) {
  const ModelHandle model = CreateWithWeights();
  TrainerHandle trainer;
  for (const std::string field : {"label_smoothing", "z_loss"}) {
    const std::string recipe = absl::StrCat(field, ": 0.1");
    plumb_trainer_options options = Recipe(recipe.c_str());
    options.loss = CallLoss;
    EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_trainer_create, model.get, &options,
                      &trainer.get),
                HasSubstr(field + " changes plumb's loss"));
  }
}

TEST_F(HostLossTest, PlanCountsLogitsAndTheirGradient) {
  TinyModel wide;
  wide.vocab_size = 5000;
  const ModelHandle model = Create(wide.Text());
  plumb_trainer_options options = Recipe("batch_size: 4");
  auto own = MakeStruct<plumb_trainer_memory>(), of_host = own, made = own;
  EXPECT_PLUMB_OK(plumb_trainer_plan(model.get, &options, &own, err));
  Loss loss = MeanOver(24);
  options.loss = CallLoss;
  options.loss_user = &loss;
  options.draw_weights = 1;
  EXPECT_PLUMB_OK(plumb_trainer_plan(model.get, &options, &of_host, err));
  constexpr int64_t kLogitBytes = int64_t{4} * 8 * 5000 * 4;  // the loss of plumb writes in place
  EXPECT_GE(of_host.workspace, own.workspace + kLogitBytes * 9 / 10);
  EXPECT_LE(of_host.workspace, own.workspace + kLogitBytes * 21 / 10);
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
  EXPECT_PLUMB_OK(plumb_trainer_get_memory(trainer.get, &made, err));
  EXPECT_EQ(made.total, of_host.total);
}

TEST_F(HostLossTest, ErrorsLeaveTheTrainerUnchanged) {
  const ModelHandle model = CreateWithWeights();
  const std::vector<float> before = Weights(model.get);
  enum { kStop, kBadLoss, kBadGradient, kGood } kind = kStop;
  int calls = 0;
  Loss loss = [&](plumb_loss* given) {
    ++calls;
    EXPECT_EQ(plumb_trainer_set_steps(nullptr, 1, nullptr), PLUMB_STATUS_INVALID_ARGUMENT);
    MeanOver(6)(given);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    if (kind == kBadLoss) given->loss = std::numeric_limits<double>::infinity();
    if (kind == kBadGradient) given->gradient[3] = nan;
    return kind == kStop ? 1 : 0;
  };
  plumb_trainer_options options = Recipe("batch_size: 1");
  options.loss = CallLoss;
  options.loss_user = &loss;
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
  const Ids ids(8);
  const auto step = [&](plumb_error** error) {
    return plumb_trainer_step(trainer.get, ids.inputs.data(), ids.targets.data(), 8, nullptr,
                              error);
  };
  EXPECT_THAT(Fails(PLUMB_STATUS_CANCELLED, step), HasSubstr("the loss callback asked to stop"));
  kind = kBadLoss;
  EXPECT_THAT(Fails(PLUMB_STATUS_ABORTED, step), HasSubstr("the loss is inf"));
  kind = kBadGradient;
  calls = 0;
  EXPECT_THAT(Fails(PLUMB_STATUS_ABORTED, step), HasSubstr("op host_loss"));
  EXPECT_EQ(calls, 4);  // Fails calls twice, and each repeats the pass
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 0);
  EXPECT_EQ(Weights(model.get), before);
  kind = kGood;
  EXPECT_PLUMB_OK(step(err));
}

TEST_F(HostLossTest, NothingIsReadInTheMiddleOfAStep) {
  const ModelHandle model = CreateWithWeights();
  const ScratchDir scratch;
  TrainerHandle trainer;
  constexpr double kNoFloat = 16777217;  // 2^24 + 1
  int calls = 0;
  Loss loss = [&](plumb_loss* given) {
    ++calls;
    plumb_tensor tensor = PLUMB_TENSOR_INIT;
    float value = 0;
    EXPECT_EQ(plumb_trainer_save(trainer.get, scratch.File("trainer").c_str(), nullptr),
              PLUMB_STATUS_FAILED_PRECONDITION);
    EXPECT_EQ(plumb_trainer_gradient(trainer.get, 0, &tensor, nullptr),
              PLUMB_STATUS_FAILED_PRECONDITION);
    EXPECT_EQ(plumb_trainer_state(trainer.get, PLUMB_STATE_MODEL, 0, &tensor, nullptr),
              PLUMB_STATUS_FAILED_PRECONDITION);
    EXPECT_EQ(plumb_trainer_read_state(trainer.get, PLUMB_STATE_MODEL, 0, 0, 1, &value, nullptr),
              PLUMB_STATUS_FAILED_PRECONDITION);
    EXPECT_EQ(plumb_trainer_check(trainer.get, nullptr), PLUMB_STATUS_FAILED_PRECONDITION);
    EXPECT_EQ(plumb_trainer_probes(trainer.get, nullptr, 0), 0);
    given->loss = kNoFloat;
    return 0;
  };
  plumb_trainer_options options = Recipe("batch_size: 2 units: 2");
  options.loss = CallLoss;
  options.loss_user = &loss;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
  EXPECT_PLUMB_OK(plumb_trainer_probe(trainer.get, 1, nullptr, 0, nullptr, nullptr, err));
  const Ids ids(16);
  for (int i = 0; i < 2; ++i) {
    auto info = MakeStruct<plumb_step_info>();
    EXPECT_PLUMB_OK(
        plumb_trainer_step(trainer.get, ids.inputs.data(), ids.targets.data(), 16, &info, err));
    EXPECT_EQ(info.loss, 2 * kNoFloat) << "the sum of the losses, none of them rounded";
  }
  EXPECT_GE(calls, 4);
  EXPECT_GT(plumb_trainer_probes(trainer.get, nullptr, 0), 0);
  EXPECT_PLUMB_OK(plumb_trainer_check(trainer.get, err));
}

// Trains on `size` ranks; rank `without` has plumb's loss. Returns the losses of rank 0.
std::vector<double> TrainOnRanks(int size, int without, std::string* error) {
  std::vector<double> losses;
  const std::string text = TinyModel().Text();
  const std::string recipe = absl::StrCat(kSteps, "units: 4");
  for (const absl::Status& result : RunRanks(size, [&](Communicator* ranks) {
         const ForHost host(ranks);
         const int rank = ranks->rank();
         auto runtime_options = MakeStruct<plumb_runtime_options>();
         runtime_options.flags = PLUMB_RUNTIME_NO_ENVIRONMENT;
         runtime_options.threads = 1;
         RuntimeHandle runtime;
         SpecHandle spec;
         ModelHandle model;
         TrainerHandle trainer;
         EXPECT_PLUMB_OK(
             plumb_runtime_create(PLUMB_ABI_VERSION, &runtime_options, &runtime.get, err));
         EXPECT_PLUMB_OK(plumb_spec_from_text(text.c_str(), "model", &spec.get, err));
         EXPECT_PLUMB_OK(plumb_model_create(runtime.get, spec.get, &model.get, err));
         Loss loss = MeanOver(48);
         plumb_trainer_options options = Recipe(recipe.c_str());
         options.draw_weights = 1;
         options.communicator = host.get();
         if (rank != without) options.loss = CallLoss;
         options.loss_user = &loss;
         ErrorHandle failed;
         if (plumb_trainer_create(model.get, &options, &trainer.get, &failed.get) != PLUMB_OK) {
           if (rank == 0) *error = plumb_error_message(failed.get);
           return absl::OkStatus();
         }
         const Ids ids(plumb_trainer_step_tokens(trainer.get));
         for (int i = 0; i < 3; ++i) {
           auto info = MakeStruct<plumb_step_info>();
           EXPECT_PLUMB_OK(plumb_trainer_step(trainer.get, ids.inputs.data(), ids.targets.data(),
                                              ids.size(), &info, err));
           if (rank == 0) losses.push_back(info.loss);
         }
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(result.ok()) << result;
  }
  return losses;
}

TEST(HostLossRanksTest, RanksComputeTheLossesOfTheirUnits) {
  std::string error;
  const std::vector<double> one = TrainOnRanks(1, -1, &error), two = TrainOnRanks(2, -1, &error);
  EXPECT_EQ(error, "");
  ASSERT_EQ(one.size(), 3u);
  EXPECT_EQ(one, two);
}

TEST(HostLossRanksTest, RefusesRanksWithDifferentLosses) {
  std::string error;
  EXPECT_TRUE(TrainOnRanks(2, 1, &error).empty());
  EXPECT_THAT(error, HasSubstr("computation of the loss"));
}

}  // namespace
}  // namespace plumb
