// plumb.hpp on libplumb.so alone: what C gives, as C++ has it.
#include "plumb.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/capi/hpp_without_exceptions.h"

namespace {

using plumb::Code;
using plumb::Next;
using plumb::Span;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kModel[] =
    "n_layer: 1 n_head: 2 d_model: 8 context_length: 8 vocab_size: 5\n"
    "placement { name: \"rule\" each: \"x = x + f(norm(x))\" end: \"x = norm(x)\" }\n"
    "block { placement: \"rule\" norm: \"rms_norm\" }\n";

static_assert(!std::is_copy_constructible_v<plumb::Model>, "a handle has one owner");
static_assert(std::is_nothrow_move_constructible_v<plumb::Model>, "and moves");
static_assert(std::is_nothrow_copy_constructible_v<plumb::Error>, "as an exception must");

plumb::Runtime MakeRuntime(plumb::RuntimeOptions options = {}) {
  options.use_environment = false;
  options.threads = 2;
  return plumb::Runtime::Create(std::move(options)).value();
}

plumb::Model MakeModel(plumb::Runtime& runtime, std::uint64_t seed = 3) {
  plumb::Model model =
      plumb::Model::Create(runtime, plumb::Spec::FromText(kModel, "test").value()).value();
  model.Init(seed).value();
  return model;
}

plumb::Model MakeModel() {
  plumb::Runtime runtime = MakeRuntime();
  return MakeModel(runtime);
}

void Fill(std::int64_t step, Span<std::int32_t> inputs, Span<std::int32_t> targets) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = static_cast<std::int32_t>((i + static_cast<std::size_t>(step)) % 5);
    targets[i] = (inputs[i] + 1) % 5;
  }
}

std::vector<float> Weights(const plumb::Model& model) {
  std::vector<float> all;
  for (std::size_t i = 0; i < model.TensorCount(); ++i) {
    const plumb::TensorView<const float> tensor = model.Tensor(i).value();
    all.insert(all.end(), tensor.data.begin(), tensor.data.end());
  }
  return all;
}

TEST(HppTest, TheLibraryIsThatOfTheHeader) {
  EXPECT_EQ(plumb::AbiVersion(), PLUMB_ABI_VERSION);
  EXPECT_EQ(plumb::Version(), plumb_version());
}

TEST(HppTest, AnErrorHasItsPlace) {
  const auto spec = plumb::Spec::FromText("n_layer: 2\nn_hed: 2\n", "my.pbtxt");
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(spec.error().message(), StartsWith("my.pbtxt:2:"));
  EXPECT_EQ(spec.error().file(), "my.pbtxt");
  EXPECT_EQ(spec.error().line(), 2);
  EXPECT_GT(spec.error().column(), 0);
  try {
    spec.value();
    FAIL() << "value() of an error returned";
  } catch (const plumb::Error& thrown) {
    EXPECT_STREQ(thrown.what(), spec.error().what());
  }
  const auto none = plumb::Spec::FromFile("/not/there");
  EXPECT_EQ(none.error().code(), Code::kNotFound);
  EXPECT_EQ(none.error().line(), 0);
  EXPECT_EQ(none.error().file(), "");
}

TEST(HppTest, ASpecIsSetAndPrinted) {
  plumb::Spec spec = plumb::Spec::FromText(kModel).value();
  spec.Set("n_layer", 3).value();
  spec.Set("name", std::string(300, 'n')).value();  // longer than the first try
  spec.Set("tie_embeddings", true).value();
  const std::string text = spec.Text().value();
  EXPECT_THAT(text, HasSubstr("n_layer: 3"));
  EXPECT_THAT(text, HasSubstr("tie_embeddings: true"));
  EXPECT_THAT(text, HasSubstr(std::string(300, 'n')));
  EXPECT_EQ(text.find('\0'), std::string::npos);
  EXPECT_FALSE(spec.Set("n_layr", 3).ok());
}

TEST(HppTest, WhatWasMovedFromIsAnErrorAndNoCrash) {
  plumb::Model model = MakeModel();
  const plumb::Model other = std::move(model);
  EXPECT_EQ(other.Info().n_layer, 1);
  // NOLINTBEGIN(bugprone-use-after-move): it is what is tested
  EXPECT_EQ(model.Init(1).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(model.TensorCount(), 0u);
  EXPECT_FALSE(model.Tensor(0).ok());
  EXPECT_FALSE(plumb::Trainer::Create(model).ok());
  EXPECT_FALSE(plumb::Session::Create(model).ok());
  // NOLINTEND(bugprone-use-after-move)
}

// The handles of the runtime and the model are gone before the trainer and the session are used.
TEST(HppTest, TrainsAndSamplesByCallbacks) {
  plumb::Model model = MakeModel();
  plumb::Trainer trainer =
      plumb::Trainer::Create(model, {"max_steps: 30 batch_size: 2 learning_rate: 0.03", 4}).value();
  ASSERT_EQ(trainer.StepTokens(), 8u);
  std::vector<double> losses;
  plumb::Session watching = plumb::Session::Create(model).value();
  std::size_t sampled = 0;
  trainer
      .Run(Fill,
           [&](const plumb::StepInfo& info) {
             losses.push_back(info.loss);
             // Between two steps a session may run.
             watching.Truncate(0, 0).value();
             watching.Feed(0, {1}).value();
             watching.Generate(0, {2}, [&](std::int32_t) { ++sampled; }).value();
           })
      .value();
  ASSERT_EQ(losses.size(), 30u);
  EXPECT_EQ(trainer.Steps(), 30);
  EXPECT_EQ(sampled, 60u);
  EXPECT_LT(losses.back(), 0.5 * losses.front());

  plumb::Session session = plumb::Session::Create(model, {2, plumb::Weights::kF32}).value();
  { const plumb::Model gone = std::move(model); }
  EXPECT_TRUE(session.Logits(0).empty());
  session.Feed(0, {0, 1, 2}).value();
  session.Feed(1, {0, 1}).value();
  session.FeedEach({3, 2}).value();
  EXPECT_EQ(session.Logits(1).size(), 5u);
  EXPECT_EQ(session.Length(1), 3);
  EXPECT_EQ(session.Length(2), -1);
  // It has learned to count.
  std::vector<std::int32_t> counted;
  plumb::SampleOptions likeliest;
  likeliest.temperature = 0;
  likeliest.max_tokens = 4;
  const auto keep = [&](std::int32_t token) { counted.push_back(token); };
  session.Generate(0, likeliest, keep).value();
  EXPECT_THAT(counted, ElementsAreArray({4, 0, 1, 2}));
  counted.clear();
  session.Truncate(0, 2).value();
  EXPECT_TRUE(session.Logits(0).empty());
  session.Feed(0, {2}).value();
  session
      .Generate(0, likeliest,
                [&](std::int32_t token) {
                  counted.push_back(token);
                  return counted.size() == 2 ? Next::kStop : Next::kGoOn;
                })
      .value();
  EXPECT_THAT(counted, ElementsAreArray({3, 4}));
}

TEST(HppTest, OptionsReachTheSampler) {
  plumb::Model model = MakeModel();
  plumb::Session session = plumb::Session::Create(model, {1, plumb::Weights::kInt8}).value();
  const auto draw = [&](const plumb::SampleOptions& options) {
    std::vector<std::int32_t> tokens;
    session.Truncate(0, 0).value();
    session.Feed(0, {1}).value();
    session.Generate(0, options, [&](std::int32_t token) { tokens.push_back(token); }).value();
    return tokens;
  };
  plumb::SampleOptions options;
  options.seed = 5;
  const std::vector<std::int32_t> whole = draw(options);
  EXPECT_EQ(whole.size(), 8u);
  EXPECT_EQ(draw(options), whole);
  plumb::SampleOptions other = options;
  other.index = 1;
  EXPECT_NE(draw(other), whole);
  other = options;
  other.seed = 6;
  EXPECT_NE(draw(other), whole);
  other = options;
  other.drawn = 1;
  EXPECT_NE(draw(other), whole);
  other = options;
  other.vocabulary = 1;
  EXPECT_THAT(draw(other), ElementsAreArray(std::vector<std::int32_t>(8, 0)));
  plumb::SampleOptions greedy = options;
  greedy.temperature = 0;
  other = options;
  other.top_k = 1;
  EXPECT_EQ(draw(other), draw(greedy));
  other = options;
  other.top_p = 1e-9;
  EXPECT_EQ(draw(other), draw(greedy));
  other = options;
  other.temperature = -1;
  EXPECT_FALSE(session.Generate(0, other, [](std::int32_t) {}).ok());
}

TEST(HppTest, StepsOnGivenTokensHaveGradients) {
  plumb::Model model = MakeModel();
  plumb::Trainer trainer = plumb::Trainer::Create(model, {"batch_size: 1"}).value();
  EXPECT_EQ(trainer.Gradient(0).error().code(), Code::kFailedPrecondition);
  std::vector<std::int32_t> inputs(8), targets(8);
  Fill(0, inputs, targets);
  const std::vector<float> before = Weights(model);
  const plumb::StepInfo info = trainer.Step(inputs, targets).value();
  EXPECT_EQ(info.step, 1);
  EXPECT_EQ(info.tokens, 8);
  double squares = 0;
  for (std::size_t i = 0; i < model.TensorCount(); ++i) {
    const plumb::TensorView<const float> gradient = trainer.Gradient(i).value();
    EXPECT_EQ(gradient.name, model.Tensor(i).value().name);
    EXPECT_EQ(gradient.data.size(),
              static_cast<std::size_t>(gradient.shape[0] * gradient.shape[1]));
    for (const float g : gradient.data) squares += static_cast<double>(g) * static_cast<double>(g);
  }
  EXPECT_NEAR(squares, info.gradient_norm * info.gradient_norm, 1e-4 * squares);
  EXPECT_NE(Weights(model), before);
  // Either length may be the wrong one.
  targets.pop_back();
  EXPECT_THAT(trainer.Step(inputs, targets).error().message(), HasSubstr("not 7"));
  EXPECT_THAT(trainer.Step(targets, inputs).error().message(), HasSubstr("not 7"));
  EXPECT_EQ(trainer.Gradient(999).error().code(), Code::kOutOfRange);
}

TEST(HppTest, WeightsAreWrittenInPlaceSavedAndLoaded) {
  plumb::Runtime runtime = MakeRuntime();
  plumb::Model model = MakeModel(runtime);
  for (float& weight : model.Tensor(0).value().data) weight = 0.25f;
  const std::string file = testing::TempDir() + "/hpp_test.safetensors";
  model.Save(file).value();
  plumb::Model other = MakeModel(runtime, 4);
  EXPECT_NE(Weights(other), Weights(model));
  other.Load(file).value();
  EXPECT_EQ(Weights(other), Weights(model));
  EXPECT_EQ(other.Tensor(0).value().data[0], 0.25f);
  std::ifstream in(file, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  plumb::Model third = MakeModel(runtime, 5);
  third.LoadMemory(content.data(), content.size()).value();
  EXPECT_EQ(Weights(third), Weights(model));
  std::remove(file.c_str());
  EXPECT_EQ(third.Load(file).error().code(), Code::kNotFound);
}

TEST(HppTest, WeightsAreMappedAndEvaluated) {
  plumb::Runtime runtime = MakeRuntime();
  plumb::Model model = MakeModel(runtime);
  const std::string file = testing::TempDir() + "/hpp_test_map.safetensors";
  model.Save(file).value();
  plumb::Model mapped =
      plumb::Model::Create(runtime, plumb::Spec::FromText(kModel, "test").value()).value();
  mapped.Map(file).value();
  EXPECT_EQ(Weights(mapped), Weights(model));
  mapped.Tensor(0).value().data[0] += 1;
  mapped.Changed();

  plumb::EvaluatorOptions options;
  options.rows = 2;
  options.logits = true;
  plumb::Evaluator evaluator = plumb::Evaluator::Create(model, options).value();
  EXPECT_TRUE(evaluator.Logits().empty());
  std::vector<std::int32_t> inputs(16), targets(16);
  Fill(1, inputs, targets);
  const double loss = evaluator.Loss(inputs, targets).value();
  EXPECT_GT(loss, 0);
  const std::vector<float> logits(evaluator.Logits().begin(), evaluator.Logits().end());
  EXPECT_EQ(logits.size(), 80u);
  const Span<const float> again = evaluator.Logits(inputs).value();
  EXPECT_EQ(std::vector<float>(again.begin(), again.end()), logits);
  targets.pop_back();
  EXPECT_EQ(evaluator.Loss(inputs, targets).error().code(), Code::kInvalidArgument);
  std::remove(file.c_str());
}

TEST(HppTest, TrainersAreSavedAndProbed) {
  const std::string file = testing::TempDir() + "/hpp_test_trainer.safetensors";
  plumb::Model model = MakeModel(), other = MakeModel();
  plumb::Trainer trainer = plumb::Trainer::Create(model, {"max_steps: 2 batch_size: 2"}).value();
  int seen = 0;
  trainer
      .ProbeEvery(1, {"logits"},
                  [&](const plumb::Probe& probe) {
                    EXPECT_STREQ(probe.name, "logits");
                    EXPECT_EQ(probe.elements, 80);
                    ++seen;
                  })
      .value();
  trainer.Run(Fill).value();
  EXPECT_EQ(seen, 2);
  trainer.Save(file).value();
  plumb::Trainer again = plumb::Trainer::Create(other, {"max_steps: 2 batch_size: 2"}).value();
  again.Load(file).value();
  EXPECT_EQ(again.Steps(), 2);
  EXPECT_EQ(Weights(other), Weights(model));
  EXPECT_EQ(trainer.ProbeEvery(1, {"logit"}, [](const plumb::Probe&) {}).error().code(),
            Code::kInvalidArgument);
  again.ProbeEvery(1, {}, [](const plumb::Probe&) { throw std::runtime_error("enough"); }).value();
  std::vector<std::int32_t> inputs(16), targets(16);
  Fill(1, inputs, targets);
  EXPECT_THROW(again.Step(inputs, targets).value(), std::runtime_error);
  std::remove(file.c_str());
}

TEST(HppTest, TextsBecomeTokensAndTextsAgain) {
  const auto tokenizer = plumb::Tokenizer::Characters("hällo", true).value();
  EXPECT_EQ(tokenizer.VocabSize(), 5);
  EXPECT_EQ(tokenizer.BeginEnd(), 4);
  const std::vector<std::int32_t> tokens = tokenizer.Encode("ohä").value();
  EXPECT_THAT(tokens, ElementsAreArray({2, 0, 3}));
  EXPECT_EQ(tokenizer.Decode(tokens).value(), "ohä");
  EXPECT_EQ(tokenizer.Decode(3).value(), "ä");
  EXPECT_EQ(tokenizer.Encode("x").error().code(), Code::kInvalidArgument);
  const auto again = plumb::Tokenizer::FromJson(tokenizer.Json().value()).value();
  EXPECT_EQ(again.Encode("ohä").value(), tokens);
  const auto bytes = plumb::Tokenizer::Bytes().value();
  EXPECT_EQ(bytes.BeginEnd(), -1);
  const std::string any("\0\xff long enough that the first buffer does not hold it ...........",
                        66);
  EXPECT_EQ(bytes.Decode(bytes.Encode(any).value()).value(), any);
  EXPECT_EQ(bytes.Encode("").value().size(), 0u);
}

struct Thrown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(HppTest, WhatACallbackThrowsComesOutOfTheCall) {
  plumb::Model model = MakeModel();
  plumb::Trainer trainer = plumb::Trainer::Create(model, {"batch_size: 1"}).value();
  EXPECT_THROW(static_cast<void>(trainer.Run([](auto, auto, auto) { throw Thrown("batch"); })),
               Thrown);
  EXPECT_EQ(trainer.Steps(), 0);
  EXPECT_THROW(
      static_cast<void>(trainer.Run(Fill, [](const plumb::StepInfo&) { throw Thrown("step"); })),
      Thrown);
  EXPECT_EQ(trainer.Steps(), 1);
  plumb::Session session = plumb::Session::Create(model).value();
  session.Feed(0, {1}).value();
  const auto throws = [](std::int32_t) { throw Thrown("token"); };
  EXPECT_THROW(static_cast<void>(session.Generate(0, {}, throws)), Thrown);
  // Through two borders.
  EXPECT_THROW(static_cast<void>(trainer.Run(Fill,
                                             [&](const plumb::StepInfo&) {
                                               session.Truncate(0, 0).value();
                                               session.Feed(0, {1}).value();
                                               static_cast<void>(session.Generate(0, {}, throws));
                                             })),
               Thrown);
  // Nothing of it is left for the next call.
  EXPECT_TRUE(trainer.Step(std::vector<std::int32_t>(8, 1), std::vector<std::int32_t>(8, 2)).ok());
}

TEST(HppTest, CallbacksAndOtherThreadsEndARun) {
  plumb::Model model = MakeModel();
  plumb::Trainer trainer =
      plumb::Trainer::Create(model, {"batch_size: 1 max_steps: 1000000000"}).value();
  const auto ended = trainer.Run(
      Fill, [](const plumb::StepInfo& info) { return info.step == 2 ? Next::kStop : Next::kGoOn; });
  EXPECT_EQ(ended.error().code(), Code::kCancelled);
  EXPECT_EQ(trainer.Steps(), 2);
  EXPECT_TRUE(trainer.Run([](auto, auto, auto) { return Next::kStop; }).ok());
  std::atomic<bool> runs{false};
  std::thread other([&] {
    while (!runs) std::this_thread::yield();
    trainer.Cancel();
  });
  const auto cancelled = trainer.Run(Fill, [&](const plumb::StepInfo&) { runs = true; });
  other.join();
  EXPECT_EQ(cancelled.error().code(), Code::kCancelled);
  plumb::Session session = plumb::Session::Create(model).value();
  session.Feed(0, {1}).value();
  EXPECT_EQ(session.Generate(0, {}, [&](std::int32_t) { session.Cancel(); }).error().code(),
            Code::kCancelled);
}

// A norm over tokens is worth a warning.
TEST(HppTest, TheLogIsToldAndMayThrow) {
  std::string told;
  plumb::RuntimeOptions options;
  options.log = [&](plumb::LogLevel level, std::string_view message) {
    EXPECT_EQ(level, plumb::LogLevel::kWarning);
    if (told == "throw") throw Thrown("log");
    told += message;
  };
  plumb::Runtime runtime = MakeRuntime(std::move(options));
  std::string warned = kModel;
  warned.replace(warned.find("rms_norm"), 8, "over_tokens");
  warned += "norm { name: \"over_tokens\" plugin: \"batch_norm\" allow_cross_token: true }\n";
  const auto create = [&] {
    return plumb::Model::Create(runtime, plumb::Spec::FromText(warned).value());
  };
  create().value();
  EXPECT_THAT(told, HasSubstr("later tokens"));
  told = "throw";
  EXPECT_THROW(static_cast<void>(create()), Thrown);
  told.clear();
  EXPECT_TRUE(create().ok());
}

// Until the last handle is gone, whatever was freed or assigned before.
TEST(HppTest, TheHostsMemoryAndThreadsAreUsed) {
  std::atomic<std::ptrdiff_t> bytes{0};
  std::atomic<int> tasks{0};
  bool has_memory = true;
  plumb::RuntimeOptions options;
  options.allocate = [&](std::size_t size, std::size_t alignment) -> void* {
    if (!has_memory) throw Thrown("memory");
    bytes += static_cast<std::ptrdiff_t>(size);
    return std::aligned_alloc(alignment, size);
  };
  options.release = [&](void* memory, std::size_t size) {
    bytes -= static_cast<std::ptrdiff_t>(size);
    std::free(memory);
  };
  options.run = [&](std::int32_t n, const std::function<void(std::int32_t)>& task) {
    for (std::int32_t i = n; i-- > 0; ++tasks) task(i);
  };
  {
    plumb::Model model = [&] {
      plumb::Runtime runtime = MakeRuntime(options);
      plumb::Spec spec = plumb::Spec::FromText(kModel).value();
      spec.Set("d_model", 128).value();  // worth two threads
      plumb::Model made = plumb::Model::Create(runtime, spec).value();
      made.Init(1).value();
      return made;
    }();
    EXPECT_GT(bytes, 0);
    plumb::Trainer trainer = plumb::Trainer::Create(model, {"batch_size: 64"}).value();
    const std::vector<std::int32_t> ids(trainer.StepTokens(), 1);
    static_cast<void>(trainer.Step(ids, ids).value());
    EXPECT_GT(tasks, 0);
    has_memory = false;
    EXPECT_THROW(static_cast<void>(plumb::Session::Create(model)), Thrown);
    // The old one is freed by the functions that the new one has not.
    model = MakeModel();
  }
  EXPECT_EQ(bytes, 0);
  options.release = nullptr;
  EXPECT_EQ(plumb::Runtime::Create(options).error().code(), Code::kInvalidArgument);
}

TEST(HppTest, BadOptionsAreErrors) {
  plumb::RuntimeOptions options;
  options.gemm = "fastest";
  EXPECT_EQ(plumb::Runtime::Create(options).error().code(), Code::kInvalidArgument);
  options = {};
  options.threads = -1;
  EXPECT_FALSE(plumb::Runtime::Create(options).ok());
  plumb::Runtime runtime = MakeRuntime();
  EXPECT_EQ(runtime.RegisterPlugin(nullptr).error().code(), Code::kInvalidArgument);
  plumb::Model model = MakeModel(runtime);
  EXPECT_FALSE(plumb::Session::Create(model, {17, plumb::Weights::kF32}).ok());
  EXPECT_FALSE(plumb::Trainer::Create(model, {"batch_sise: 1"}).ok());
}

TEST(HppTest, WithoutExceptionsErrorsAreReturned) {
  EXPECT_EQ(TrainWithoutExceptions(), "ok");
  EXPECT_THAT(FailWithoutExceptions(), StartsWith("bad.pbtxt:1:"));
  EXPECT_DEATH(AbortWithoutExceptions(), "plumb: bad.pbtxt:1:");
}

}  // namespace
