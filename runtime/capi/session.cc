// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/capi/measurements.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/sampler.h"

struct plumb_session {
  std::shared_ptr<plumb::capi::ModelState> model;
  plumb::WeightFormat format = plumb::WeightFormat::kF32;
  std::unique_ptr<plumb::DecodeSession> decode;
  int64_t version = 0;                          // version of the weights at the last feed
  std::vector<bool> has_logits;                 // one per sequence
  int32_t finish_reason = PLUMB_FINISH_NONE;    // result of the last plumb_session_generate
  absl::optional<plumb::TokenSampler> sampler;  // with the options of the last draw
  std::atomic<bool> cancelled{false};
  bool busy = false;  // during a call that invokes callbacks
  plumb::capi::ProfileRows profile;
  plumb::StepProfile* profiled = nullptr;  // points into `profile`; null: off

  ~plumb_session() {
    if (decode != nullptr) --model->sessions;
  }
};

static const plumb::capi::RuntimeState& GetRuntime(const plumb_session& session) {
  return *session.model->runtime;
}

namespace plumb::capi {
namespace {

absl::StatusOr<std::unique_ptr<plumb_session>> CreateSession(
    const std::shared_ptr<ModelState>& model, const plumb_session_options* given) {
  absl::StatusOr<plumb_session_options> options = Complete(given);
  if (!options.ok()) return options.status();
  if (options->sequences == 0) options->sequences = 1;
  if (options->sequences < 1 || options->sequences > DecodeSession::kMaxBatch) {
    return absl::InvalidArgumentError(absl::StrCat("options: sequences must be in 1..",
                                                   DecodeSession::kMaxBatch, ", is ",
                                                   options->sequences));
  }
  PLUMB_ASSIGN_OR_RETURN(const WeightFormat format, GetFormat(options->weights));
  if (model->context->model.bidirectional) {
    return absl::FailedPreconditionError(
        "the model is bidirectional: each token sees those after it, so that nothing can be "
        "sampled "
        "from it token by token; it can be evaluated");
  }
  PLUMB_RETURN_IF_ERROR(model->RequireWeights());
  PLUMB_RETURN_IF_ERROR(
      CheckMemoryBudget("the KV caches", static_cast<double>(CacheBytes(model->context->model)) *
                                             static_cast<double>(options->sequences) *
                                             (format == WeightFormat::kBf16 ? 0.5 : 1)));
  auto session = std::make_unique<plumb_session>();
  session->format = format;
  session->has_logits.resize(static_cast<size_t>(options->sequences));
  const PackedWeights* const weights = model->Pack(session->format);
  session->decode = std::make_unique<DecodeSession>(model->context.get(), weights,
                                                    options->sequences, model->threads());
  session->decode->SetCancel(&session->cancelled);
  session->model = model;
  ++model->sessions;
  return session;
}

absl::Status CheckSequence(const plumb_session& session, int32_t sequence) {
  if (sequence >= 0 && sequence < session.decode->batch()) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("there is no sequence ", sequence, ": the session has ",
                                            session.decode->batch()));
}

// Takes new weights, such as those of a training step, before tokens are fed.
void TakeWeights(plumb_session* session) {
  session->model->Pack(session->format);
  const int64_t version = session->model->version;
  if (session->version == version) return;
  session->decode->ForgetPrompts();
  session->version = version;
}

// Runs `pass` as one step of the profile, if there is one.
template <class Pass>
absl::Status Profiled(plumb_session* session, const Pass& pass) {
  const auto begin = std::chrono::steady_clock::now();
  PLUMB_RETURN_IF_ERROR(pass());
  if (session->profiled != nullptr) {
    const auto end = std::chrono::steady_clock::now();
    session->profiled->EndStep(std::chrono::duration<double>(end - begin).count());
  }
  return absl::OkStatus();
}

// Feeds one sequence with `pass`, after which it has logits.
template <class Pass>
absl::Status FeedBy(plumb_session* session, int32_t sequence, const Pass& pass) {
  TakeWeights(session);
  const int64_t length = session->decode->length(sequence);
  const absl::Status fed = Profiled(session, pass);
  if (!fed.ok()) {
    // A sequence that failed to restart with its newer half has lost its earlier tokens.
    if (session->decode->length(sequence) != length) {
      session->has_logits[static_cast<size_t>(sequence)] = false;
    }
    return fed;
  }
  session->model->runtime->LogProgramProblems();
  session->has_logits[static_cast<size_t>(sequence)] = true;
  return absl::OkStatus();
}

absl::Status Feed(plumb_session* session, int32_t sequence, absl::Span<const int32_t> tokens) {
  PLUMB_RETURN_IF_ERROR(
      session->decode->CheckLength(sequence, static_cast<int64_t>(tokens.size())));
  PLUMB_RETURN_IF_ERROR(session->model->CheckTokens(tokens.data(), tokens.size(), 0));
  return FeedBy(session, sequence, [&] { return session->decode->Feed(sequence, tokens); });
}

absl::Status Append(plumb_session* session, int32_t sequence, int32_t token) {
  return FeedBy(session, sequence, [&] { return session->decode->Append(sequence, token); });
}

absl::Status FeedBatch(plumb_session* session, absl::Span<const int32_t> tokens) {
  if (static_cast<int64_t>(tokens.size()) != session->decode->batch()) {
    return absl::InvalidArgumentError(absl::StrCat("needs a token for each of the ",
                                                   session->decode->batch(), " sequences, not ",
                                                   tokens.size()));
  }
  PLUMB_RETURN_IF_ERROR(session->model->CheckTokens(tokens.data(), tokens.size(), -1));
  TakeWeights(session);
  PLUMB_RETURN_IF_ERROR(Profiled(session, [&] { return session->decode->FeedBatch(tokens); }));
  session->model->runtime->LogProgramProblems();
  for (size_t i = 0; i < tokens.size(); ++i) session->has_logits[i] = tokens[i] >= 0;
  return absl::OkStatus();
}

// Returns the session's sampler, and creates it only if options changed, as hosts also draw token
// by token.
absl::StatusOr<TokenSampler*> GetSampler(plumb_session* session,
                                         const plumb_sample_options& options) {
  const int64_t vocabulary = session->model->vocab_size();
  if (options.vocabulary < 0 || options.vocabulary > vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat("options: vocabulary must be in 0..", vocabulary,
                                                   ", is ", options.vocabulary));
  }
  if (options.max_tokens < 0 || options.drawn < 0) {
    return absl::InvalidArgumentError("options: max_tokens and drawn cannot be negative");
  }
  SamplingOptions sampling;
  sampling.temperature = options.temperature;
  sampling.top_k = options.top_k;
  sampling.top_p = options.top_p == 0 ? 1 : options.top_p;
  const auto drawn_from =
      static_cast<int32_t>(options.vocabulary == 0 ? vocabulary : options.vocabulary);
  absl::optional<TokenSampler>& sampler = session->sampler;
  if (sampler.has_value() && sampler->vocab_size() == drawn_from &&
      sampler->options().temperature == sampling.temperature &&
      sampler->options().top_k == sampling.top_k && sampler->options().top_p == sampling.top_p) {
    return &*sampler;
  }
  PLUMB_ASSIGN_OR_RETURN(sampler, TokenSampler::Create(sampling, drawn_from));
  return &*sampler;
}

absl::StatusOr<absl::Span<const int32_t>> GetEndTokens(const plumb_session& session,
                                                       const plumb_sample_options& options) {
  PLUMB_ASSIGN_OR_RETURN(
      const absl::Span<const int32_t> tokens,
      ToSpan("options: end_tokens", options.end_tokens, options.end_token_count));
  PLUMB_RETURN_IF_ERROR(Annotate(session.model->CheckTokens(tokens.data(), tokens.size(), 0),
                                 "options: end_tokens: "));
  return tokens;
}

absl::Status Generate(plumb_session* session, int32_t sequence, const plumb_sample_options* given,
                      plumb_token_fn token, void* user) {
  session->finish_reason = PLUMB_FINISH_NONE;
  PLUMB_RETURN_IF_ERROR(CheckSequence(*session, sequence));
  const plumb_sample_options defaults = PLUMB_SAMPLE_OPTIONS_INIT;
  const absl::StatusOr<plumb_sample_options> options =
      Complete(given == nullptr ? &defaults : given);
  if (!options.ok()) return options.status();
  if (!session->has_logits[static_cast<size_t>(sequence)]) {
    return absl::FailedPreconditionError(
        absl::StrCat("sequence ", sequence, " has no logits: feed it a token first"));
  }
  PLUMB_ASSIGN_OR_RETURN(const absl::Span<const int32_t> end_tokens,
                         GetEndTokens(*session, *options));
  PLUMB_ASSIGN_OR_RETURN(TokenSampler* const sampler, GetSampler(session, *options));
  const RngStream stream(options->seed, "sample", options->index);
  DecodeSession& decode = *session->decode;
  for (int64_t i = 0;; ++i) {
    if (session->cancelled.exchange(false)) return absl::CancelledError("plumb_session_cancel");
    PLUMB_ASSIGN_OR_RETURN(
        const int32_t drawn,
        sampler->Draw(decode.logits(sequence), stream, static_cast<uint64_t>(options->drawn + i)));
    const bool is_full = decode.length(sequence) == decode.context_length();
    const auto finish = [session](int32_t reason) {
      session->finish_reason = reason;
      return absl::OkStatus();
    };
    if (std::find(end_tokens.begin(), end_tokens.end(), drawn) != end_tokens.end()) {
      return finish(PLUMB_FINISH_STOP);
    }
    if (token(user, drawn) != 0) {
      session->finish_reason = PLUMB_FINISH_STOP;
      return absl::CancelledError("the token callback asked to stop");
    }
    if (i + 1 == options->max_tokens) return finish(PLUMB_FINISH_LENGTH);
    if (options->max_tokens == 0 && is_full) return finish(PLUMB_FINISH_CONTEXT);
    PLUMB_RETURN_IF_ERROR(Append(session, sequence, drawn));
  }
}

}  // namespace
}  // namespace plumb::capi

using plumb::capi::Call;
using plumb::capi::CheckSequence;
using plumb::capi::NullArgument;

plumb_status plumb_session_create(plumb_model* model, const plumb_session_options* options,
                                  plumb_session** session, plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    if (session == nullptr) return NullArgument("session");
    PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<plumb_session> made,
                           plumb::capi::CreateSession(model->state, options));
    *session = made.release();
    return absl::OkStatus();
  });
}

void plumb_session_free(plumb_session* session) { delete session; }

plumb_status plumb_session_feed(plumb_session* session, int32_t sequence, const int32_t* tokens,
                                int64_t count, plumb_error** error) {
  return Call(session, "session", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(session->busy, "session"));
    PLUMB_RETURN_IF_ERROR(CheckSequence(*session, sequence));
    PLUMB_ASSIGN_OR_RETURN(const auto span, plumb::capi::ToSpan("tokens", tokens, count));
    return plumb::capi::Feed(session, sequence, span);
  });
}

plumb_status plumb_session_append(plumb_session* session, int32_t sequence, int32_t token,
                                  plumb_error** error) {
  return Call(session, "session", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(session->busy, "session"));
    PLUMB_RETURN_IF_ERROR(CheckSequence(*session, sequence));
    PLUMB_RETURN_IF_ERROR(session->model->CheckTokens(&token, 1, 0));
    return plumb::capi::Append(session, sequence, token);
  });
}

plumb_status plumb_session_feed_batch(plumb_session* session, const int32_t* tokens, int64_t count,
                                      plumb_error** error) {
  return Call(session, "session", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(session->busy, "session"));
    PLUMB_ASSIGN_OR_RETURN(const auto span, plumb::capi::ToSpan("tokens", tokens, count));
    return plumb::capi::FeedBatch(session, span);
  });
}

const float* plumb_session_logits(const plumb_session* session, int32_t sequence) {
  if (session == nullptr || !CheckSequence(*session, sequence).ok()) return nullptr;
  if (!session->has_logits[static_cast<size_t>(sequence)]) return nullptr;
  return session->decode->logits(sequence);
}

int64_t plumb_session_length(const plumb_session* session, int32_t sequence) {
  if (session == nullptr || !CheckSequence(*session, sequence).ok()) return -1;
  return session->decode->length(sequence);
}

plumb_status plumb_session_truncate(plumb_session* session, int32_t sequence, int64_t length,
                                    plumb_error** error) {
  return Call(session, "session", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(session->busy, "session"));
    PLUMB_RETURN_IF_ERROR(CheckSequence(*session, sequence));
    const int64_t now = session->decode->length(sequence);
    if (length < 0 || length > now) {
      return absl::OutOfRangeError(
          absl::StrCat("a length of ", length, ": the sequence has ", now, " tokens"));
    }
    if (length == now) return absl::OkStatus();
    session->decode->Truncate(sequence, length);
    session->has_logits[static_cast<size_t>(sequence)] = false;
    return absl::OkStatus();
  });
}

plumb_status plumb_session_copy(plumb_session* session, int32_t from, int32_t to,
                                plumb_error** error) {
  return Call(session, "session", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(session->busy, "session"));
    PLUMB_RETURN_IF_ERROR(CheckSequence(*session, from));
    PLUMB_RETURN_IF_ERROR(CheckSequence(*session, to));
    session->decode->Fork(from, to);
    session->has_logits[static_cast<size_t>(to)] = session->has_logits[static_cast<size_t>(from)];
    return absl::OkStatus();
  });
}

plumb_status plumb_session_generate(plumb_session* session, int32_t sequence,
                                    const plumb_sample_options* options, plumb_token_fn token,
                                    void* user, plumb_error** error) {
  return Call(session, "session", error, [&]() -> absl::Status {
    if (token == nullptr) return NullArgument("token");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(session->busy, "session"));
    const plumb::capi::InCall in_call(&session->busy);
    return plumb::capi::Generate(session, sequence, options, token, user);
  });
}

int32_t plumb_session_finish_reason(const plumb_session* session) {
  return session == nullptr ? PLUMB_FINISH_NONE : session->finish_reason;
}

void plumb_session_cancel(plumb_session* session) {
  if (session != nullptr) session->cancelled = true;
}

plumb_status plumb_session_profile(plumb_session* session, int32_t on, plumb_error** error) {
  return Call(session, "session", error, [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckNotInCall(session->busy, "session"));
    session->profiled = on != 0 ? session->profile.Start() : nullptr;
    session->decode->SetProfile(session->profiled);
    return absl::OkStatus();
  });
}

int64_t plumb_session_profile_rows(plumb_session* session, plumb_profile_row* rows,
                                   int64_t capacity) {
  return session == nullptr || session->busy ? 0 : session->profile.Write(rows, capacity);
}
