#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plumb/generate.h"
#include "runtime/api/out_of_memory.h"
#include "runtime/api/run_directory.h"
#include "runtime/api/runtime_impl.h"
#include "runtime/base/file.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/session/checkpoint.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/evaluate.h"
#include "runtime/session/sampler.h"

namespace plumb {
namespace {

constexpr int64_t kEvalBatch = 16;

// A run's directory and which of its checkpoints is meant.
struct RunAndCheckpoint {
  std::string run, checkpoint;
};

absl::StatusOr<RunAndCheckpoint> Locate(const std::string& path) {
  if (FileExists(JoinPath(path, "state.json"))) {
    return RunAndCheckpoint{JoinPath(path, "../.."), path};
  }
  if (!IsRunDirectory(path)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": is neither a run nor a checkpoint; plumb train makes a run"));
  }
  PLUMB_ASSIGN_OR_RETURN(std::string checkpoint, FindLatestCheckpoint(path));
  return RunAndCheckpoint{path, std::move(checkpoint)};
}

}  // namespace

struct TrainedModel::Impl {
  RunFiles files;
  std::string checkpoint;
  int64_t step = 0;
  int threads = 1;
  std::unique_ptr<ModelContext> context;
  std::unique_ptr<ParameterStore> parameters;
  std::unique_ptr<DecodeSession> decode;

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
};

TrainedModel::TrainedModel() = default;
TrainedModel::~TrainedModel() = default;

absl::StatusOr<std::unique_ptr<TrainedModel>> TrainedModel::Open(Runtime* runtime,
                                                                 const std::string& run) {
  PLUMB_ASSIGN_OR_RETURN(const RunAndCheckpoint where, Locate(run));
  PLUMB_ASSIGN_OR_RETURN(RunFiles files, ReadRunFiles(where.run, {}));
  auto model = std::unique_ptr<TrainedModel>(new TrainedModel);
  model->impl_ = std::make_unique<Impl>(std::move(files));
  Impl& impl = *model->impl_;
  impl.threads = runtime->threads();
  PLUMB_ASSIGN_OR_RETURN(impl.context, runtime->impl().MakeContext(impl.files.model));
  PLUMB_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(where.checkpoint));
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile weights, OpenCheckpointModel(checkpoint));
  PLUMB_RETURN_IF_ERROR(OrOutOfMemory([&] {
    impl.parameters =
        std::make_unique<ParameterStore>(impl.context->parameters, impl.context->states);
    return impl.parameters->Read(weights);
  }));
  impl.checkpoint = where.checkpoint;
  impl.step = checkpoint.step;
  impl.decode =
      std::make_unique<DecodeSession>(impl.context.get(), impl.parameters.get(), impl.threads);
  return model;
}

int64_t TrainedModel::step() const { return impl_->step; }
const std::string& TrainedModel::checkpoint() const { return impl_->checkpoint; }

absl::StatusOr<GenerateResult> TrainedModel::Generate(
    const GenerateOptions& options, const std::function<bool(absl::string_view piece)>& on_text) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  if (options.max_tokens < 0) return absl::InvalidArgumentError("max_tokens is negative");
  Impl& impl = *impl_;
  const Tokenizer& tokenizer = impl.files.tokenizer;
  SamplingOptions sampling;
  sampling.temperature = options.temperature;
  sampling.top_k = options.top_k;
  sampling.top_p = options.top_p;
  sampling.seed = options.seed;
  // Draws come from the tokens that exist; a model may have room for more.
  PLUMB_ASSIGN_OR_RETURN(TokenSampler sampler,
                         TokenSampler::Create(sampling, tokenizer.vocab_size()));
  const RngStream stream(options.seed, "sample", static_cast<uint64_t>(options.index));
  PLUMB_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, impl.PromptTokens(options.prompt));
  DecodeSession& decode = *impl.decode;
  decode.Reset();
  PLUMB_RETURN_IF_ERROR(decode.Feed(tokens));

  GenerateResult result;
  result.text = options.prompt;
  while (options.max_tokens == 0 || result.tokens < options.max_tokens) {
    PLUMB_ASSIGN_OR_RETURN(const int32_t token, sampler.Draw(decode.logits(), stream,
                                                             static_cast<uint64_t>(result.tokens)));
    ++result.tokens;
    if (tokenizer.begin_end_token().has_value() && token == *tokenizer.begin_end_token()) {
      result.ended = true;
      break;
    }
    PLUMB_ASSIGN_OR_RETURN(const std::string piece,
                           tokenizer.Decode(absl::MakeConstSpan(&token, 1)));
    result.text += piece;
    if (on_text != nullptr && !on_text(piece)) break;
    tokens.push_back(token);
    if (decode.length() < decode.context_length()) {
      PLUMB_RETURN_IF_ERROR(decode.Feed(absl::MakeConstSpan(&token, 1)));
      continue;
    }
    if (options.max_tokens == 0) break;
    // The context is full and more is wanted: go on from its newer half.
    const size_t keep = static_cast<size_t>(std::max<int64_t>(1, decode.context_length() / 2));
    decode.Reset();
    PLUMB_RETURN_IF_ERROR(decode.Feed(absl::MakeConstSpan(tokens).last(keep)));
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

absl::StatusOr<std::vector<SplitLoss>> TrainedModel::Evaluate(const std::string& data_path) {
  Impl& impl = *impl_;
  PLUMB_ASSIGN_OR_RETURN(
      const Dataset data,
      Dataset::Load(data_path, ToDatasetOptions(impl.files.train), &impl.files.tokenizer));
  std::vector<SplitLoss> losses;
  for (Split split : {Split::kTrain, Split::kValidation}) {
    if (!data.has_targets(split)) continue;
    PLUMB_ASSIGN_OR_RETURN(const auto session,
                           EvalSession::Create(impl.context.get(), impl.parameters.get(), &data,
                                               split, kEvalBatch, impl.threads));
    PLUMB_ASSIGN_OR_RETURN(const EvalResult result, session->Run(0));
    losses.push_back({SplitName(split), result.loss, result.targets, result.sequences});
  }
  return losses;
}

}  // namespace plumb
