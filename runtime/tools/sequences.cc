#include "runtime/tools/sequences.h"

#include "runtime/base/status.h"

namespace plumb {

absl::StatusOr<Sequences> Sequences::Create(plumb_model* model, int32_t weights, int64_t count,
                                            int64_t context_length) {
  auto options = Sized<plumb_session_options>();
  options.sequences = Index(count);
  options.weights = weights;
  PLUMB_ASSIGN_OR_RETURN(SessionHandle session,
                         MakeHandle<SessionHandle>(plumb_session_create, model, &options));
  return Sequences(std::move(session), count, context_length);
}

absl::Status Sequences::Reset(int64_t sequence) {
  return CallPlumb(plumb_session_truncate, session_.get(), Index(sequence), int64_t{0});
}

absl::Status Sequences::Feed(int64_t sequence, absl::Span<const int32_t> tokens) {
  return CallPlumb(plumb_session_feed, session_.get(), Index(sequence), tokens.data(),
                   tokens.size());
}

absl::Status Sequences::Append(int64_t sequence, int32_t token) {
  return CallPlumb(plumb_session_append, session_.get(), Index(sequence), token);
}

absl::Status Sequences::Begin(int64_t sequence, absl::Span<const int32_t> tokens) {
  PLUMB_RETURN_IF_ERROR(Reset(sequence));
  return Feed(sequence, tokens);
}

absl::Status Sequences::FeedEach(absl::Span<const int32_t> tokens) {
  return CallPlumb(plumb_session_feed_each, session_.get(), tokens.data(), tokens.size());
}

absl::StatusOr<int32_t> Sequences::Draw(int64_t sequence, const plumb_sample_options& options) {
  int32_t drawn = 0;
  const plumb_token_fn keep = [](void* user, int32_t token) -> int32_t {
    *static_cast<int32_t*>(user) = token;
    return 0;
  };
  PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_session_generate, session_.get(), Index(sequence), &options,
                                  keep, static_cast<void*>(&drawn)));
  return drawn;
}

}  // namespace plumb
