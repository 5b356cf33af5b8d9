#include "runtime/session/train_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/spec/model_spec.h"
#include "tests/api/evaluate.h"
#include "tests/api/test_models.h"
#include "tests/session/test_datasets.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

std::string StudyModel(const std::string& placement) {
  return *ReadFile(absl::StrCat(PLUMB_SOURCE_DIR, "/examples/why_normalise/", placement, ".pbtxt"));
}

// Wide enough that ops share their work between threads.
TinyModel WideModel() {
  TinyModel model;
  model.placement = "double";
  model.norm = "layer_norm";
  model.n_head = model.n_kv_head = 4;
  model.d_model = 128;
  model.d_ff = 512;
  model.context_length = 64;
  model.vocab_size = 26;
  return model;
}

class TrainSessionTest : public ::testing::Test {
 protected:
  std::unique_ptr<TrainSession> Make(const ModelContext& context, const Dataset& data,
                                     const TrainSpec& spec, int threads = 1) {
    auto session = TrainSession::Create(&context, &data, spec, threads);
    if (!session.ok()) {
      ADD_FAILURE() << session.status();
      return nullptr;
    }
    return *std::move(session);
  }

  // Losses of the first steps, then the weights: what must be equal bit for bit.
  std::vector<double> Trace(const ModelContext& context, const Dataset& data, const TrainSpec& spec,
                            int steps, int threads) {
    const auto session = Make(context, data, spec, threads);
    std::vector<double> trace;
    for (int i = 0; i < steps; ++i) {
      const auto step = session->Step();
      EXPECT_TRUE(step.ok()) << step.status();
      trace.push_back(step->loss);
      trace.push_back(step->grad_norm);
    }
    const ParameterStore& parameters = session->parameters();
    trace.insert(trace.end(), parameters.data(), parameters.data() + parameters.layout().size);
    return trace;
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
};

TEST_F(TrainSessionTest, TheSameSeedGivesTheSameBitsForAnyNumberOfThreads) {
  const auto context = MakeContext(runtime_.get(), StudyModel("pre"));
  const Dataset data = Documents(50, 2, 12);
  TrainSpec spec;
  spec.learning_rate = 0.01;
  const std::vector<double> expected = Trace(*context, data, spec, 20, 1);
  for (int threads : {1, 2, 4}) EXPECT_EQ(Trace(*context, data, spec, 20, threads), expected);
  spec.seed = 2;
  const std::vector<double> other = Trace(*context, data, spec, 20, 1);
  EXPECT_NE(other[0], expected[0]);
  EXPECT_LT(expected[38], expected[0]) << "the loss should fall";
}

TEST_F(TrainSessionTest, AWideModelTrainsToTheSameBitsForAnyNumberOfThreads) {
  const auto context = MakeContext(runtime_.get(), WideModel().Text());
  const Dataset data = TextOf(5000, 26);
  TrainSpec spec;
  spec.batch_size = 8;
  const std::vector<double> expected = Trace(*context, data, spec, 3, 1);
  for (int threads : {1, 2, 4}) EXPECT_EQ(Trace(*context, data, spec, 3, threads), expected);
}

TEST_F(TrainSessionTest, AStepReportsItsScheduleTokensAndNumber) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const Dataset data = TextOf(100, 5);
  TrainSpec spec;
  spec.batch_size = 3;
  spec.gradient_accumulation_steps = 2;
  spec.learning_rate = 0.5;
  spec.warmup_steps = 2;
  const auto session = Make(*context, data, spec);
  EXPECT_EQ(session->step(), 0);
  const StepResult first = *session->Step(), second = *session->Step();
  EXPECT_EQ(first.step, 1);
  EXPECT_EQ(first.learning_rate, 0.25);
  EXPECT_EQ(first.tokens, 2 * 3 * 8);
  EXPECT_EQ(second.step, 2);
  EXPECT_EQ(second.learning_rate, 0.5);
  EXPECT_EQ(session->step(), 2);
}

TEST_F(TrainSessionTest, AccumulatedGradientsAreThoseOfTheWholeBatch) {
  TinyModel model;
  model.vocab_size = 6;
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = Documents(64, 5, 5);
  TrainSpec whole;
  whole.batch_size = 8;
  whole.eps = 1e-3;  // a gradient's noise around zero must not count as much as the gradient
  TrainSpec parts = whole;
  parts.batch_size = 4;
  parts.gradient_accumulation_steps = 2;
  const auto a = Make(*context, data, whole), b = Make(*context, data, parts);
  for (int i = 0; i < 5; ++i) {
    const StepResult x = *a->Step(), y = *b->Step();
    EXPECT_NEAR(x.loss, y.loss, 1e-6 * x.loss);
    EXPECT_NEAR(x.grad_norm, y.grad_norm, 1e-5 * x.grad_norm);
    EXPECT_EQ(x.tokens, y.tokens);
  }
  for (int64_t i = 0; i < a->parameters().layout().size; ++i) {
    ASSERT_NEAR(a->parameters().data()[i], b->parameters().data()[i], 1e-6);
  }
}

// Documents of five letters, in order: the tokens that RunBatch needs to give a step's gradient.
Tokens StepTokens(const Dataset& data, int64_t step, int64_t batch) {
  const int32_t mark = *data.tokenizer().end_token();
  Tokens tokens;
  for (int64_t i = step * batch; i < (step + 1) * batch; ++i) {
    const auto document = data.document(Split::kTrain, i);
    tokens.push_back({mark});
    tokens.back().insert(tokens.back().end(), document.begin(), document.end());
    tokens.back().push_back(mark);
  }
  return tokens;
}

struct Optimizer {
  double learning_rate, beta1, beta2, eps, weight_decay, grad_clip;
};

// Loshchilov & Hutter, algorithm 2, one tensor of numbers at a time.
void NaiveAdamW(const Optimizer& o, int step, const std::vector<double>& decay,
                std::vector<double> gradient, std::vector<double>* p, std::vector<double>* m,
                std::vector<double>* v) {
  double norm = 0;
  for (double g : gradient) norm += g * g;
  norm = std::sqrt(norm);
  if (o.grad_clip > 0 && norm > o.grad_clip) {
    for (double& g : gradient) g *= o.grad_clip / norm;
  }
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i];
    (*m)[i] = o.beta1 * (*m)[i] + (1 - o.beta1) * g;
    (*v)[i] = o.beta2 * (*v)[i] + (1 - o.beta2) * g * g;
    const double m_hat = (*m)[i] / (1 - std::pow(o.beta1, step));
    const double v_hat = (*v)[i] / (1 - std::pow(o.beta2, step));
    (*p)[i] -= o.learning_rate * (m_hat / (std::sqrt(v_hat) + o.eps) + decay[i] * (*p)[i]);
  }
}

TEST_F(TrainSessionTest, ThreeStepsAreThoseOfANaiveAdamW) {
  TinyModel model;
  model.vocab_size = 6;
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = Documents(64, 5, 5);
  TrainSpec spec;
  spec.batch_size = 4;
  spec.keep_order = true;
  spec.learning_rate = 0.05;
  spec.beta1 = 0.8;
  spec.beta2 = 0.9;
  spec.weight_decay = 0.3;
  for (double clip : {0.0, 0.1}) {
    spec.grad_clip = clip;
    // Large, so that clipping shows: Adam alone does not see a gradient's scale.
    spec.eps = 0.05;
    const Optimizer optimizer{spec.learning_rate, spec.beta1, spec.beta2, spec.eps, 0.3, clip};
    const auto session = Make(*context, data, spec);
    const ParameterLayout& layout = session->parameters().layout();
    const size_t size = static_cast<size_t>(layout.size);
    std::vector<double> p(session->parameters().data(), session->parameters().data() + size);
    std::vector<double> m(size, 0), v(size, 0), decay(size, 0);
    for (size_t i = 0; i < layout.entries.size(); ++i) {
      if (!context->parameters[i].is_matrix()) continue;
      std::fill(decay.begin() + layout.entries[i].begin, decay.begin() + layout.entries[i].end,
                0.3);
    }
    for (int step = 1; step <= 3; ++step) {
      const auto batch = RunBatch(*context, session->parameters(), StepTokens(data, step - 1, 4),
                                  /*with_gradients=*/true, 1);
      ASSERT_TRUE(batch.ok()) << batch.status();
      const std::vector<double> gradient(batch->gradients.begin(), batch->gradients.end());
      NaiveAdamW(optimizer, step, decay, gradient, &p, &m, &v);
      const auto result = session->Step();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_NEAR(result->loss, batch->loss, 1e-6);
      double square = 0;
      for (double g : gradient) square += g * g;
      EXPECT_NEAR(result->grad_norm, std::sqrt(square), 1e-5);
      EXPECT_GT(result->grad_norm, 0.1) << "clipping would not show";
    }
    for (size_t i = 0; i < size; ++i) {
      ASSERT_NEAR(session->parameters().data()[i], p[i], 2e-6) << i << " clip " << clip;
      ASSERT_NEAR(session->first_moments()[i], m[i], 1e-6);
      ASSERT_NEAR(session->second_moments()[i], v[i], 1e-6);
    }
  }
}

// Two steps that differ in the decay alone differ by learning_rate * decay * weight.
TEST_F(TrainSessionTest, WeightDecayIsOnMatricesOrOnEverything) {
  TinyModel model;
  model.placement = "mine";
  model.norm = "layer_norm";
  model.vocab_size = 6;
  model.more = R"pbtxt(
    attention { bias: true }
    placement {
      name: "mine"
      learned { name: "asks" init: 0.5 weight_decay: true }
      learned { name: "does_not" init: 0.5 per_channel: true }
      each: "x = x + asks * f(does_not * norm(x))"
    })pbtxt";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = Documents(64, 5, 5);
  TrainSpec spec;
  spec.learning_rate = 0.125;
  const auto step = [&](double decay, bool everything) {
    spec.weight_decay = decay;
    spec.decay_everything = everything;
    auto session = Make(*context, data, spec);
    EXPECT_TRUE(session->Step().ok());
    return session;
  };
  ParameterStore start(context->parameters, context->states);
  ASSERT_TRUE(
      DrawParameters(context->parameters, context->states, spec.seed, /*threads=*/1, start).ok());
  const auto none = step(0, false), matrices = step(0.5, false), all = step(0.5, true);
  const auto expect_decay = [&](const TrainSession& session, const ParameterLayout::Entry& entry,
                                double decay) {
    for (int64_t i = entry.begin; i < entry.end; ++i) {
      const double moved = static_cast<double>(none->parameters().data()[i]) -
                           static_cast<double>(session.parameters().data()[i]);
      ASSERT_NEAR(moved, 0.125 * decay * static_cast<double>(start.data()[i]), 1e-6) << entry.name;
    }
  };
  int matrix_count = 0;
  for (size_t i = 0; i < context->parameters.size(); ++i) {
    const ParameterSpec& parameter = context->parameters[i];
    const ParameterLayout::Entry& entry = start.layout().entries[i];
    const bool decays =
        parameter.shape.rank() == 2 || parameter.name.find(".asks") != std::string::npos;
    matrix_count += decays ? 1 : 0;
    expect_decay(*matrices, entry, decays ? 0.5 : 0);
    expect_decay(*all, entry, 0.5);
  }
  EXPECT_EQ(matrix_count, 3 + 2 * 6 + 2 * 2);
}

TEST_F(TrainSessionTest, AParametersOwnScaleIsOnItsLearningRate) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const auto slow = MakeContext(runtime_.get(), TinyModel().Text());
  for (ParameterSpec& parameter : slow->parameters) {
    if (parameter.name == "end.norm.weight") parameter.lr_scale = 0.25;
  }
  const Dataset data = TextOf(100, 5);
  const auto a = Make(*context, data, TrainSpec()), b = Make(*slow, data, TrainSpec());
  ASSERT_TRUE(a->Step().ok());
  ASSERT_TRUE(b->Step().ok());
  for (const ParameterLayout::Entry& entry : a->parameters().layout().entries) {
    for (int64_t i = entry.begin; i < entry.end; ++i) {
      const float x = a->parameters().data()[i], y = b->parameters().data()[i];
      if (entry.name != "end.norm.weight") {
        ASSERT_EQ(x, y) << entry.name;
      } else {
        ASSERT_NEAR(y - 1, 0.25f * (x - 1), 1e-6f);
      }
    }
  }
}

TEST_F(TrainSessionTest, DivergenceNamesATensorAndLeavesTheWeightsAlone) {
  TinyModel model;
  model.norm = "layer_norm";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = TextOf(100, 5);
  TrainSpec spec;
  spec.learning_rate = 1e30;
  const auto session = Make(*context, data, spec);
  absl::Status status;
  std::vector<float> before;
  for (int i = 0; i < 5 && status.ok(); ++i) {
    const ParameterStore& store = session->parameters();
    before.assign(store.data(), store.data() + store.layout().size);
    status = session->Step().status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("diverged at step 2: the loss is "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("not finite is layers.0."));
  EXPECT_EQ(session->step(), 1);
  EXPECT_EQ(std::memcmp(before.data(), session->parameters().data(), before.size() * sizeof(float)),
            0);
  // And it stays so.
  EXPECT_EQ(session->Step().status().code(), absl::StatusCode::kAborted);
}

TEST_F(TrainSessionTest, AWeightThatIsNotFiniteIsNamed) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const Dataset data = TextOf(100, 5);
  TrainSpec spec;
  spec.gradient_accumulation_steps = 2;
  const auto session = Make(*context, data, spec);
  for (const ParameterLayout::Entry& entry : session->parameters().layout().entries) {
    if (entry.name == "layers.1.mlp.down.weight") {
      session->parameters().data()[entry.begin] = std::nanf("");
    }
  }
  EXPECT_THAT(std::string(session->Step().status().message()),
              HasSubstr("layers.1.mlp.down.weight"));
}

TEST_F(TrainSessionTest, ResumesFromItsBuffersBitForBit) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const Dataset data = TextOf(300, 5);
  TrainSpec spec;
  spec.batch_size = 2;
  const std::vector<double> expected = Trace(*context, data, spec, 8, 1);
  const auto first = Make(*context, data, spec);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(first->Step().ok());
  const auto second = Make(*context, data, spec);
  const size_t bytes = static_cast<size_t>(first->parameters().layout().size) * sizeof(float);
  std::memcpy(second->parameters().data(), first->parameters().data(), bytes);
  std::memcpy(second->optimizer().first_moments(), first->first_moments(), bytes);
  std::memcpy(second->optimizer().second_moments(), first->second_moments(), bytes);
  second->ResumeAt(first->step());
  for (int i = 5; i < 8; ++i) EXPECT_EQ(second->Step()->loss, expected[static_cast<size_t>(2 * i)]);
  const ParameterStore& store = second->parameters();
  EXPECT_EQ(std::vector<double>(store.data(), store.data() + store.layout().size),
            std::vector<double>(expected.begin() + 16, expected.end()));
}

TEST_F(TrainSessionTest, MistakesInTheSpecAreErrors) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const Dataset data = TextOf(8, 5);  // no window of 8 + 1
  const auto session = TrainSession::Create(context.get(), &data, TrainSpec(), 1);
  EXPECT_EQ(session.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace plumb
