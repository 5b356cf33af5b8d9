// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/bench/bench.h"
#include "runtime/base/divide.h"
#include "runtime/base/file.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/client/recipe.h"
#include "runtime/train/data_passes.h"

namespace plumb {
namespace {

constexpr int64_t kFirst = 0x100;  // after the control characters
constexpr int64_t kSurrogates = 0xD800, kAfterSurrogates = 0xE000;
constexpr int64_t kByteOrderMark = 0xFEFF;  // at the start of a file it is not part of the text
constexpr int64_t kAfterLast = 0x110000;

// Returns the i-th usable character.
uint32_t CodePoint(int64_t i) {
  int64_t code = kFirst + i;
  if (code >= kSurrogates) code += kAfterSurrogates - kSurrogates;
  return static_cast<uint32_t>(code >= kByteOrderMark ? code + 1 : code);
}

// Returns at least `tokens` characters in random order, exactly `vocab_size` of them distinct, so
// that a character tokenizer has a vocabulary of this size and the tokens cover all of it. Errors:
// kInvalidArgument for more characters than Unicode has.
absl::StatusOr<std::string> RandomText(int64_t vocab_size, int64_t tokens, uint64_t seed) {
  constexpr int64_t kMax = kAfterLast - kFirst - (kAfterSurrogates - kSurrogates) - 1;
  if (vocab_size < 1 || vocab_size > kMax) {
    return absl::InvalidArgumentError(absl::StrCat("random tokens need a vocabulary of 1 to ", kMax,
                                                   " tokens, not ", vocab_size,
                                                   "; give --data FILE"));
  }
  std::string text;
  for (const int64_t i : Permutation(RngStream(seed, "bench-order"), vocab_size)) {
    AppendUtf8(CodePoint(i), &text);
  }
  const RngStream stream(seed, "bench-text");
  for (int64_t i = vocab_size; i < std::max<int64_t>(tokens, 2); ++i) {
    const uint64_t draw = stream.Below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab_size));
    AppendUtf8(CodePoint(static_cast<int64_t>(draw)), &text);
  }
  return text;
}

absl::StatusOr<Recipe> ToRecipe(const TrainBenchRequest& request) {
  Overrides overrides;
  std::string text, file = "bench";
  if (request.train_path.empty()) {
    // Small enough that no model diverges while it is timed.
    overrides = {{"learning_rate", "1e-5"}};
  } else {
    PLUMB_ASSIGN_OR_RETURN(text, ReadFile(request.train_path, kMaxTextBytes));
    file = request.train_path;
  }
  overrides.insert(overrides.end(), request.train_overrides.begin(), request.train_overrides.end());
  if (request.batch > 0) overrides.emplace_back("batch_size", absl::StrCat(request.batch));
  if (request.dtype == "f32") overrides.emplace_back("dtype", "F32");
  if (request.dtype == "bf16") overrides.emplace_back("dtype", "BF16");
  if (request.data_path.empty()) {
    overrides.emplace_back("data.format", "TEXT");
    overrides.emplace_back("data.vocabulary", "CHARACTERS");
    overrides.emplace_back("data.tokenizer", "");
    overrides.emplace_back("data.val_fraction", "0");
  }
  overrides.emplace_back("seed", absl::StrCat(request.seed));
  return ParseRecipe(text, file, overrides);
}

absl::StatusOr<Dataset> MakeData(const TrainBenchRequest& request, const Recipe& recipe,
                                 int64_t vocab_size, int64_t seq) {
  if (!request.data_path.empty()) return Dataset::Load(request.data_path, ToDatasetOptions(recipe));
  if (vocab_size == 0) {
    return absl::InvalidArgumentError(
        "vocab_size is missing; set it with --vocab N, or give --data FILE");
  }
  PLUMB_ASSIGN_OR_RETURN(
      const std::string text,
      RandomText(vocab_size, 8 * recipe.fields.batch_size() * (seq + 1), request.seed));
  return Dataset::FromContent(text, "random tokens", ToDatasetOptions(recipe));
}

}  // namespace

struct TrainBench::Impl {
  std::optional<api::Model> model;
  api::ModelInfo info = {};
  std::unique_ptr<Dataset> data;
  Recipe recipe;
  std::optional<TrainBatches> batches;
  Batch batch;
  std::optional<api::Trainer> trainer;
  bool profiles = false;
  std::map<int64_t, double> flops;  // flops of a step, keyed by tokens per row

  absl::StatusOr<double> CountFlops(int64_t tokens);
  absl::Status Profiles(bool on);
  absl::StatusOr<BenchStep> Step();
};

absl::Status TrainBench::Impl::Profiles(bool on) {
  if (on == profiles) return absl::OkStatus();
  profiles = on;
  return ToStatus(trainer->Profile(on));
}

absl::StatusOr<double> TrainBench::Impl::CountFlops(int64_t tokens) {
  const int64_t rows =
      int64_t{recipe.fields.batch_size()} * int64_t{recipe.fields.gradient_accumulation_steps()};
  const int64_t seq = std::max<int64_t>(1, CeilDiv(tokens, rows));
  const auto [it, is_new] = flops.try_emplace(seq, 0.0);
  if (is_new) {
    PLUMB_ASSIGN_OR_RETURN(
        const api::Work work,
        ToStatus(model->Work(api::Pass::kTraining, seq, api::Weights::kF32, recipe.text)));
    it->second = work.flops * static_cast<double>(rows);
  }
  return it->second;
}

absl::StatusOr<BenchStep> TrainBench::Impl::Step() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const int64_t first = trainer->Steps() * recipe.fields.gradient_accumulation_steps();
  PLUMB_ASSIGN_OR_RETURN(const api::StepInfo result, OrOutOfMemory("a training step", [&] {
                           return StepOnBatches(first, &*batches, &batch, &*trainer);
                         }));
  BenchStep step;
  step.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  step.tokens = result.tokens;
  step.loss = result.loss;
  PLUMB_ASSIGN_OR_RETURN(step.flops, CountFlops(result.tokens));
  return step;
}

TrainBench::TrainBench() : impl_(std::make_unique<Impl>()) {}
TrainBench::~TrainBench() = default;

absl::StatusOr<std::unique_ptr<TrainBench>> TrainBench::Open(HostRuntime* runtime,
                                                             const ModelSource& model,
                                                             const TrainBenchRequest& request) {
  if (!request.dtype.empty() && request.dtype != "f32" && request.dtype != "bf16") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown dtype \"", request.dtype, "\"; there are f32 and bf16"));
  }
  auto bench = std::unique_ptr<TrainBench>(new TrainBench);
  Impl& impl = *bench->impl_;
  PLUMB_ASSIGN_OR_RETURN(impl.recipe, ToRecipe(request));
  ModelSource source = model;
  if (request.seq > 0) {
    source.settings.emplace_back("context_length", absl::StrCat(request.seq));
  }
  PLUMB_ASSIGN_OR_RETURN(api::Spec spec, source.Parse());
  const int64_t vocab_size = GetVocabSize(spec);
  // Resolved once without the data, to know how much data is needed.
  if (vocab_size == 0) PLUMB_RETURN_IF_ERROR(SetField("vocab_size", "2", &spec));
  PLUMB_ASSIGN_OR_RETURN(impl.model, CreateModel(runtime, spec));
  PLUMB_ASSIGN_OR_RETURN(
      Dataset data, MakeData(request, impl.recipe, vocab_size, impl.model->Info().context_length));
  impl.data = std::make_unique<Dataset>(std::move(data));
  PLUMB_ASSIGN_OR_RETURN(spec, source.Parse());
  PLUMB_RETURN_IF_ERROR(
      FitVocabulary(impl.data->tokenizer(), impl.recipe, request.data_path, source.name, &spec));
  PLUMB_ASSIGN_OR_RETURN(impl.model, CreateModel(runtime, spec));
  impl.info = impl.model->Info();
  PLUMB_ASSIGN_OR_RETURN(impl.batches, MakeTrainBatches(impl.data.get(), impl.recipe, impl.info));
  impl.batch = impl.batches->MakeBatch();
  api::TrainerOptions options;
  options.recipe = impl.recipe.text;
  options.seq = impl.batches->max_seq();
  options.draw_weights = true;
  absl::StatusOr<api::Trainer> trainer =
      OrOutOfMemory("the parameters, the optimizer state and the training program",
                    [&] { return api::Trainer::Create(*impl.model, options); });
  if (!trainer.ok()) return impl.recipe.InFile(trainer.status());
  impl.trainer = *std::move(trainer);
  return bench;
}

int64_t TrainBench::parameters() const { return impl_->info.parameters; }
int64_t TrainBench::batch() const { return impl_->recipe.fields.batch_size(); }
int64_t TrainBench::seq() const { return impl_->info.context_length; }
std::string TrainBench::dtype() const { return GetDTypeName(impl_->recipe); }
absl::StatusOr<BenchStep> TrainBench::Step() {
  PLUMB_RETURN_IF_ERROR(impl_->Profiles(false));
  return impl_->Step();
}
absl::StatusOr<BenchStep> TrainBench::ProfiledStep() {
  PLUMB_RETURN_IF_ERROR(impl_->Profiles(true));
  return impl_->Step();
}
absl::StatusOr<Profile> TrainBench::TakeProfile() {
  const Profile profile = ToProfile(impl_->trainer->ProfileRows());
  PLUMB_RETURN_IF_ERROR(impl_->Profiles(false));
  return profile;
}

}  // namespace plumb
