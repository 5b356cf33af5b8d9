#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/api/runtime_impl.h"
#include "runtime/base/file.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/base/suggest.h"
#include "runtime/session/checkpoint.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/evaluate.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/sampler.h"
#include "runtime/tools/generate.h"
#include "runtime/tools/out_of_memory.h"
#include "runtime/tools/run_directory.h"

namespace plumb {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kEvalBatch = 16;

// Samples that are drawn together: enough to make reading the weights cheap. Fewer when their
// caches would take more than this.
constexpr int64_t kSamplesAtOnce = 8;
constexpr int64_t kMaxCacheBytes = int64_t{1} << 30;

WeightFormat ToWeightFormat(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return WeightFormat::kF32;
    case WeightType::kBF16:
      return WeightFormat::kBf16;
    case WeightType::kInt8:
      break;
  }
  return WeightFormat::kInt8;
}

// A run's directory and which of its checkpoints is meant.
struct RunAndCheckpoint {
  std::string run, checkpoint;
};

absl::StatusOr<RunAndCheckpoint> Locate(const std::string& path) {
  if (FileExists(JoinPath(path, "state.json"))) {
    return RunAndCheckpoint{JoinPath(path, "../.."), path};
  }
  if (!IsRunDirectory(path)) {
    return NoRun(
        path, absl::StrCat(path, ": is neither a run nor a checkpoint; plumb train makes a run"));
  }
  PLUMB_ASSIGN_OR_RETURN(std::string checkpoint, FindLatestCheckpoint(path));
  return RunAndCheckpoint{path, std::move(checkpoint)};
}

}  // namespace

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

// One sample on its way.
struct Sample {
  RngStream stream;
  std::vector<int32_t> tokens;  // so far, the prompt's included
  GenerateResult result;
  Clock::time_point start = Clock::now();

  Sample(const GenerateOptions& options, int64_t index, std::vector<int32_t> prompt)
      : stream(options.seed, "sample", static_cast<uint64_t>(index)), tokens(std::move(prompt)) {
    result.text = options.prompt;
  }

  bool WantsMore(const GenerateOptions& options) const {
    return options.max_tokens == 0 || result.tokens < options.max_tokens;
  }

  // Draws the next token from `logits`, appends it, and puts its text into `piece`. False when it
  // is the end token.
  absl::StatusOr<bool> Draw(const float* logits, const Tokenizer& tokenizer, TokenSampler* sampler,
                            std::string* piece) {
    PLUMB_ASSIGN_OR_RETURN(const int32_t token,
                           sampler->Draw(logits, stream, static_cast<uint64_t>(result.tokens)));
    ++result.tokens;
    result.ended = tokenizer.begin_end_token() == token;
    if (result.ended) return false;
    PLUMB_ASSIGN_OR_RETURN(*piece, tokenizer.Decode(absl::MakeConstSpan(&token, 1)));
    result.text += *piece;
    tokens.push_back(token);
    return true;
  }

  // The newer half of a full context, from which a text continues.
  absl::Span<const int32_t> NewerHalf(const DecodeSession& decode) const {
    const int64_t keep = std::max<int64_t>(1, decode.context_length() / 2);
    return absl::MakeConstSpan(tokens).last(static_cast<size_t>(keep));
  }

  GenerateResult Finish() {
    result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(result);
  }
};

}  // namespace

struct TrainedModel::Impl {
  RunFiles files;
  std::string checkpoint;
  int64_t step = 0;
  int threads = 1;
  std::unique_ptr<ModelContext> context;
  std::unique_ptr<ParameterStore> parameters;
  WeightType weights = WeightType::kF32;  // to decode with
  std::map<WeightType, std::unique_ptr<PackedWeights>> packed;
  std::unique_ptr<DecodeSession> decode;       // one sequence
  std::unique_ptr<DecodeSession> decode_many;  // null until it is wanted

  explicit Impl(RunFiles run_files) : files(std::move(run_files)) {}

  // The tokens that a sample begins with: there must be at least one.
  absl::StatusOr<std::vector<int32_t>> PromptTokens(const std::string& prompt) const {
    const Tokenizer& tokenizer = files.tokenizer;
    absl::StatusOr<std::vector<int32_t>> text = tokenizer.Encode(prompt);
    if (!text.ok()) return Annotate(text.status(), "prompt: ");
    std::vector<int32_t> tokens;
    if (tokenizer.begin_end_token().has_value()) tokens.push_back(*tokenizer.begin_end_token());
    tokens.insert(tokens.end(), text->begin(), text->end());
    if (tokens.empty()) {
      // Without a begin token a line break is the best place to start from.
      const absl::StatusOr<std::vector<int32_t>> newline = tokenizer.Encode("\n");
      tokens.push_back(newline.ok() ? newline->front() : 0);
    }
    const int64_t limit = context->model.dims.context_length;
    if (static_cast<int64_t>(tokens.size()) > limit) {
      return absl::OutOfRangeError(absl::StrCat("prompt: ", tokens.size(),
                                                " tokens are more than the model's context_length ",
                                                limit, "; shorten it"));
    }
    return tokens;
  }

  // Draws come from the tokens that exist; a model's vocabulary may be larger.
  absl::StatusOr<TokenSampler> MakeSampler(const GenerateOptions& options) const {
    if (options.max_tokens < 0) return absl::InvalidArgumentError("max_tokens is negative");
    SamplingOptions sampling;
    sampling.temperature = options.temperature;
    sampling.top_k = options.top_k;
    sampling.top_p = options.top_p;
    sampling.seed = options.seed;
    return TokenSampler::Create(sampling, files.tokenizer.vocab_size());
  }

  // The weights in that form, packed at their first use.
  absl::StatusOr<const PackedWeights*> Weights(WeightType type) {
    std::unique_ptr<PackedWeights>& made = packed[type];
    if (made != nullptr) return made.get();
    PLUMB_RETURN_IF_ERROR(OrOutOfMemory("the packed weights", [&] {
      made = std::make_unique<PackedWeights>(*context, ToWeightFormat(type), *parameters, threads);
      return absl::OkStatus();
    }));
    return made.get();
  }

  int64_t SamplesAtOnce(int64_t count) const {
    const ModelDims& dims = context->model.dims;
    const int64_t bytes = 2 * static_cast<int64_t>(context->model.layers.size()) *
                          dims.context_length * dims.n_kv_head * dims.head_dim *
                          SizeOf(weights == WeightType::kBF16 ? DType::kBF16 : DType::kF32);
    return std::clamp<int64_t>(kMaxCacheBytes / std::max<int64_t>(1, bytes), 1,
                               std::min(count, kSamplesAtOnce));
  }
};

TrainedModel::TrainedModel() = default;
TrainedModel::~TrainedModel() = default;

absl::StatusOr<std::unique_ptr<TrainedModel>> TrainedModel::Open(Runtime* runtime,
                                                                 const std::string& run,
                                                                 WeightType weights) {
  PLUMB_ASSIGN_OR_RETURN(const RunAndCheckpoint where, Locate(run));
  PLUMB_ASSIGN_OR_RETURN(RunFiles files, ReadRunFiles(where.run, {}));
  auto model = std::unique_ptr<TrainedModel>(new TrainedModel);
  model->impl_ = std::make_unique<Impl>(std::move(files));
  Impl& impl = *model->impl_;
  impl.threads = runtime->threads();
  impl.weights = weights;
  PLUMB_ASSIGN_OR_RETURN(impl.context, runtime->impl().MakeContext(impl.files.model));
  PLUMB_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(where.checkpoint));
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile file, OpenCheckpointModel(checkpoint));
  PLUMB_RETURN_IF_ERROR(OrOutOfMemory("the weights", [&] {
    impl.parameters = std::make_unique<ParameterStore>(
        impl.context->parameters, impl.context->states, FormToKeep(ToWeightFormat(weights)));
    return impl.parameters->Read(file);
  }));
  impl.checkpoint = where.checkpoint;
  impl.step = checkpoint.step;
  PLUMB_ASSIGN_OR_RETURN(const PackedWeights* const packed, impl.Weights(weights));
  impl.decode = std::make_unique<DecodeSession>(impl.context.get(), packed, 1, impl.threads);
  return model;
}

int64_t TrainedModel::step() const { return impl_->step; }
const std::string& TrainedModel::checkpoint() const { return impl_->checkpoint; }

absl::StatusOr<GenerateResult> TrainedModel::Generate(
    const GenerateOptions& options, const std::function<bool(absl::string_view piece)>& on_text) {
  Impl& impl = *impl_;
  PLUMB_ASSIGN_OR_RETURN(TokenSampler sampler, impl.MakeSampler(options));
  PLUMB_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, impl.PromptTokens(options.prompt));
  Sample sample(options, options.index, std::move(prompt));
  DecodeSession& decode = *impl.decode;
  decode.Reset();
  PLUMB_RETURN_IF_ERROR(decode.Feed(sample.tokens));
  std::string piece;
  while (sample.WantsMore(options)) {
    PLUMB_ASSIGN_OR_RETURN(const bool continues,
                           sample.Draw(decode.logits(), impl.files.tokenizer, &sampler, &piece));
    if (!continues || (on_text != nullptr && !on_text(piece))) break;
    if (decode.length() < decode.context_length()) {
      PLUMB_RETURN_IF_ERROR(decode.Feed(absl::MakeConstSpan(sample.tokens).last(1)));
      continue;
    }
    if (options.max_tokens == 0) break;
    decode.Reset();
    PLUMB_RETURN_IF_ERROR(decode.Feed(sample.NewerHalf(decode)));
  }
  return sample.Finish();
}

absl::Status TrainedModel::GenerateMany(
    const GenerateOptions& options, int64_t count,
    const std::function<bool(GenerateResult sample)>& on_sample) {
  Impl& impl = *impl_;
  const int64_t batch = impl.SamplesAtOnce(count);
  if (count < 0) return absl::InvalidArgumentError("the number of samples is negative");
  if (batch <= 1) {
    GenerateOptions one = options;
    for (; one.index < options.index + count; ++one.index) {
      PLUMB_ASSIGN_OR_RETURN(GenerateResult result, Generate(one));
      if (!on_sample(std::move(result))) break;
    }
    return absl::OkStatus();
  }
  PLUMB_ASSIGN_OR_RETURN(TokenSampler sampler, impl.MakeSampler(options));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, impl.PromptTokens(options.prompt));
  if (impl.decode_many == nullptr || impl.decode_many->batch() != batch) {
    PLUMB_ASSIGN_OR_RETURN(const PackedWeights* const packed, impl.Weights(impl.weights));
    impl.decode_many =
        std::make_unique<DecodeSession>(impl.context.get(), packed, batch, impl.threads);
  }
  DecodeSession& decode = *impl.decode_many;
  decode.Reset();

  struct Slot {
    int64_t number = 0;              // of its sample
    std::unique_ptr<Sample> sample;  // null: free
    bool full = false;               // its context
  };
  std::vector<Slot> slots(static_cast<size_t>(batch));
  std::vector<int32_t> inputs(static_cast<size_t>(batch));
  std::map<int64_t, GenerateResult> complete;  // by number; waiting for those before them
  int64_t started = 0, delivered = 0, running = 0;
  std::string piece;
  while (delivered < count) {
    for (int64_t b = 0; b < batch; ++b) {
      Slot& slot = slots[static_cast<size_t>(b)];
      // Samples that end with their first token leave their place at once.
      while (slot.sample != nullptr || started < count) {
        if (slot.sample == nullptr) {
          slot.number = started++;
          slot.sample = std::make_unique<Sample>(options, options.index + slot.number, prompt);
          ++running;
          decode.Reset(b);
          PLUMB_RETURN_IF_ERROR(decode.Feed(b, prompt));
        }
        slot.full = decode.length(b) == decode.context_length();
        bool continues = slot.sample->WantsMore(options);
        if (continues) {
          PLUMB_ASSIGN_OR_RETURN(
              continues,
              slot.sample->Draw(decode.logits(b), impl.files.tokenizer, &sampler, &piece));
        }
        continues =
            continues && slot.sample->WantsMore(options) && (!slot.full || options.max_tokens > 0);
        if (continues) break;
        complete.emplace(slot.number, slot.sample->Finish());
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
      if (!real) decode.Reset(b);
      inputs[static_cast<size_t>(b)] = real ? slot.sample->tokens.back() : prompt.back();
    }
    PLUMB_RETURN_IF_ERROR(decode.FeedEach(inputs));
    for (int64_t b = 0; b < batch; ++b) {
      const Slot& slot = slots[static_cast<size_t>(b)];
      if (slot.sample == nullptr || !slot.full) continue;
      decode.Reset(b);
      PLUMB_RETURN_IF_ERROR(decode.Feed(b, slot.sample->NewerHalf(decode)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SplitLoss>> TrainedModel::Evaluate(const std::string& data_path,
                                                              WeightType weights, int64_t stride) {
  Impl& impl = *impl_;
  PLUMB_ASSIGN_OR_RETURN(
      const Dataset data,
      Dataset::Load(data_path, ToDatasetOptions(impl.files.train), &impl.files.tokenizer));
  PLUMB_ASSIGN_OR_RETURN(const PackedWeights* const packed, impl.Weights(weights));
  std::vector<SplitLoss> losses;
  for (Split split : {Split::kTrain, Split::kValidation}) {
    if (!data.has_targets(split)) continue;
    PLUMB_ASSIGN_OR_RETURN(const auto session,
                           EvalSession::Create(impl.context.get(), packed, &data, split, kEvalBatch,
                                               impl.threads, stride));
    PLUMB_ASSIGN_OR_RETURN(const EvalResult result, session->Run(0));
    losses.push_back({SplitName(split), result.loss, result.targets, result.sequences});
  }
  return losses;
}

}  // namespace plumb
