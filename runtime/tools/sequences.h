// Sequences: what a plumb_session holds, token by token. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_SEQUENCES_H_
#define PLUMB_RUNTIME_TOOLS_SEQUENCES_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plumb.h"
#include "runtime/tools/generate.h"
#include "runtime/tools/handles.h"

namespace plumb {

// PLUMB_WEIGHTS_F32 and so on.
int32_t ToPlumb(WeightType type);

// Thread-compatible. Errors are those of plumb.h.
class Sequences {
 public:
  // `weights`: PLUMB_WEIGHTS_F32 and so on; `context_length`: the model's.
  static absl::StatusOr<Sequences> Create(plumb_model* model, int32_t weights, int64_t count,
                                          int64_t context_length);

  int64_t count() const { return count_; }
  bool is_full(int64_t sequence) const {
    return plumb_session_length(session_.get(), Index(sequence)) == context_length_;
  }

  // Forgets a sequence.
  absl::Status Reset(int64_t sequence);
  absl::Status Feed(int64_t sequence, absl::Span<const int32_t> tokens);
  // Appends a token; a sequence whose context is full begins again with its newer half.
  absl::Status Append(int64_t sequence, int32_t token);
  // Forgets a sequence and feeds it these tokens.
  absl::Status Begin(int64_t sequence, absl::Span<const int32_t> tokens);
  // A token for every sequence, in one pass over the weights.
  absl::Status FeedEach(absl::Span<const int32_t> tokens);
  // A token after those of the sequence, which is not appended. REQUIRES: options.max_tokens is 1.
  absl::StatusOr<int32_t> Draw(int64_t sequence, const plumb_sample_options& options);

 private:
  Sequences(SessionHandle session, int64_t count, int64_t context_length)
      : session_(std::move(session)), count_(count), context_length_(context_length) {}
  static int32_t Index(int64_t sequence) { return static_cast<int32_t>(sequence); }

  SessionHandle session_;
  int64_t count_, context_length_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_SEQUENCES_H_
