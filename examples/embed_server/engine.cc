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
  if (!file)
    throw std::runtime_error(path.string() + ": cannot be read: is this a run's directory?");
  return content;
}

// How much of `text` is whole characters: the last may lack bytes that are still to come.
std::size_t WholeCharacters(const std::string& text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // not the first of its character
    const std::size_t bytes = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return bytes > back ? text.size() - back : text.size();
  }
  return text.size();
}

// Text on its way to a client: cut at the first stop, and held back where one may be about to come.
class Outbox {
 public:
  explicit Outbox(const std::vector<std::string>& stops) : stops_(stops) {}

  void Add(const std::string& text) { held_ += text; }
  // Whether a stop has come. What was before it is then the rest.
  bool AtStop() {
    std::size_t first = std::string::npos;
    for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
    if (first == std::string::npos) return false;
    held_.resize(first);
    return true;
  }
  // What can be sent by now.
  std::string Take() {
    std::size_t size = WholeCharacters(held_);
    for (const std::string& stop : stops_) {
      // The longest beginning of a stop that the text ends with.
      for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > 0; --n) {
        if (held_.compare(held_.size() - n, n, stop, 0, n) != 0) continue;
        size = std::min(size, held_.size() - n);
        break;
      }
    }
    std::string taken = held_.substr(0, size);
    held_.erase(0, size);
    return taken;
  }
  std::string Rest() { return std::exchange(held_, ""); }

 private:
  const std::vector<std::string>& stops_;
  std::string held_;
};

}  // namespace

Engine::Engine(const std::string& run_directory, int sessions, int threads) {
  const std::filesystem::path run = std::filesystem::canonical(run_directory);
  name_ = run.filename().string();
  std::string latest = ReadFile(run / "latest");
  latest.erase(latest.find_last_not_of("\r\n") + 1);

  plumb::RuntimeOptions options;
  options.threads = threads;
  plumb::Runtime runtime = plumb::Runtime::Create(options).value();
  const auto spec = plumb::Spec::FromFile((run / "model.pbtxt").string()).value();
  plumb::Model model = plumb::Model::Create(runtime, spec).value();
  model.Load((run / "checkpoints" / latest / "model.safetensors").string()).value();
  tokenizer_ = std::make_unique<plumb::Tokenizer>(
      plumb::Tokenizer::FromJson(ReadFile(run / "tokenizer.json")).value());
  context_length_ = model.Info().context_length;
  // All memory that requests need is here before the first one. The model lives on in its sessions.
  for (int i = 0; i < sessions; ++i) sessions_.push_back(plumb::Session::Create(model).value());
  for (plumb::Session& session : sessions_) idle_.push_back(&session);
}

plumb::Session* Engine::Acquire() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) throw ApiError(503, "server_error", "the server is shutting down");
  if (idle_.empty()) {
    throw ApiError(429, "rate_limit_error",
                   "all " + std::to_string(sessions_.size()) + " sessions are busy: try again", "",
                   "rate_limit_exceeded");
  }
  plumb::Session* const session = idle_.back();
  idle_.pop_back();
  return session;
}

void Engine::Release(plumb::Session* session) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(session);
}

void Engine::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  for (const plumb::Session& session : sessions_) session.Cancel();
}

std::unique_ptr<Engine::Job> Engine::Begin(const CompletionRequest& request) {
  std::unique_ptr<Job> job(new Job(this, request));
  job->Encode();
  job->session_ = Acquire();
  return job;
}

Engine::Job::Job(Engine* engine, const CompletionRequest& request)
    : engine_(engine), request_(request) {
  std::random_device random;
  seed_ = request.seed.value_or(static_cast<std::uint64_t>(random()) << 32 | random());
}

Engine::Job::~Job() {
  if (session_ != nullptr) engine_->Release(session_);
}

std::int64_t Engine::Job::prompt_tokens() const {
  std::size_t tokens = 0;
  for (const auto& prompt : prompts_) tokens += prompt.size();
  return static_cast<std::int64_t>(tokens);
}

// Prompts as token ids, and how many tokens may follow each.
void Engine::Job::Encode() {
  constexpr std::int64_t kUsual = 16;  // OpenAI's default
  const std::int32_t begin = engine_->tokenizer_->BeginEnd();
  for (const CompletionRequest::Prompt& prompt : request_.prompts) {
    std::vector<std::int32_t> tokens;
    if (const auto* const text = std::get_if<std::string>(&prompt)) {
      auto encoded = engine_->tokenizer_->Encode(*text);
      if (!encoded) throw BadField("prompt", "cannot be encoded: " + encoded.error().message());
      tokens = *std::move(encoded);
      // A document begins with this token.
      if (begin >= 0) tokens.insert(tokens.begin(), begin);
    } else {
      tokens = std::get<std::vector<std::int32_t>>(prompt);
      if (const auto text_of = engine_->tokenizer_->Decode(tokens); !text_of) {
        throw BadField("prompt", text_of.error().message());
      }
    }
    if (tokens.empty()) throw BadField("prompt", "is empty, and nothing else begins a text here");
    const std::int64_t room = engine_->context_length_ - static_cast<std::int64_t>(tokens.size());
    const std::int64_t wanted =
        request_.max_tokens.value_or(std::clamp<std::int64_t>(room, 0, kUsual));
    if (wanted > room) {
      throw ApiError(400, "invalid_request_error",
                     "the context is " + std::to_string(engine_->context_length_) +
                         " tokens; the prompt has " + std::to_string(tokens.size()) +
                         ", and max_tokens is " + std::to_string(wanted),
                     request_.max_tokens ? "max_tokens" : "prompt", "context_length_exceeded");
    }
    prompts_.push_back(std::move(tokens));
    max_tokens_.push_back(wanted);
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
  if (request_.echo && !tell(choice, tokenizer.Decode(tokens).value(), "")) return false;
  if (max_tokens_[prompt] == 0) return tell(choice, "", "length");
  session_->Truncate(0, 0).value();
  session_->Feed(0, tokens).value();

  plumb::SampleOptions options;
  options.max_tokens = max_tokens_[prompt];
  // The fewest tokens with a share of 0 are the most likely one.
  options.temperature = request_.top_p == 0 ? 0 : request_.temperature;
  options.top_p = request_.top_p;
  options.seed = seed_;
  options.index = choice;
  options.vocabulary = tokenizer.VocabSize();
  Outbox outbox(request_.stop);
  std::string finish_reason = "length";
  bool is_heard = true;
  const auto generated = session_->Generate(0, options, [&](std::int32_t token) {
    ++completion_tokens_;
    const bool is_end = token == tokenizer.BeginEnd();
    if (!is_end) outbox.Add(tokenizer.Decode(token).value());
    if (is_end || outbox.AtStop()) {
      finish_reason = "stop";
      return plumb::Next::kStop;
    }
    is_heard = tell(choice, outbox.Take(), "");
    return is_heard ? plumb::Next::kGoOn : plumb::Next::kStop;
  });
  if (!generated && generated.error().code() == plumb::Code::kCancelled) return false;
  generated.value();
  return is_heard && tell(choice, outbox.Rest(), finish_reason);
}
