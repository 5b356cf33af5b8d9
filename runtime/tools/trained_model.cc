#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "plumb.h"
#include "runtime/base/file.h"
#include "runtime/base/mistakes.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/data/batches.h"
#include "runtime/tokenizer/stop_texts.h"
#include "runtime/tokenizer/token_decoder.h"
#include "runtime/tools/generate.h"
#include "runtime/tools/handles.h"
#include "runtime/tools/out_of_memory.h"
#include "runtime/tools/run_directory.h"
#include "runtime/tools/run_model.h"
#include "runtime/tools/sequences.h"
#include "runtime/tools/split_loss.h"

namespace plumb {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kEvalBatch = 16;

// Samples that are drawn together: enough to make reading the weights cheap. Fewer when their
// caches would take more than this.
constexpr int64_t kSamplesAtOnce = 8;
constexpr int64_t kMaxCacheBytes = int64_t{1} << 30;

}  // namespace

int32_t ToPlumb(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return PLUMB_WEIGHTS_F32;
    case WeightType::kBF16:
      return PLUMB_WEIGHTS_BF16;
    case WeightType::kInt8:
      break;
  }
  return PLUMB_WEIGHTS_INT8;
}

absl::StatusOr<WeightType> ParseWeightType(absl::string_view text) {
  const std::pair<absl::string_view, WeightType> types[] = {
      {"f32", WeightType::kF32}, {"bf16", WeightType::kBF16}, {"int8", WeightType::kInt8}};
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

// What plumb.h draws with, of the first sample, from `vocabulary` tokens.
absl::StatusOr<plumb_sample_options> ToPlumb(const GenerateOptions& options, int32_t vocabulary) {
  if (options.max_tokens < 0) return absl::InvalidArgumentError("max_tokens is negative");
  // There, 0 is the default.
  if (options.top_p == 0) {
    return absl::InvalidArgumentError(
        "top_p must be above 0 and at most 1 (1 keeps all tokens), is 0");
  }
  auto drawing = Sized<plumb_sample_options>();
  drawing.max_tokens = 1;
  drawing.temperature = options.temperature;
  drawing.top_k = options.top_k;
  drawing.top_p = options.top_p;
  drawing.seed = options.seed;
  drawing.index = static_cast<uint64_t>(options.index);
  drawing.vocabulary = vocabulary;
  return drawing;
}

// What a sample begins with.
struct Prompt {
  std::vector<int32_t> tokens;  // at least one
  std::string text;             // whole characters; more bytes come with the first tokens drawn
  absl::optional<TokenDecoder> decoder;  // of what follows; none without a tokenizer
};

// One sample on its way.
struct Sample {
  plumb_sample_options drawing;
  std::vector<int32_t> tokens;  // so far, the prompt's included
  absl::optional<TokenDecoder> decoder;
  StopTexts stops;
  GenerateResult result;
  Clock::time_point start = Clock::now();

  // The sample `number` of those that begin with the prompt's index.
  Sample(const plumb_sample_options& first, int64_t number, const Prompt& prompt,
         const StopTexts& stop_texts)
      : drawing(first), tokens(prompt.tokens), decoder(prompt.decoder), stops(stop_texts) {
    drawing.index += static_cast<uint64_t>(number);
    result.text = prompt.text;
  }

  bool WantsMore(const GenerateOptions& options) const {
    return options.max_tokens == 0 || result.tokens < options.max_tokens;
  }

  // Draws the next token of `sequence`, notes it, and appends the text that is complete with it.
  // Returns false at an end token, and when the text has come to a stop text.
  absl::StatusOr<bool> Draw(const SpecialTokens& special, int64_t sequence, Sequences* sequences) {
    drawing.drawn = result.tokens;
    PLUMB_ASSIGN_OR_RETURN(const int32_t token, sequences->Draw(sequence, drawing));
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

  // The newer half of a full context, from which a text continues.
  absl::Span<const int32_t> NewerHalf(int64_t context_length) const {
    const int64_t keep = std::max<int64_t>(1, context_length / 2);
    return absl::MakeConstSpan(tokens).last(static_cast<size_t>(keep));
  }

  // Ends the text, of which nothing more comes.
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
  ModelHandle model;
  plumb_model_info info = Sized<plumb_model_info>();
  WeightType weights = WeightType::kF32;  // to decode with
  absl::optional<Sequences> one;
  absl::optional<Sequences> many;  // none until they are wanted

  explicit Impl(RunFiles run_files) : files(std::move(run_files)) {}

  // The tokens that a sample begins with: there must be at least one.
  absl::StatusOr<Prompt> PromptOfText(const std::string& text) const {
    if (!files.tokenizer.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the imported run's tokenizer: ", files.tokenizer.status().message(),
                       "\nsay the prompt as token ids, --prompt-tokens FILE.json"));
    }
    const Tokenizer& tokenizer = *files.tokenizer;
    absl::StatusOr<std::vector<int32_t>> encoded = tokenizer.Encode(text);
    if (!encoded.ok()) return Annotate(encoded.status(), "prompt: ");
    Prompt prompt{tokenizer.prompt_prefix(), text, absl::nullopt};
    const absl::optional<int32_t> begin = tokenizer.begin_token();
    // A document begins as those did that the model was trained on.
    const bool documents = files.recipe.fields.data().format() == v1::Data::DOCUMENTS;
    const bool wants_begin = prompt.tokens.empty() && encoded->empty();
    if (begin.has_value() && (documents || wants_begin)) prompt.tokens = {*begin};
    prompt.tokens.insert(prompt.tokens.end(), encoded->begin(), encoded->end());
    if (prompt.tokens.empty()) {
      // Without a begin token a line break is the best place to start from.
      const absl::StatusOr<std::vector<int32_t>> newline = tokenizer.Encode("\n");
      prompt.tokens.push_back(newline.ok() ? newline->front() : 0);
    }
    return prompt;
  }

  // Taken as they are; their text is known where there is a tokenizer.
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

  // Stop texts are looked for in text: without a tokenizer they are an error.
  absl::StatusOr<StopTexts> MakeStopTexts(const GenerateOptions& options) const {
    if (!options.stop_texts.empty() && !files.tokenizer.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the imported run's tokenizer: ", files.tokenizer.status().message(),
                       "\nwithout one there is no text in which a stop text could be found"));
    }
    return StopTexts::Create(options.stop_texts);
  }

  // Draws come from the tokens that exist; a model's vocabulary may be larger.
  absl::StatusOr<plumb_sample_options> Drawing(const GenerateOptions& options) const {
    const bool has_tokenizer = files.tokenizer.ok();
    return ToPlumb(options, has_tokenizer ? static_cast<int32_t>(std::min<int64_t>(
                                                files.tokenizer->vocab_size(), info.vocab_size))
                                          : 0);
  }

  absl::StatusOr<Sequences> MakeSequences(int64_t count) const {
    return Sequences::Create(model.get(), ToPlumb(weights), count, info.context_length);
  }

  // Packs the weights.
  absl::Status MakeOne() {
    if (one.has_value()) return absl::OkStatus();
    PLUMB_ASSIGN_OR_RETURN(one,
                           OrOutOfMemory("the packed weights", [&] { return MakeSequences(1); }));
    return absl::OkStatus();
  }

  int64_t SamplesAtOnce(int64_t count) const {
    const int64_t bytes = weights == WeightType::kBF16 ? info.cache_bytes / 2 : info.cache_bytes;
    return std::clamp<int64_t>(kMaxCacheBytes / std::max<int64_t>(1, bytes), 1,
                               std::min(count, kSamplesAtOnce));
  }

  // The mean over all targets of the batches, with those weights.
  absl::StatusOr<SplitLoss> Measure(const EvalBatches& batches, WeightType with) const {
    plumb_evaluator_options options = ToEvaluatorOptions(batches);
    options.weights = ToPlumb(with);
    PLUMB_ASSIGN_OR_RETURN(const auto evaluator, OrOutOfMemory("the packed weights", [&] {
                             return MakeHandle<EvaluatorHandle>(plumb_evaluator_create, model.get(),
                                                                &options);
                           }));
    Batch batch = batches.MakeBatch();
    return MeasureLoss(batches, /*max_batches=*/0, MaskingOf(files.recipe, info), evaluator.get(),
                       &batch);
  }
};

TrainedModel::TrainedModel() = default;
TrainedModel::~TrainedModel() = default;

absl::StatusOr<std::unique_ptr<TrainedModel>> TrainedModel::Open(HostRuntime* runtime,
                                                                 const std::string& run,
                                                                 WeightType weights, bool average) {
  PLUMB_ASSIGN_OR_RETURN(const RunAndCheckpoint where, LocateRun(run));
  PLUMB_ASSIGN_OR_RETURN(RunFiles files, ReadRunFiles(where.run, {}));
  auto model = std::unique_ptr<TrainedModel>(new TrainedModel);
  model->impl_ = std::make_unique<Impl>(std::move(files));
  Impl& impl = *model->impl_;
  impl.weights = weights;
  PLUMB_ASSIGN_OR_RETURN(impl.model, MakeHandle<ModelHandle>(plumb_model_create, runtime->handle(),
                                                             impl.files.model.handle()));
  runtime->ForgetWarningsAbout(RunModelPath(where.run));  // they were told when it was trained
  plumb_model_get_info(impl.model.get(), &impl.info);
  const absl::StatusOr<Tokenizer>& tokenizer = impl.files.tokenizer;
  if (tokenizer.ok() && tokenizer->vocab_size() > impl.info.vocab_size) {
    runtime->Warn(absl::StrCat(where.run, ": tokenizer.json has ", tokenizer->vocab_size(),
                               " tokens, more than the model's vocab_size ", impl.info.vocab_size,
                               "; text that needs the others is refused"));
  }
  PLUMB_ASSIGN_OR_RETURN(impl.step, MapRunWeights(where, average, impl.model.get()));
  impl.checkpoint = where.checkpoint.empty() ? where.run : where.checkpoint;
  if (impl.info.bidirectional == 0) PLUMB_RETURN_IF_ERROR(impl.MakeOne());
  return model;
}

int64_t TrainedModel::step() const { return impl_->step; }
const std::string& TrainedModel::checkpoint() const { return impl_->checkpoint; }
bool TrainedModel::can_generate() const { return impl_->info.bidirectional == 0; }

absl::StatusOr<GenerateResult> TrainedModel::Generate(
    const GenerateOptions& options, const std::function<bool(absl::string_view piece)>& on_text) {
  Impl& impl = *impl_;
  PLUMB_ASSIGN_OR_RETURN(const plumb_sample_options drawing, impl.Drawing(options));
  PLUMB_ASSIGN_OR_RETURN(const StopTexts stops, impl.MakeStopTexts(options));
  PLUMB_ASSIGN_OR_RETURN(const Prompt prompt, impl.MakePrompt(options));
  PLUMB_RETURN_IF_ERROR(impl.MakeOne());
  Sample sample(drawing, 0, prompt, stops);
  Sequences& decode = *impl.one;
  PLUMB_RETURN_IF_ERROR(decode.Begin(0, sample.tokens));
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
    if (!continues || stopped || (decode.is_full(0) && options.max_tokens == 0)) break;
    PLUMB_RETURN_IF_ERROR(decode.Append(0, sample.tokens.back()));
  }
  PLUMB_RETURN_IF_ERROR(sample.Finish());
  if (!stopped) tell();
  return std::move(sample.result);
}

absl::Status TrainedModel::GenerateMany(
    const GenerateOptions& options, int64_t count,
    const std::function<bool(GenerateResult sample)>& on_sample) {
  Impl& impl = *impl_;
  if (count < 0) return absl::InvalidArgumentError("the number of samples is negative");
  if (count == 0) return absl::OkStatus();
  const int64_t batch = impl.SamplesAtOnce(count);
  if (batch <= 1) {
    GenerateOptions one = options;
    for (; one.index < options.index + count; ++one.index) {
      PLUMB_ASSIGN_OR_RETURN(GenerateResult result, Generate(one));
      if (!on_sample(std::move(result))) break;
    }
    return absl::OkStatus();
  }
  PLUMB_ASSIGN_OR_RETURN(const plumb_sample_options drawing, impl.Drawing(options));
  PLUMB_ASSIGN_OR_RETURN(const StopTexts stops, impl.MakeStopTexts(options));
  PLUMB_ASSIGN_OR_RETURN(const Prompt prompt, impl.MakePrompt(options));
  if (!impl.many.has_value() || impl.many->count() != batch) {
    impl.many.reset();
    PLUMB_ASSIGN_OR_RETURN(impl.many, impl.MakeSequences(batch));
  }
  Sequences& decode = *impl.many;

  struct Slot {
    int64_t number = 0;              // of its sample
    std::unique_ptr<Sample> sample;  // null: free
    bool full = false;               // its context
  };
  std::vector<Slot> slots(static_cast<size_t>(batch));
  std::vector<int32_t> inputs(static_cast<size_t>(batch));
  std::map<int64_t, GenerateResult> complete;  // by number; waiting for those before them
  int64_t started = 0, delivered = 0, running = 0;
  while (delivered < count) {
    for (int64_t b = 0; b < batch; ++b) {
      Slot& slot = slots[static_cast<size_t>(b)];
      // Samples that end with their first token leave their place at once.
      while (slot.sample != nullptr || started < count) {
        if (slot.sample == nullptr) {
          slot.number = started++;
          slot.sample = std::make_unique<Sample>(drawing, slot.number, prompt, stops);
          ++running;
          PLUMB_RETURN_IF_ERROR(decode.Begin(b, prompt.tokens));
        }
        slot.full = decode.is_full(b);
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
    // Places that are free, or have to begin anew, take part with a token that is forgotten.
    for (int64_t b = 0; b < batch; ++b) {
      const Slot& slot = slots[static_cast<size_t>(b)];
      const bool real = slot.sample != nullptr && !slot.full;
      if (!real) PLUMB_RETURN_IF_ERROR(decode.Reset(b));
      inputs[static_cast<size_t>(b)] = real ? slot.sample->tokens.back() : prompt.tokens.back();
    }
    PLUMB_RETURN_IF_ERROR(decode.FeedEach(inputs));
    for (int64_t b = 0; b < batch; ++b) {
      const Slot& slot = slots[static_cast<size_t>(b)];
      if (slot.sample == nullptr || !slot.full) continue;
      PLUMB_RETURN_IF_ERROR(decode.Begin(b, slot.sample->NewerHalf(impl.info.context_length)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SplitLoss>> TrainedModel::Evaluate(const std::string& data_path,
                                                              WeightType weights, int64_t stride) {
  Impl& impl = *impl_;
  if (!impl.files.tokenizer.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the imported run's tokenizer: ", impl.files.tokenizer.status().message(),
                     "\ngive token ids, --tokens FILE.json"));
  }
  PLUMB_ASSIGN_OR_RETURN(
      const Dataset data,
      Dataset::Load(data_path, ToDatasetOptions(impl.files.recipe), &*impl.files.tokenizer));
  if (stride > 0 && impl.files.recipe.fields.has_masked_tokens()) {
    return absl::InvalidArgumentError(
        "a stride is for models that predict the next token; this one fills gaps (masked_tokens)");
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
