// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/data/batches.h"
#include "runtime/tokenizer/stop_texts.h"
#include "runtime/tokenizer/token_decoder.h"
#include "runtime/train/data_passes.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_model.h"
#include "runtime/train/run_plugins.h"
#include "runtime/train/trained_model.h"

namespace plumb {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kEvalBatch = 16;

// Max number of samples drawn together: enough to make reading the weights cheap. It is lower if
// their caches would exceed kMaxCacheBytes.
constexpr int64_t kSamplesAtOnce = 8;
constexpr int64_t kMaxCacheBytes = int64_t{1} << 30;

}  // namespace

absl::StatusOr<api::Weights> ParseWeights(absl::string_view text) {
  const std::pair<absl::string_view, api::Weights> types[] = {
      {"f32", api::Weights::kF32}, {"bf16", api::Weights::kBf16}, {"int8", api::Weights::kInt8}};
  std::vector<std::string> names;
  for (const auto& [name, type] : types) {
    if (text == name) return type;
    names.emplace_back(name);
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown weight type \"", text, "\"",
                                                 DidYouMean(text, names),
                                                 "; there are f32, bf16 and int8"));
}

namespace {

// Clears a sequence and feeds it these tokens.
absl::Status Begin(int32_t sequence, absl::Span<const int32_t> tokens, api::Session* session) {
  PLUMB_RETURN_IF_ERROR(ToStatus(session->Truncate(sequence, 0)));
  return ToStatus(session->Feed(sequence, tokens));
}

// Beginning of a sample.
struct Prompt {
  std::vector<int32_t> tokens;  // at least one
  std::string text;  // whole characters; remaining bytes come with the first drawn tokens
  absl::optional<TokenDecoder> decoder;  // for the tokens that follow; none without a tokenizer
};

// Sample in progress.
struct Sample {
  api::SampleOptions drawing;
  std::vector<int32_t> tokens;  // so far, including the prompt
  absl::optional<TokenDecoder> decoder;
  StopTexts stops;
  GenerateResult result;
  Clock::time_point start = Clock::now();

  // Creates sample `number`, counted from the index in `first`.
  Sample(const api::SampleOptions& first, int64_t number, const Prompt& prompt,
         const StopTexts& stop_texts)
      : drawing(first), tokens(prompt.tokens), decoder(prompt.decoder), stops(stop_texts) {
    drawing.index += static_cast<uint64_t>(number);
    result.text = prompt.text;
  }

  bool WantsMore(const GenerateOptions& options) const {
    return options.max_tokens == 0 || result.tokens < options.max_tokens;
  }

  // Draws the next token of `sequence` and appends the text that it completes. Returns false after
  // an end token or a stop text.
  absl::StatusOr<bool> Draw(const SpecialTokens& special, int32_t sequence, api::Session* session) {
    drawing.drawn = result.tokens;
    int32_t token = 0;
    const auto keep = [&token](int32_t drawn) { token = drawn; };
    PLUMB_RETURN_IF_ERROR(ToStatus(session->Generate(sequence, drawing, keep)).status());
    if (result.tokens++ == 0) result.first_seconds = Seconds();
    result.ids.push_back(token);
    result.has_text = decoder.has_value();
    result.ended = special.Ends(token);
    if (result.ended) return false;
    if (decoder.has_value()) {
      std::string text;
      PLUMB_RETURN_IF_ERROR(decoder->Append(absl::MakeConstSpan(&token, 1), &text));
      result.text += stops.Add(text);
      result.ended = stops.stopped();
    }
    tokens.push_back(token);
    return !result.ended;
  }

  // Returns the newer half of a full context, from which the text continues.
  absl::Span<const int32_t> NewerHalf(int64_t context_length) const {
    const int64_t keep = std::max<int64_t>(1, context_length / 2);
    return absl::MakeConstSpan(tokens).last(static_cast<size_t>(keep));
  }

  // Completes the text.
  absl::Status Finish() {
    result.seconds = Seconds();
    if (!decoder.has_value() || stops.stopped()) return absl::OkStatus();
    std::string text;
    PLUMB_RETURN_IF_ERROR(decoder->Finish(&text));
    result.text += stops.Add(text);
    if (stops.stopped()) {
      result.ended = true;
    } else {
      result.text += stops.Rest();
    }
    return absl::OkStatus();
  }

  double Seconds() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
};

}  // namespace

struct TrainedModel::Impl {
  RunFiles files;
  std::string checkpoint;
  int64_t step = 0;
  api::Model model;
  const api::ModelInfo info = model.Info();
  api::Weights weights = api::Weights::kF32;  // format for decoding
  std::optional<api::Session> one;
  std::optional<api::Session> many;  // created on first use
  int64_t many_count = 0;            // number of its sequences
  HostRuntime* const runtime;        // takes warnings

  Impl(RunFiles run_files, api::Model of_run, HostRuntime* of_model)
      : files(std::move(run_files)), model(std::move(of_run)), runtime(of_model) {}

  bool IsFull(const api::Session& session, int32_t sequence) const {
    return session.Length(sequence) == info.context_length;
  }

  // Returns the tokens that a sample begins with, of which there is at least one.
  absl::StatusOr<Prompt> PromptOfText(const std::string& text) const {
    if (!files.tokenizer.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the imported run's tokenizer: ", files.tokenizer.status().message(),
                       "\ngive the prompt as token ids, --prompt-tokens FILE.json"));
    }
    const Tokenizer& tokenizer = *files.tokenizer;
    absl::StatusOr<std::vector<int32_t>> encoded = tokenizer.Encode(text);
    if (!encoded.ok()) return Annotate(encoded.status(), "prompt: ");
    Prompt prompt{tokenizer.prompt_prefix(), text, absl::nullopt};
    const absl::optional<int32_t> begin = tokenizer.begin_token();
    // A document begins as in training.
    const bool documents = HasDocuments(files.recipe);
    const bool wants_begin = prompt.tokens.empty() && encoded->empty();
    if (begin.has_value() && (documents || wants_begin)) prompt.tokens = {*begin};
    const size_t n = prompt.tokens.size();
    if (n > 0 && n <= encoded->size() &&
        std::equal(prompt.tokens.begin(), prompt.tokens.end(), encoded->begin())) {
      runtime->Warn(absl::StrCat("the prompt begins with ", tokenizer.TokenText(encoded->front()),
                                 ", which begins every text; it is not added again"));
      prompt.tokens.clear();
    }
    prompt.tokens.insert(prompt.tokens.end(), encoded->begin(), encoded->end());
    if (prompt.tokens.empty()) {
      // Without a begin token, a line break is the best starting point.
      const absl::StatusOr<std::vector<int32_t>> newline = tokenizer.Encode("\n");
      prompt.tokens.push_back(newline.ok() ? newline->front() : 0);
    }
    return prompt;
  }

  // Uses the tokens unchanged. Their text is known only with a tokenizer.
  absl::StatusOr<Prompt> PromptOfTokens(const std::vector<int32_t>& tokens) const {
    Prompt prompt{tokens, "", absl::nullopt};
    if (!files.tokenizer.ok()) return prompt;
    const absl::StatusOr<std::string> text = files.tokenizer->Decode(tokens);
    if (!text.ok()) return Annotate(text.status(), "prompt: ");
    prompt.text = *text;
    return prompt;
  }

  absl::StatusOr<Prompt> MakePrompt(const GenerateOptions& options) const {
    PLUMB_ASSIGN_OR_RETURN(Prompt prompt, options.prompt_tokens.empty()
                                              ? PromptOfText(options.prompt)
                                              : PromptOfTokens(options.prompt_tokens));
    for (const int32_t token : prompt.tokens) {
      if (token >= 0 && token < info.vocab_size) continue;
      return absl::InvalidArgumentError(absl::StrCat("prompt: token ", token,
                                                     " is not in the model's vocabulary of ",
                                                     info.vocab_size, " tokens"));
    }
    const int64_t limit = info.context_length;
    if (static_cast<int64_t>(prompt.tokens.size()) > limit) {
      return absl::OutOfRangeError(absl::StrCat("prompt: ", prompt.tokens.size(),
                                                " tokens are more than the model's context_length ",
                                                limit, "; shorten it"));
    }
    if (!files.tokenizer.ok()) return prompt;
    PLUMB_ASSIGN_OR_RETURN(prompt.decoder, TokenDecoder::Create(&*files.tokenizer, prompt.tokens));
    prompt.text.resize(prompt.text.size() - IncompleteUtf8End(prompt.text));
    return prompt;
  }

  // Fails if there are stop texts but no tokenizer, since they are searched for in the text.
  absl::StatusOr<StopTexts> MakeStopTexts(const GenerateOptions& options) const {
    if (!options.stop_texts.empty() && !files.tokenizer.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the imported run's tokenizer: ", files.tokenizer.status().message(),
          "\na stop text is searched for in text, which needs a tokenizer; drop --stop"));
    }
    return StopTexts::Create(options.stop_texts);
  }

  // Draws only tokens of the tokenizer, since the model's vocabulary may be larger.
  absl::StatusOr<api::SampleOptions> Drawing(const GenerateOptions& options) const {
    if (options.max_tokens < 0) return absl::InvalidArgumentError("max_tokens must be >= 0");
    api::SampleOptions drawing;
    drawing.max_tokens = 1;
    drawing.temperature = options.temperature;
    drawing.top_k = options.top_k;
    drawing.top_p = options.top_p;
    drawing.seed = options.seed;
    drawing.index = static_cast<uint64_t>(options.index);
    if (files.tokenizer.ok()) {
      drawing.vocabulary =
          static_cast<int32_t>(std::min<int64_t>(files.tokenizer->vocab_size(), info.vocab_size));
    }
    return drawing;
  }

  // Creates the session, which packs the weights.
  absl::Status MakeOne() {
    if (one.has_value()) return absl::OkStatus();
    PLUMB_ASSIGN_OR_RETURN(one, OrOutOfMemory("the packed weights", [&] {
                             return api::Session::Create(model, {1, weights});
                           }));
    return absl::OkStatus();
  }

  int64_t SamplesAtOnce(int64_t count) const {
    const int64_t bytes = weights == api::Weights::kBf16 ? info.cache_bytes / 2 : info.cache_bytes;
    return std::clamp<int64_t>(kMaxCacheBytes / std::max<int64_t>(1, bytes), 1,
                               std::min(count, kSamplesAtOnce));
  }

  // Returns the mean loss over all targets of the batches, with weights in the format `with`.
  absl::StatusOr<SplitLoss> Measure(const EvalBatches& batches, api::Weights with) {
    api::EvaluatorOptions options = ToEvaluatorOptions(batches);
    options.weights = with;
    PLUMB_ASSIGN_OR_RETURN(auto evaluator, OrOutOfMemory("the packed weights", [&] {
                             return api::Evaluator::Create(model, options);
                           }));
    Batch batch = batches.MakeBatch();
    return MeasureLoss(batches, /*max_batches=*/0, GetMasking(files.recipe, info), &evaluator,
                       &batch);
  }
};

TrainedModel::TrainedModel() = default;
TrainedModel::~TrainedModel() = default;

absl::StatusOr<std::unique_ptr<TrainedModel>> TrainedModel::OpenFiles(HostRuntime* runtime,
                                                                      const std::string& run) {
  PLUMB_ASSIGN_OR_RETURN(RunFiles files, ReadRunFiles(run, {}));
  absl::StatusOr<api::Model> of_run = CreateModel(runtime, files.model);
  if (!of_run.ok()) return NameMissingPlugins(runtime, run, of_run.status());
  runtime->ForgetWarningsAbout(RunModelPath(run));  // users saw them at training time
  auto model = std::unique_ptr<TrainedModel>(new TrainedModel);
  model->impl_ = std::make_unique<Impl>(std::move(files), *std::move(of_run), runtime);
  const Impl& impl = *model->impl_;
  const absl::StatusOr<Tokenizer>& tokenizer = impl.files.tokenizer;
  if (tokenizer.ok() && tokenizer->vocab_size() > impl.info.vocab_size) {
    runtime->Warn(absl::StrCat(run, ": tokenizer.json has ", tokenizer->vocab_size(),
                               " tokens, more than the model's vocab_size ", impl.info.vocab_size,
                               "; text that needs the others is refused"));
  }
  return model;
}

absl::StatusOr<std::unique_ptr<TrainedModel>> TrainedModel::Open(HostRuntime* runtime,
                                                                 const std::string& run,
                                                                 api::Weights weights,
                                                                 bool average) {
  PLUMB_ASSIGN_OR_RETURN(const RunAndCheckpoint where, LocateRun(run));
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<TrainedModel> model, OpenFiles(runtime, where.run));
  Impl& impl = *model->impl_;
  impl.weights = weights;
  PLUMB_ASSIGN_OR_RETURN(impl.step, MapRunWeights(runtime, where, average, &impl.model));
  impl.checkpoint = where.checkpoint.empty() ? where.run : where.checkpoint;
  if (impl.info.bidirectional == 0) PLUMB_RETURN_IF_ERROR(impl.MakeOne());
  return model;
}

absl::StatusOr<std::unique_ptr<TrainedModel>> TrainedModel::OpenWith(absl::string_view content,
                                                                     HostRuntime* runtime,
                                                                     const std::string& run) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<TrainedModel> model, OpenFiles(runtime, run));
  Impl& impl = *model->impl_;
  PLUMB_RETURN_IF_ERROR(OrOutOfMemory("the weights", [&] {
    return ToStatus(impl.model.LoadMemory(content.data(), content.size()));
  }));
  if (impl.info.bidirectional == 0) PLUMB_RETURN_IF_ERROR(impl.MakeOne());
  return model;
}

int64_t TrainedModel::step() const { return impl_->step; }
const std::string& TrainedModel::checkpoint() const { return impl_->checkpoint; }
bool TrainedModel::can_generate() const { return impl_->info.bidirectional == 0; }

absl::StatusOr<GenerateResult> TrainedModel::Generate(
    const GenerateOptions& options, const std::function<bool(absl::string_view piece)>& on_text) {
  Impl& impl = *impl_;
  PLUMB_ASSIGN_OR_RETURN(const api::SampleOptions drawing, impl.Drawing(options));
  PLUMB_ASSIGN_OR_RETURN(const StopTexts stops, impl.MakeStopTexts(options));
  PLUMB_ASSIGN_OR_RETURN(const Prompt prompt, impl.MakePrompt(options));
  PLUMB_RETURN_IF_ERROR(impl.MakeOne());
  Sample sample(drawing, 0, prompt, stops);
  api::Session& decode = *impl.one;
  PLUMB_RETURN_IF_ERROR(Begin(0, sample.tokens, &decode));
  size_t told = 0;  // bytes of the text
  const auto tell = [&] {
    const absl::string_view piece = absl::string_view(sample.result.text).substr(told);
    told = sample.result.text.size();
    return on_text == nullptr || on_text(piece);
  };
  bool stopped = false;
  while (sample.WantsMore(options)) {
    PLUMB_ASSIGN_OR_RETURN(const bool continues, sample.Draw(impl.files.special, 0, &decode));
    stopped = continues && !tell();
    if (!continues || stopped || (impl.IsFull(decode, 0) && options.max_tokens == 0)) break;
    PLUMB_RETURN_IF_ERROR(ToStatus(decode.Append(0, sample.tokens.back())));
  }
  PLUMB_RETURN_IF_ERROR(sample.Finish());
  if (!stopped) tell();
  return std::move(sample.result);
}

absl::Status TrainedModel::GenerateMany(
    const GenerateOptions& options, int64_t count,
    const std::function<bool(GenerateResult sample)>& on_sample) {
  Impl& impl = *impl_;
  if (count < 0) return absl::InvalidArgumentError("the number of samples must be >= 0");
  if (count == 0) return absl::OkStatus();
  const auto batch = static_cast<int32_t>(impl.SamplesAtOnce(count));
  if (batch <= 1) {
    GenerateOptions one = options;
    for (; one.index < options.index + count; ++one.index) {
      PLUMB_ASSIGN_OR_RETURN(GenerateResult result, Generate(one));
      if (!on_sample(std::move(result))) break;
    }
    return absl::OkStatus();
  }
  PLUMB_ASSIGN_OR_RETURN(const api::SampleOptions drawing, impl.Drawing(options));
  PLUMB_ASSIGN_OR_RETURN(const StopTexts stops, impl.MakeStopTexts(options));
  PLUMB_ASSIGN_OR_RETURN(const Prompt prompt, impl.MakePrompt(options));
  if (!impl.many.has_value() || impl.many_count != batch) {
    impl.many.reset();
    PLUMB_ASSIGN_OR_RETURN(impl.many,
                           ToStatus(api::Session::Create(impl.model, {batch, impl.weights})));
    impl.many_count = batch;
  }
  api::Session& decode = *impl.many;

  struct Slot {
    int64_t number = 0;              // number of its sample
    std::unique_ptr<Sample> sample;  // null: the slot is free
    bool full = false;               // its context is full
  };
  std::vector<Slot> slots(static_cast<size_t>(batch));
  std::vector<int32_t> inputs(static_cast<size_t>(batch));
  std::map<int64_t, GenerateResult> complete;  // keyed by number; waiting for their predecessors
  int64_t started = 0, delivered = 0, running = 0;
  while (delivered < count) {
    for (int32_t b = 0; b < batch; ++b) {
      Slot& slot = slots[static_cast<size_t>(b)];
      // A sample that ends with its first token frees its slot at once.
      while (slot.sample != nullptr || started < count) {
        if (slot.sample == nullptr) {
          slot.number = started++;
          slot.sample = std::make_unique<Sample>(drawing, slot.number, prompt, stops);
          ++running;
          PLUMB_RETURN_IF_ERROR(Begin(b, prompt.tokens, &decode));
        }
        slot.full = impl.IsFull(decode, b);
        bool continues = slot.sample->WantsMore(options);
        if (continues) {
          PLUMB_ASSIGN_OR_RETURN(continues, slot.sample->Draw(impl.files.special, b, &decode));
        }
        continues =
            continues && slot.sample->WantsMore(options) && (!slot.full || options.max_tokens > 0);
        if (continues) break;
        PLUMB_RETURN_IF_ERROR(slot.sample->Finish());
        complete.emplace(slot.number, std::move(slot.sample->result));
        slot.sample.reset();
        --running;
      }
    }
    for (auto next = complete.begin(); next != complete.end() && next->first == delivered;
         next = complete.erase(next)) {
      ++delivered;
      if (!on_sample(std::move(next->second))) return absl::OkStatus();
    }
    if (running == 0) continue;
    // Slots that are free, or must start again, take part with a token that is discarded.
    for (int32_t b = 0; b < batch; ++b) {
      const Slot& slot = slots[static_cast<size_t>(b)];
      const bool real = slot.sample != nullptr && !slot.full;
      if (!real) PLUMB_RETURN_IF_ERROR(ToStatus(decode.Truncate(b, 0)));
      inputs[static_cast<size_t>(b)] = real ? slot.sample->tokens.back() : prompt.tokens.back();
    }
    PLUMB_RETURN_IF_ERROR(ToStatus(decode.FeedBatch(inputs)));
    for (int32_t b = 0; b < batch; ++b) {
      const Slot& slot = slots[static_cast<size_t>(b)];
      if (slot.sample == nullptr || !slot.full) continue;
      PLUMB_RETURN_IF_ERROR(Begin(b, slot.sample->NewerHalf(impl.info.context_length), &decode));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SplitLoss>> TrainedModel::Evaluate(const std::string& data_path,
                                                              api::Weights weights,
                                                              int64_t stride) {
  Impl& impl = *impl_;
  if (!impl.files.tokenizer.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the imported run's tokenizer: ", impl.files.tokenizer.status().message(),
                     "\ngive token ids, --tokens FILE.json"));
  }
  PLUMB_ASSIGN_OR_RETURN(
      const Dataset data,
      Dataset::Load(data_path, ToDatasetOptions(impl.files.recipe), &*impl.files.tokenizer));
  PLUMB_RETURN_IF_ERROR(CheckOneMask(data, impl.files.recipe));
  if (stride > 0 && impl.files.recipe.fields.has_masked_tokens()) {
    return absl::InvalidArgumentError(
        "a stride needs a model that predicts the next token, and this one was trained with "
        "masked_tokens; drop --stride");
  }
  std::vector<SplitLoss> losses;
  for (Split split : {Split::kTrain, Split::kValidation}) {
    if (!data.has_targets(split)) continue;
    EvalBatches::Options options;
    options.batch_size = kEvalBatch;
    options.context_length = impl.info.context_length;
    options.stride = stride;
    options.padding = impl.info.bidirectional != 0 ? -1 : 0;
    PLUMB_ASSIGN_OR_RETURN(const EvalBatches batches, EvalBatches::Create(&data, split, options));
    PLUMB_ASSIGN_OR_RETURN(SplitLoss loss, impl.Measure(batches, weights));
    loss.split = SplitName(split);
    losses.push_back(std::move(loss));
  }
  return losses;
}

}  // namespace plumb
