// SPDX-License-Identifier: Apache-2.0
// DecodeSession: sequences that grow token by token, with KV caches.
//
// Sequences are independent: they have any lengths, and start and end at any time. The bits of a
// sequence do not depend on the others. A step appends one token to each sequence in one pass over
// the weights, which computes every row as if it were alone. Tokens for one sequence, such as a
// prompt, are a pass of their own, in place. Each length of such a pass has its executable,
// compiled at its first use; feeding allocates nothing after that. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_DECODE_SESSION_H_
#define PLUMB_RUNTIME_SESSION_DECODE_SESSION_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"
#include "runtime/session/step_profile.h"

namespace plumb {

class DecodeSession {
 public:
  // Max number of sequences whose bits are independent of the others in one pass.
  static constexpr int64_t kMaxBatch = 64;

  // Creates a session of `batch` sequences, 1..kMaxBatch, that computes in the format of `weights`.
  // `context` and `weights` must outlive the session; weights are read in place.
  DecodeSession(const ModelContext* context, const PackedWeights* weights, int64_t batch,
                int threads);
  // Creates a session of one sequence in f32.
  DecodeSession(const ModelContext* context, const ParameterStore* parameters, int threads);

  // Removes all tokens of one sequence, or of all. The next token has position 0.
  void Reset(int64_t sequence) { Truncate(sequence, 0); }
  void Reset() {
    for (int64_t b = 0; b < batch(); ++b) Reset(b);
    ForgetPrompts();
  }

  // Forgets which sequence has the last prompt. Call it after the weights changed, so that a prompt
  // that was fed before is computed again.
  void ForgetPrompts() { prompt_of_ = -1; }

  // Removes all but the first `length` tokens of a sequence. Its logits are invalid until the next
  // tokens are fed. If a layer's window, or a shift, has already overwritten rows that are visible
  // again, or a layer has a recurrent state, the tokens are recomputed then. Requires: 0 <= length
  // <= this->length(sequence).
  void Truncate(int64_t sequence, int64_t length) {
    lengths_[static_cast<size_t>(sequence)] = length;
  }

  // Makes `to` a copy of the sequence `from`: tokens, caches and logits.
  void Fork(int64_t from, int64_t to);

  // Sets a flag that ends Feed and Append with kCancelled between chunks of a prompt, and is reset
  // by that; nothing is appended then. It must outlive the session; null: none.
  void SetCancel(std::atomic<bool>* cancel) { cancel_ = cancel; }

  // Fails with kOutOfRange if appending `tokens` tokens to the sequence would exceed the model's
  // context_length.
  absl::Status CheckLength(int64_t sequence, int64_t tokens) const;

  // Appends tokens to one sequence; logits(sequence) is then the distribution of the token after
  // them. If several sequences begin with the same tokens, only the first computes them. Errors:
  // kOutOfRange, with nothing appended, if the sequence would exceed the model's context_length;
  // kInvalidArgument if there are no tokens; kFailedPrecondition, with the norm's name, if a norm
  // takes statistics over tokens in evaluation too.
  absl::Status Feed(int64_t sequence, absl::Span<const int32_t> tokens);
  absl::Status Feed(absl::Span<const int32_t> tokens) { return Feed(0, tokens); }

  // Appends one token. A sequence whose context is full restarts with the newer half of its tokens,
  // including this one, so it can grow without end. Errors: as Feed.
  absl::Status Append(int64_t sequence, int32_t token);

  // Appends tokens[b] to every sequence b, except where it is negative: such a sequence keeps its
  // tokens and caches, but its logits are invalid until it is fed. A single token is appended as by
  // Feed.
  // Errors: as Feed; then no sequence has changed. Requires room for a token in every sequence.
  absl::Status FeedBatch(absl::Span<const int32_t> tokens);

  // Sets the profile that later passes are timed into, op by op; results stay bit-identical.
  // `profile` must outlive those passes; null: no profile.
  void SetProfile(StepProfile* profile) { profile_ = profile; }

  const float* logits(int64_t sequence = 0) const {  // [vocab_size]
    return logits_.as<float>() + sequence * context_->model.dims.vocab_size;
  }
  int64_t length(int64_t sequence = 0) const {  // tokens so far
    return lengths_[static_cast<size_t>(sequence)];
  }
  int64_t batch() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t context_length() const { return context_->model.dims.context_length; }
  const PackedWeights& weights() const { return *weights_; }

 private:
  struct Cache {
    std::byte* memory = nullptr;  // caches of all sequences
    int64_t heads = 0;            // heads of keys and values; 1 for a convolution
    int64_t head_bytes = 0;       // bytes of one head of one sequence
    // Rows of a head, one per token; fewer than the context's: a ring. 0: a state that all tokens
    // of the sequence share.
    int64_t rows = 0;
    int64_t row_bytes = 0;

    int64_t bytes() const { return heads * head_bytes; }  // bytes of one sequence
  };

  absl::Status Run(const Executable& executable);
  absl::Status RunChunk(int64_t sequence, int64_t position, absl::Span<const int32_t> tokens);
  // Binds everything except the workspace.
  absl::Status Bind(const AlignedBuffer& logits, Executable* executable);
  // Binds the caches of one sequence, or from sequence 0 on of all, as the executable has rows.
  absl::Status BindCaches(int64_t sequence, Executable* executable);
  // Reads the sizes of the caches from a program and allocates them.
  void PlaceCaches(const Graph& graph);
  // Returns true if exactly these tokens are in the sequence, and nothing was computed after them.
  bool HasOnly(int64_t sequence, absl::Span<const int32_t> tokens) const;
  // Calls copy(memory, bytes) for all memory of a sequence that its next token overwrites and later
  // ones, or tokens after a Truncate, read: its states, and a row of its rings.
  template <typename Copy>
  void ForOverwritten(int64_t sequence, Copy copy) const;
  // Copies the logits and caches of a sequence to another one.
  void CopySequence(int64_t from, int64_t to);
  // Feeds tokens in chunks; their cache rows are [begin, begin + tokens.size()).
  absl::Status RunChunks(int64_t sequence, int64_t begin, absl::Span<const int32_t> tokens);
  // Recomputes a sequence if its rings have lost rows that its next token attends to, or its
  // recurrent states include tokens that were removed.
  absl::Status RestoreCaches(int64_t sequence);
  // Appends tokens to fed_, from which a sequence is recomputed.
  void Remember(int64_t sequence, absl::Span<const int32_t> tokens);

  const ModelContext* context_;
  std::unique_ptr<const PackedWeights> own_weights_;  // null: weights_ is the caller's
  const PackedWeights* weights_;
  int threads_;
  std::vector<int64_t> lengths_;  // indexed by sequence
  // Max position written to the rings and states of each sequence, plus 1, since they were last
  // computed from the beginning.
  std::vector<int64_t> written_;
  int64_t shortest_ring_ = 0;              // in rows; 0: no cache is a ring
  bool has_states_ = false;                // some caches are recurrent states
  std::vector<std::vector<int32_t>> fed_;  // indexed by sequence: its first length(sequence) tokens
  ExecutableCache chunk_executables_, step_executable_;
  std::map<std::string, Cache> caches_;  // keyed by the name of the state
  // All caches contiguously, for huge pages: reading every cache takes few TLB entries.
  AlignedBuffer cache_memory_;
  std::vector<std::byte> kept_;  // what a step overwrites of the sequences without a token
  AlignedBuffer tokens_, positions_, logits_;
  AlignedBuffer chunk_logits_;  // aligned, unlike a sequence's logits
  AlignedBuffer types_;         // zeros; empty if the model has no token types
  // Sequence whose tokens were fed last from its beginning, all at once; -1: none.
  int64_t prompt_of_ = -1;
  StepProfile* profile_ = nullptr;  // null: off
  std::atomic<bool>* cancel_ = nullptr;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_DECODE_SESSION_H_
