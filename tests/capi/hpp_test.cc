// SPDX-License-Identifier: Apache-2.0
// Tests of plumb.hpp with libplumb.so alone: every feature of the C API in C++.
#include "plumb.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/capi/hpp_models.h"
#include "tests/capi/hpp_without_exceptions.h"

namespace {

using plumb::Code;
using plumb::Next;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::StartsWith;

static_assert(!std::is_copy_constructible_v<plumb::Model>, "a handle has one owner");
static_assert(std::is_nothrow_move_constructible_v<plumb::Model>, "and moves");
static_assert(std::is_nothrow_copy_constructible_v<plumb::Error>, "as an exception must");

TEST(HppTest, LibraryMatchesTheHeader) { EXPECT_EQ(plumb::Version(), plumb_version()); }

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

TEST(HppTest, SetsAndPrintsASpec) {
  plumb::Spec spec = plumb::Spec::FromText(kHppModel).value();
  spec.Set("n_layer", 3).value();
  spec.Set("name", std::string(300, 'n')).value();
  spec.Set("tie_embeddings", true).value();
  const std::string text = spec.Text().value();
  EXPECT_THAT(text, HasSubstr("n_layer: 3"));
  EXPECT_THAT(text, HasSubstr("tie_embeddings: true"));
  EXPECT_THAT(text, HasSubstr(std::string(300, 'n')));
  EXPECT_EQ(text.find('\0'), std::string::npos);
  EXPECT_FALSE(spec.Set("n_layr", 3).ok());
}

TEST(HppTest, MovedFromObjectsReturnErrors) {
  plumb::Model model = MakeModel();
  const plumb::Model other = std::move(model);
  EXPECT_EQ(other.Info().n_layer, 1);
  EXPECT_EQ(other.Info().cache_bytes, 2 * 8 * 8 * 4);  // keys and values of 8 channels for 8 tokens
  // NOLINTBEGIN(bugprone-use-after-move): it is what is tested
  EXPECT_EQ(model.Init(1).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(model.TensorCount(), 0u);
  EXPECT_FALSE(model.Tensor(0).ok());
  EXPECT_FALSE(plumb::Trainer::Create(model).ok());
  EXPECT_FALSE(plumb::Session::Create(model).ok());
  // NOLINTEND(bugprone-use-after-move)
}

// Models of 16 tokens, and the floats that a sequence caches.
TEST(HppTest, CachesFollowTheLayers) {
  struct Case {
    const char* text;
    int64_t floats;
  };
  const Case cases[] = {
      // Inputs of convolutions.
      {"n_layer: 3 n_head: 2 placement { name: \"rule\" each: \"x = x + f(x)\" } "
       "block { placement: \"rule\" sublayer { conv {} } sublayer { mlp {} } }",
       3 * 16 * 8},
      // A state of 6 x 3 for each of 4 heads, and 3 tokens of 2 x 3, 2 x 3 and 4 x 6 channels.
      {"n_layer: 1 n_head: 4 block { placement: \"none\" sublayer { linear_attention { "
       "n_key_head: \"2\" key_dim: \"3\" value_dim: \"6\" conv { width: 3 } } } }",
       4 * 6 * 3 + 3 * (6 + 6 + 24)},
      // The windows are 4, none, and one that is longer than the context.
      {"n_layer: 3 n_head: 2 n_kv_head: 1 block { placement: \"none\" } "
       "attention { window: \"4 * (layer == 1) + 99 * (layer == 3)\" }",
       2 * 4 * (4 + 16 + 16)},
      // Layers have 1, 2 and 3 heads of keys, of width 2, 4 and 6; the window of the second is 4.
      {"n_layer: 3 n_head: 2 attention { n_head: \"2 * layer\" n_kv_head: \"layer\" "
       "head_dim: \"2 * layer\" window: \"4 * (layer == 2)\" } block { placement: \"none\" }",
       2 * (16 * 1 * 2 + 4 * 2 * 4 + 16 * 3 * 6)},
  };
  plumb::Runtime runtime = MakeRuntime();
  for (const Case& c : cases) {
    const plumb::Spec spec =
        plumb::Spec::FromText(std::string("d_model: 8 vocab_size: 5 context_length: 16 ") + c.text)
            .value();
    EXPECT_EQ(plumb::Model::Create(runtime, spec).value().Info().cache_bytes, 4 * c.floats)
        << c.text;
  }
}

// The runtime and model handles are freed before the trainer and the session are used.
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
             // A session may run between two steps.
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
  session.FeedBatch({3, 2}).value();
  EXPECT_EQ(session.Logits(1).size(), 5u);
  EXPECT_EQ(session.Length(1), 3);
  EXPECT_EQ(session.Length(2), -1);
  // The model has learned to count.
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
  const auto stopped = session.Generate(0, likeliest, [&](std::int32_t token) {
    counted.push_back(token);
    return counted.size() == 2 ? Next::kStop : Next::kGoOn;
  });
  EXPECT_EQ(stopped.error().code(), Code::kCancelled);
  EXPECT_THAT(counted, ElementsAreArray({3, 4}));
}

TEST(HppTest, SequencesAreCopiedAndTensorsFound) {
  plumb::Model model = MakeModel();
  plumb::Session session = plumb::Session::Create(model, {2}).value();
  session.Feed(0, {1, 2}).value();
  session.Copy(0, 1).value();
  EXPECT_EQ(session.Length(1), 2);
  const std::size_t head = model.FindTensor("head.weight").value();
  std::vector<float> values(model.Tensor(head).value().data.size());
  model.ReadTensor(head, 0, values).value();
  EXPECT_EQ(values[0], model.Tensor(head).value().data[0]);
  EXPECT_FALSE(model.FindTensor("head").has_value());
  EXPECT_EQ(model.LoadPartial("nowhere").error().code(), Code::kNotFound);
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
  other.end_tokens = {whole[6], whole[3]};
  const auto first = std::find_first_of(whole.begin(), whole.end(), other.end_tokens.begin(),
                                        other.end_tokens.end());
  EXPECT_EQ(draw(other), std::vector<std::int32_t>(whole.begin(), first));
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
  // Either length may be wrong.
  targets.pop_back();
  EXPECT_EQ(trainer.Step(inputs, targets).error().message(), "inputs have 8 ids and targets 7");
  EXPECT_EQ(trainer.Step(targets, inputs).error().message(), "inputs have 7 ids and targets 8");
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

TEST(HppTest, WeightsAreMappedAndChanged) {
  plumb::Runtime runtime = MakeRuntime();
  const plumb::Model model = MakeModel(runtime);
  const std::string file = testing::TempDir() + "/hpp_test_mapped.safetensors";
  model.Save(file).value();
  plumb::Model mapped = MakeModel(runtime, 4);
  mapped.Map(file).value();
  EXPECT_EQ(Weights(mapped), Weights(model));
  EXPECT_EQ(mapped.MapTensors({}).error().code(), Code::kInvalidArgument);  // all are missing
  EXPECT_EQ(Weights(mapped), Weights(model));
  plumb::Session session = plumb::Session::Create(mapped, {1, plumb::Weights::kBf16}).value();
  EXPECT_EQ(mapped.Map(file).error().code(), Code::kFailedPrecondition);
  std::remove(file.c_str());
  // Changed() makes sessions copy the changed weights.
  session.Feed(0, {1}).value();
  const std::vector<float> before(session.Logits(0).begin(), session.Logits(0).end());
  for (std::size_t i = 0; i < mapped.TensorCount(); ++i) {
    for (float& weight : mapped.Tensor(i).value().data) weight *= 2;
  }
  mapped.Changed();
  session.Truncate(0, 0).value();
  session.Feed(0, {1}).value();
  EXPECT_NE(std::vector<float>(session.Logits(0).begin(), session.Logits(0).end()), before);
}

TEST(HppTest, SavedTrainerContinues) {
  plumb::Runtime runtime = MakeRuntime();
  plumb::Model model = MakeModel(runtime);
  plumb::Model other = MakeModel(runtime, 9);
  const plumb::TrainerOptions recipe = {"batch_size: 1 max_steps: 6 learning_rate: 0.01"};
  plumb::Trainer trainer = plumb::Trainer::Create(model, recipe).value();
  const auto three = [](std::int64_t step, auto inputs, auto targets) {
    Fill(step, inputs, targets);
    return step <= 3 ? Next::kGoOn : Next::kStop;
  };
  EXPECT_EQ(trainer.Run(three).error().code(), Code::kCancelled);
  const std::string file = testing::TempDir() + "/hpp_test_trainer.safetensors";
  trainer.Save(file).value();
  plumb::Trainer resumed = plumb::Trainer::Create(other, recipe).value();
  resumed.Load(file).value();
  EXPECT_EQ(resumed.Steps(), 3);
  trainer.Run(Fill).value();
  resumed.Run(Fill).value();
  EXPECT_EQ(Weights(other), Weights(model));
  std::remove(file.c_str());
  EXPECT_EQ(resumed.Load(file).error().code(), Code::kNotFound);
}

TEST(HppTest, EvaluatorAgreesWithTrainerAndSession) {
  plumb::Model model = MakeModel();
  plumb::EvaluatorOptions options;
  options.rows = 2;
  options.logits = true;
  plumb::Evaluator evaluator = plumb::Evaluator::Create(model, options).value();
  EXPECT_TRUE(evaluator.Logits().empty());
  std::vector<std::int32_t> inputs(16), targets(16);
  Fill(0, inputs, targets);
  const double loss = evaluator.Loss(inputs, targets).value();
  EXPECT_EQ(evaluator.Logits().size(), 16u * 5u);
  const plumb::Span<const float> logits = evaluator.Logits(inputs).value();
  plumb::Session session = plumb::Session::Create(model).value();
  session.Feed(0, plumb::Span<const std::int32_t>(inputs).subspan(0, 8)).value();
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(logits[7 * 5 + i], session.Logits(0)[i], 1e-5f);
  }
  targets.pop_back();
  const plumb::Error two_lengths = evaluator.Loss(inputs, targets).error();
  EXPECT_EQ(two_lengths.code(), Code::kInvalidArgument);
  EXPECT_STREQ(two_lengths.what(), "inputs have 16 ids and targets 15");
  EXPECT_EQ(two_lengths.line(), 0);
  targets.push_back(1);
  Fill(0, inputs, targets);
  plumb::Trainer trainer = plumb::Trainer::Create(model, {"batch_size: 2"}).value();
  EXPECT_NEAR(trainer.Step(inputs, targets).value().loss, loss, 1e-5);
}

TEST(HppTest, TokenizesAndDetokenizes) {
  const auto tokenizer = plumb::Tokenizer::Characters("hällo", true).value();
  EXPECT_EQ(tokenizer.Info().vocab_size, 5);
  EXPECT_EQ(tokenizer.Info().end, 4);
  const std::vector<std::int32_t> tokens = tokenizer.Encode("ohä").value();
  EXPECT_THAT(tokens, ElementsAreArray({2, 0, 3}));
  EXPECT_EQ(tokenizer.Decode(tokens).value(), "ohä");
  EXPECT_EQ(tokenizer.Decode(3).value(), "ä");
  EXPECT_EQ(tokenizer.Encode("x").error().code(), Code::kInvalidArgument);
  const auto again = plumb::Tokenizer::FromJson(tokenizer.Json().value()).value();
  EXPECT_EQ(again.Encode("ohä").value(), tokens);
  const auto bytes = plumb::Tokenizer::Bytes().value();
  EXPECT_EQ(bytes.Info().end, -1);
  const std::string any("\0\xff long enough that the first buffer does not hold it ...........",
                        66);
  EXPECT_EQ(bytes.Decode(bytes.Encode(any).value()).value(), any);
  EXPECT_EQ(bytes.Encode("").value().size(), 0u);
}

TEST(HppTest, DecodesTokenByToken) {
  // WordPiece puts a space before each word but the first, and none before a continuation.
  const auto words = plumb::Tokenizer::FromJson(R"({"decoder": {"type": "WordPiece"},
      "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "vocab": {"[UNK]": 0, "play": 1, "##ing": 2, "a": 3}}})")
                         .value();
  const std::vector<std::int32_t> tokens = {3, 1, 2, 3};
  plumb::Decoder decoder = plumb::Decoder::Create(words).value();
  std::string text;
  for (const std::int32_t token : tokens) text += decoder.Next(token).value();
  EXPECT_EQ(text + decoder.Finish().value(), "a playing a");
  EXPECT_EQ(words.Decode(tokens).value(), "a playing a");
  EXPECT_THAT(words.Info().prefix, ElementsAreArray(std::vector<std::int32_t>{}));
  const std::vector<std::int32_t> prompt = {3};
  plumb::Decoder after = plumb::Decoder::Create(words, prompt).value();
  EXPECT_EQ(after.Next(1).value(), " play");
  EXPECT_EQ(after.Next({2, 3}).value(), "ing a");
  EXPECT_EQ(after.Next(4).error().code(), Code::kInvalidArgument);

  const auto bytes = plumb::Tokenizer::Bytes(true).value();
  EXPECT_THAT(bytes.Info().prefix, ElementsAreArray({256}));
  plumb::Decoder of_bytes = plumb::Decoder::Create(bytes).value();
  EXPECT_EQ(of_bytes.Next({0xC3}).value(), "");
  EXPECT_EQ(of_bytes.Next(0xA9).value(), "é");
  EXPECT_EQ(of_bytes.Next({'a', 0, 0xC3}).value(), std::string("a\0", 2));
  EXPECT_EQ(of_bytes.Finish().value(), "\xc3");
  // NOLINTBEGIN(bugprone-use-after-move): it is what is tested
  const plumb::Decoder taken = std::move(of_bytes);
  EXPECT_EQ(of_bytes.Next(1).error().code(), Code::kInvalidArgument);
  // NOLINTEND(bugprone-use-after-move)
}

TEST(HppTest, StopTextsEndTheText) {
  const plumb::Tokenizer bytes = plumb::Tokenizer::Bytes(true).value();
  EXPECT_THAT(bytes.Info().end_tokens, ElementsAreArray({256}));
  EXPECT_EQ(bytes.Info().begin, 256);
  plumb::Decoder decoder = plumb::Decoder::Create(bytes).value();
  decoder.StopAt({"xyz", "b c"}).value();
  EXPECT_EQ(decoder.Next(bytes.Encode("a b").value()).value(), "a ");
  EXPECT_FALSE(decoder.Stopped());
  EXPECT_EQ(decoder.Next(bytes.Encode(" cd").value()).value(), "");
  EXPECT_TRUE(decoder.Stopped());
  EXPECT_FALSE(decoder.StopAt({""}).ok());
  EXPECT_EQ(plumb::Tokenizer::FromDirectory("nowhere/at/all").error().code(), Code::kNotFound);
}

TEST(HppTest, FinishReasonIsReported) {
  using plumb::FinishReason;
  plumb::Model model = MakeModel();
  plumb::Session session = plumb::Session::Create(model).value();
  std::vector<std::int32_t> drawn;
  const auto generate = [&](const plumb::SampleOptions& options) {
    drawn.clear();
    session.Truncate(0, 0).value();
    session.Feed(0, {1}).value();
    return session.Generate(0, options, [&](std::int32_t token) { drawn.push_back(token); })
        .value();
  };
  plumb::SampleOptions options;
  EXPECT_EQ(generate(options), FinishReason::kContext);
  EXPECT_EQ(drawn.size(), 8u);
  options.end_tokens = {0, 1, 2, 3, 4};
  EXPECT_EQ(generate(options), FinishReason::kStop);
  options.end_tokens = {};
  options.max_tokens = 30;
  EXPECT_EQ(generate(options), FinishReason::kLength);
  ASSERT_EQ(drawn.size(), 30u) << "past the context of 8";
  session.Append(0, 1).value();
  options.top_p = 0;
  EXPECT_EQ(session.Generate(0, options, [](std::int32_t) {}).error().code(),
            Code::kInvalidArgument);
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
  const std::string described = runtime.Describe().value();
  EXPECT_EQ(described.front(), '{');
  EXPECT_THAT(described, HasSubstr(plumb::Version()));
  EXPECT_EQ(described.substr(described.size() - 2), "}\n") << "the whole text";
  plumb::Model model = MakeModel(runtime);
  EXPECT_FALSE(plumb::Session::Create(model, {65, plumb::Weights::kF32}).ok());
  EXPECT_FALSE(plumb::Trainer::Create(model, {"batch_sise: 1"}).ok());
}

TEST(HppTest, WithoutExceptionsErrorsAreReturned) {
  EXPECT_EQ(TrainWithoutExceptions(), "ok");
  EXPECT_THAT(FailWithoutExceptions(), StartsWith("bad.pbtxt:1:"));
  EXPECT_DEATH(AbortWithoutExceptions(), "plumb: bad.pbtxt:1:");
}

TEST(HppTest, NormsModelsAndPassesAreReported) {
  plumb::Runtime runtime = MakeRuntime();
  EXPECT_EQ(runtime.Threads(), 2);
  EXPECT_THAT(runtime.Gemm().value(), HasSubstr("kernels"));
  EXPECT_THAT(runtime.DescribePlugin("rms_norm").value(), HasSubstr("\"id\":\"rms_norm\""));
  EXPECT_EQ(runtime.LoadPlugin("/not/there.so").error().code(), Code::kNotFound);
  EXPECT_GT(runtime.MeasureSpeed(plumb::Speed::kRead).value(), 1e8);
  EXPECT_FALSE(plumb::CurrentPluginCall().has_value());
  std::vector<plumb::PluginCall> calls(2);
  EXPECT_EQ(plumb::PluginCalls(calls), 0u);

  const plumb::Model model = MakeModel(runtime);
  EXPECT_THAT(model.Describe().value(), HasSubstr("\"n_layer\":1"));
  plumb::ExplainOptions stage;
  stage.seq = 4;
  EXPECT_THAT(model.Explain(stage).value(), HasSubstr("[1, 4] tokens"));
  stage.layer = 1;  // only for Stage::kLayerSvg
  EXPECT_EQ(model.Explain(stage).error().code(), Code::kInvalidArgument);
  const plumb::Work training = model.Work(plumb::Pass::kTraining, 4).value();
  const plumb::Work feeding = model.Work(plumb::Pass::kFeed, 4).value();
  EXPECT_GT(training.flops, feeding.flops);
  EXPECT_EQ(training.weight_bytes, feeding.weight_bytes);
}

TEST(HppTest, AnEvaluatorTakesTokenTypes) {
  plumb::Runtime runtime = MakeRuntime();
  const std::string text = std::string(kHppModel) + "bidirectional: true token_types: 2";
  plumb::Spec spec = plumb::Spec::FromText(text, "bert.pbtxt").value();
  plumb::Model model = plumb::Model::Create(runtime, spec).value();
  model.Init(1).value();
  EXPECT_EQ(model.Info().bidirectional, 1);
  EXPECT_EQ(model.Info().token_types, 2);
  plumb::Evaluator evaluator = plumb::Evaluator::Create(model).value();
  const std::vector<std::int32_t> inputs = {1, 2, -1}, targets = {3, 4, -1}, types = {0, 1, 0};
  const double without = evaluator.Loss(inputs, targets).value();
  evaluator.SetTypes(types).value();
  EXPECT_NE(evaluator.Loss(inputs, targets).value(), without);
  evaluator.SetTypes({}).value();
  EXPECT_EQ(evaluator.Loss(inputs, targets).value(), without);
  const std::vector<std::int32_t> wrong = {0, 2, 0};
  EXPECT_EQ(evaluator.SetTypes(wrong).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(plumb::Session::Create(model).error().code(), Code::kFailedPrecondition);
}

TEST(HppTest, AnEvaluatorHasGradients) {
  plumb::Model model = MakeModel();
  plumb::EvaluatorOptions options;
  options.rows = 2;
  options.gradients = true;
  plumb::Evaluator evaluator = plumb::Evaluator::Create(model, options).value();
  std::vector<std::int32_t> inputs(16), targets(16);
  Fill(1, inputs, targets);
  EXPECT_EQ(evaluator.Gradient(0).error().code(), Code::kFailedPrecondition);
  const double loss = evaluator.Loss(inputs, targets).value();
  EXPECT_EQ(evaluator.Gradient(0).value().name, model.Tensor(0).value().name);
  int seen = 0;
  evaluator.SetProbe({"logits"}, [&](const plumb::ProbeInfo&) { ++seen; }).value();
  EXPECT_EQ(evaluator.Loss(inputs, targets).value(), loss);
  EXPECT_EQ(seen, 1);
  evaluator.SetProbe({"logits"}, [](const plumb::ProbeInfo&) { return Next::kStop; }).value();
  EXPECT_EQ(evaluator.Loss(inputs, targets).error().code(), Code::kCancelled);
}

TEST(HppTest, ASessionIsProfiled) {
  plumb::Model model = MakeModel();
  plumb::Session session = plumb::Session::Create(model).value();
  EXPECT_TRUE(session.ProfileRows().empty());
  session.Profile(true).value();
  const std::vector<std::int32_t> prompt = {1, 2};
  session.Feed(0, prompt).value();
  session.Feed(0, prompt).value();
  const std::vector<plumb::ProfileRow> rows = session.ProfileRows();
  ASSERT_GT(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, std::string("step"));
  EXPECT_EQ(rows[0].runs, 2);
  double sum = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) sum += rows[i].seconds;
  EXPECT_NEAR(sum, rows[0].seconds, 1e-6);
  EXPECT_EQ(rows.back().name, std::string("other"));
  session.Profile(false).value();
  session.Feed(0, prompt).value();
  EXPECT_EQ(session.ProfileRows()[0].runs, 2);
}

}  // namespace
