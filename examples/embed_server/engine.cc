// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <utility>

namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw std::runtime_error(path.string() + ": cannot be read");
  return content;
}

const char* Name(plumb::FinishReason reason) {
  switch (reason) {
    case plumb::FinishReason::kStop:
      return "stop";
    case plumb::FinishReason::kLength:
      return "length";
    case plumb::FinishReason::kContext:
      break;
  }
  return "context";
}

}  // namespace

Engine::Engine(const std::string& run_directory, int requests, int threads) {
  const std::filesystem::path run = std::filesystem::canonical(run_directory);
  name_ = run.filename().string();
  plumb::RuntimeOptions options;
  options.threads = threads;
  plumb::Runtime runtime = plumb::Runtime::Create(options).value();
  plumb::Run opened = plumb::Run::Open(runtime, run.string()).value();
  plumb::Model& model = opened.model;
  tokenizer_ = std::make_unique<plumb::Tokenizer>(std::move(opened.tokenizer));
  special_tokens_ = tokenizer_->Info();
  // RecipeText writes every field on its own line. An imported run has no recipe.
  const std::filesystem::path recipe = run / "train.pbtxt";
  has_documents_ =
      std::filesystem::exists(recipe) &&
      plumb::RecipeText(ReadFile(recipe)).value().find("format: DOCUMENTS") != std::string::npos;
  context_length_ = model.Info().context_length;
  // All memory for requests is allocated before the first one.
  batch_ = std::make_unique<Batch>(model, requests);
}

std::unique_ptr<Engine::Job> Engine::Begin(const CompletionRequest& request) {
  std::unique_ptr<Job> job(new Job(this, request));
  job->Encode();
  job->place_ = batch_->Take();
  if (!job->place_) {
    throw ApiError(429, "rate_limit_error", "all requests that may run at once do: try again", "",
                   "rate_limit_exceeded");
  }
  return job;
}

Engine::Job::Job(Engine* engine, const CompletionRequest& request)
    : engine_(engine), request_(request) {
  std::random_device random;
  seed_ = request.seed.value_or(static_cast<std::uint64_t>(random()) << 32 | random());
}

Engine::Job::~Job() {
  if (place_) engine_->batch_->Release(*place_);
}

std::int64_t Engine::Job::prompt_tokens() const {
  std::size_t tokens = 0;
  for (const auto& prompt : prompts_) tokens += prompt.size();
  return static_cast<std::int64_t>(tokens);
}

// Returns the tokens that `plumb sample --prompt` feeds for a text.
std::vector<std::int32_t> Engine::GetTokens(const std::string& text) const {
  auto encoded = tokenizer_->Encode(text);
  if (!encoded) throw BadField("prompt", "cannot be encoded: " + encoded.error().message());
  std::vector<std::int32_t> tokens = special_tokens_.prefix;
  const std::int32_t begin = special_tokens_.begin;
  const bool is_empty = tokens.empty() && encoded->empty();
  if (begin >= 0 && (has_documents_ || is_empty)) tokens = {begin};
  if (tokens.size() <= encoded->size() &&
      std::equal(tokens.begin(), tokens.end(), encoded->begin())) {
    tokens.clear();  // the text begins with them itself
  }
  tokens.insert(tokens.end(), encoded->begin(), encoded->end());
  if (tokens.empty()) {  // a line break is the best start available
    const auto line_break = tokenizer_->Encode("\n");
    tokens.push_back(line_break && !line_break->empty() ? line_break->front() : 0);
  }
  return tokens;
}

// Converts the prompts to token ids, and computes how many tokens may follow each.
void Engine::Job::Encode() {
  constexpr std::int64_t kUsual = 16;  // OpenAI's default
  for (const CompletionRequest::Prompt& prompt : request_.prompts) {
    std::vector<std::int32_t> tokens;
    if (const auto* const text = std::get_if<std::string>(&prompt)) {
      tokens = engine_->GetTokens(*text);
    } else {
      tokens = std::get<std::vector<std::int32_t>>(prompt);
      if (tokens.empty()) throw BadField("prompt", "has no tokens");
      if (const auto text_of = engine_->tokenizer_->Decode(tokens); !text_of) {
        throw BadField("prompt", text_of.error().message());
      }
    }
    const std::int64_t room = engine_->context_length_ - static_cast<std::int64_t>(tokens.size());
    const std::int64_t wanted = request_.max_tokens.value_or(0);
    if (wanted > room || room < 0) {
      throw ApiError(400, "invalid_request_error",
                     "the context is " + std::to_string(engine_->context_length_) +
                         " tokens; the prompt has " + std::to_string(tokens.size()) +
                         ", and max_tokens is " + std::to_string(wanted),
                     wanted > 0 ? "max_tokens" : "prompt", "context_length_exceeded");
    }
    prompts_.push_back(std::move(tokens));
    // If the usual number does not fit, a text ends when the context is full. The last token is
    // drawn from the full context.
    max_tokens_.push_back(request_.max_tokens ? request_.max_tokens
                          : room + 1 < kUsual ? std::nullopt
                                              : std::optional(kUsual));
  }
}

bool Engine::Job::Run(const Tell& tell) {
  std::size_t choice = 0;
  for (std::size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    for (std::int64_t i = 0; i < request_.n; ++i, ++choice) {
      if (!RunChoice(prompt, choice, tell)) return false;
    }
  }
  return true;
}

bool Engine::Job::RunChoice(std::size_t prompt, std::size_t choice, const Tell& tell) {
  const plumb::Tokenizer& tokenizer = *engine_->tokenizer_;
  const std::vector<std::int32_t>& tokens = prompts_[prompt];
  const auto* const text = std::get_if<std::string>(&request_.prompts[prompt]);
  auto decoder = plumb::Decoder::Create(tokenizer, tokens).value();
  if (request_.echo && text != nullptr) {
    if (!tell(choice, *text, "")) return false;
  } else if (request_.echo) {
    // Decodes the prompt and the text after it together: a character may begin in the prompt.
    decoder = plumb::Decoder::Create(tokenizer).value();
    if (!tell(choice, decoder.Next(tokens).value(), "")) return false;
  }
  if (max_tokens_[prompt] == 0) {
    return tell(choice, request_.echo ? decoder.Finish().value() : "", "length");
  }
  plumb::SampleOptions options;
  options.max_tokens = max_tokens_[prompt].value_or(0);
  // With top_p 0 only the most likely token remains, as with temperature 0.
  options.temperature = request_.top_p == 0 ? 0 : request_.temperature;
  if (request_.top_p > 0) options.top_p = request_.top_p;
  options.seed = seed_;
  options.index = choice;
  options.vocabulary = engine_->special_tokens_.vocab_size;
  options.end_tokens = engine_->special_tokens_.end_tokens;
  decoder.StopAt(request_.stop).value();
  Batch& batch = *engine_->batch_;
  batch.Begin(*place_, tokens, options);
  while (const std::optional<std::int32_t> token = batch.Next(*place_)) {
    ++completion_tokens_;
    const std::string piece = decoder.Next(*token).value();
    if (decoder.Stopped()) return tell(choice, piece, "stop");
    if (!tell(choice, piece, "")) return false;
  }
  const plumb::Result<plumb::FinishReason> reason = batch.Finish(*place_);
  if (!reason && reason.error().code() == plumb::Code::kCancelled) return false;
  if (reason.value() == plumb::FinishReason::kStop) ++completion_tokens_;  // an end token
  const std::string rest = decoder.Finish().value();
  return tell(choice, rest, decoder.Stopped() ? "stop" : Name(*reason));
}
