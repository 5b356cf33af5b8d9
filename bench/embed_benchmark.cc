// SPDX-License-Identifier: Apache-2.0
// Measures the overhead of plumb.h over the modules below it: a training step by plumb_trainer_step
// and by TrainSession, of the study's model and of a baby GPT, and a decoded token. The two sides
// are interleaved; the output is ratios of medians.
//
//   embed_benchmark [--rounds N]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "plumb.h"
#include "runtime/base/check.h"
#include "runtime/capi/host_batch_source.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/train_session.h"
#include "runtime/spec/model_spec.h"

namespace plumb {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "embed_benchmark: %s\n", message.c_str());
  std::exit(1);
}
template <class T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) Die(value.status().ToString());
  return *std::move(value);
}
void Must(plumb_status status, plumb_error* error) {
  if (status != PLUMB_OK) Die(plumb_error_message(error));
}

template <class Body>
double SecondsOf(const Body& body) {
  const Clock::time_point begin = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Case {
  const char* name;
  const char* model;
  const char* vocab_size;
  const char* recipe;
  int rounds;
};

// One model twice: through plumb.h, and through the modules.
class PairedModels {
 public:
  PairedModels(const Case& of, Runtime* runtime) {
    plumb_error* error = nullptr;
    plumb_spec* spec = nullptr;
    Must(plumb_runtime_create(nullptr, &runtime_, &error), error);
    Must(plumb_spec_from_file(of.model, &spec, &error), error);
    Must(plumb_spec_set(spec, "vocab_size", of.vocab_size, &error), error);
    Must(plumb_model_create(runtime_, spec, &model_, &error), error);
    plumb_spec_free(spec);
    Must(plumb_model_init(model_, 1, &error), error);
    plumb_trainer_options options = {};
    options.struct_size = sizeof(options);
    options.recipe = of.recipe;
    options.recipe_size = std::string(of.recipe).size();
    Must(plumb_trainer_create(model_, &options, &trainer_, &error), error);

    ModelSpec own_spec = Value(ModelSpec::FromFile(of.model));
    if (!own_spec.Set("vocab_size", of.vocab_size).ok()) Die("vocab_size");
    context_ = Value(runtime->impl().MakeContext(own_spec));
    const TrainSpec recipe = Value(ParseTrainSpec(of.recipe, "recipe", {}));
    store_ = std::make_unique<ParameterStore>(context_->parameters, context_->states);
    PLUMB_CHECK(
        DrawParameters(context_->parameters, context_->states, 1, runtime->threads(), *store_).ok(),
        "initial values");
    auto batches = std::make_unique<capi::HostBatchSource>(
        recipe.batch_size, context_->model.dims.context_length, recipe.gradient_accumulation_steps,
        context_->model.dims.vocab_size, capi::HostBatchSource::Kind{});
    batches_ = batches.get();
    session_ = Value(TrainSession::Create(
        context_.get(), [this] { return store_.get(); }, std::move(batches), recipe,
        runtime->threads()));
    const size_t n = plumb_trainer_step_tokens(trainer_);
    for (size_t i = 0; i < n; ++i) {
      inputs_.push_back(static_cast<int32_t>(i * 7 % 20));
      targets_.push_back(static_cast<int32_t>((i * 7 + 3) % 20));
    }
    if (!batches_->Set(inputs_.data(), targets_.data()).ok()) Die("a batch");
    weights_ = std::make_unique<PackedWeights>(*context_, WeightFormat::kF32, *store_);
    decode_ =
        std::make_unique<DecodeSession>(context_.get(), weights_.get(), 1, runtime->threads());
    Must(plumb_session_create(model_, nullptr, &c_session_, &error), error);
  }
  ~PairedModels() {
    plumb_session_free(c_session_);
    plumb_trainer_free(trainer_);
    plumb_model_free(model_);
    plumb_runtime_free(runtime_);
  }

  double StepByC() {
    plumb_error* error = nullptr;
    return SecondsOf([&] {
      Must(plumb_trainer_step(trainer_, inputs_.data(), targets_.data(), inputs_.size(), nullptr,
                              &error),
           error);
    });
  }
  double StepByModules() {
    return SecondsOf([&] { Value(session_->Step()); });
  }

  // Feeds all tokens of a context but one. Returns the seconds.
  double FeedByC() {
    plumb_error* error = nullptr;
    Must(plumb_session_truncate(c_session_, 0, 0, &error), error);
    return SecondsOf([&] {
             for (int i = 0; i < kFed; ++i) {
               Must(plumb_session_feed(c_session_, 0, &inputs_[0], 1, &error), error);
             }
           }) /
           kFed;
  }
  double FeedByModules() {
    decode_->Truncate(0, 0);
    return SecondsOf([&] {
             for (int i = 0; i < kFed; ++i) {
               if (!decode_->Feed(0, absl::MakeConstSpan(&inputs_[0], 1)).ok()) Die("feed");
             }
           }) /
           kFed;
  }

 private:
  static constexpr int kFed = 15;
  plumb_runtime* runtime_ = nullptr;
  plumb_model* model_ = nullptr;
  plumb_trainer* trainer_ = nullptr;
  plumb_session* c_session_ = nullptr;
  std::unique_ptr<ModelContext> context_;
  std::unique_ptr<ParameterStore> store_;
  capi::HostBatchSource* batches_ = nullptr;
  std::unique_ptr<TrainSession> session_;
  std::unique_ptr<PackedWeights> weights_;
  std::unique_ptr<DecodeSession> decode_;
  std::vector<int32_t> inputs_, targets_;
};

// Interleaves `first` and `second`; prints their medians and the median of the ratios.
template <class First, class Second>
void Compare(const char* name, const char* what, int rounds, const First& first,
             const Second& second) {
  std::vector<double> a, b, ratios;
  first();
  second();
  for (int i = 0; i < rounds; ++i) {
    const bool first_goes_first = i % 2 == 0;
    const double x = first_goes_first ? first() : 0, y = second();
    a.push_back(first_goes_first ? x : first());
    b.push_back(y);
    ratios.push_back(a.back() / b.back());
  }
  std::printf("%-14s %-6s %12.2f %12.2f %8.3f\n", name, what, Median(a) * 1e6, Median(b) * 1e6,
              Median(ratios));
}

int Main(int argc, char** argv) {
  int scale = 100;
  if (argc == 3 && std::string(argv[1]) == "--rounds") {
    if (!absl::SimpleAtoi(argv[2], &scale) || scale < 1) Die("--rounds wants a number");
  } else if (argc != 1) {
    Die("usage: embed_benchmark [--rounds N, in percent of the usual]");
  }
  const Case cases[] = {
      {"study's model", PLUMB_SOURCE_DIR "/examples/why_normalise/pre.pbtxt", "27",
       "batch_size: 8 learning_rate: 1e-5", 4000},
      {"baby GPT", PLUMB_SOURCE_DIR "/bench/models/baby_gpt.pbtxt", "65",
       "batch_size: 1 learning_rate: 1e-5", 60},
  };
  const std::unique_ptr<Runtime> runtime = Value(Runtime::Create({}));
  std::printf("%-14s %-6s %12s %12s %8s\n", "us", "", "plumb.h", "modules", "ratio");
  for (const Case& each : cases) {
    PairedModels models(each, runtime.get());
    const int rounds = std::max(1, each.rounds * scale / 100);
    Compare(
        each.name, "step", rounds, [&] { return models.StepByC(); },
        [&] { return models.StepByModules(); });
    Compare(
        each.name, "token", rounds, [&] { return models.FeedByC(); },
        [&] { return models.FeedByModules(); });
  }
  return 0;
}

}  // namespace
}  // namespace plumb

int main(int argc, char** argv) { return plumb::Main(argc, argv); }
