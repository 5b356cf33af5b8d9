// SPDX-License-Identifier: Apache-2.0
// DecodeSession: sequences that grow token by token, with KV caches.
//
// Sequences are independent of each other: of any lengths, started and ended at any time. The bits
// of a sequence do not depend on the others: a token for each of them is one pass over the weights,
// in which every row is computed as it would be alone; a prompt, several tokens for one sequence,
// is a pass of its own. Each length of such a pass has its executable, compiled at its first use;
// feeding allocates nothing after that. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_DECODE_SESSION_H_
#define PLUMB_RUNTIME_SESSION_DECODE_SESSION_H_

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
  // More sequences than this at once are not decoded as if alone.
  static constexpr int64_t kMaxBatch = 16;

  // `batch` sequences, 1..kMaxBatch, in the format of `weights`, which must outlive the session, as
  // must `context`; weights are read in place.
  DecodeSession(const ModelContext* context, const PackedWeights* weights, int64_t batch,
                int threads);
  // One sequence in f32.
  DecodeSession(const ModelContext* context, const ParameterStore* parameters, int threads);

  // Forgets a sequence, or all. The next token stands at position 0.
  void Reset(int64_t sequence) { Truncate(sequence, 0); }
  void Reset() {
    for (int64_t b = 0; b < batch(); ++b) Reset(b);
    ForgetPrompts();
  }

  // After the weights changed: sequences that begin as others did are computed anew.
  void ForgetPrompts() { chunk_tokens_.clear(); }

  // Forgets all but the first `length` tokens of a sequence. Its logits are not those of the token
  // after them until more is fed. Where a layer's window has passed over what it sees again, the
  // tokens are computed anew then. REQUIRES: 0 <= length <= this->length(sequence).
  void Truncate(int64_t sequence, int64_t length) {
    lengths_[static_cast<size_t>(sequence)] = length;
  }

  // Fails with kOutOfRange if a sequence with so many more tokens would outgrow the model's
  // context_length.
  absl::Status CheckLength(int64_t sequence, int64_t tokens) const;

  // Appends tokens to one sequence; its logits are then the distribution of the token after them.
  // Of several sequences that begin with the same tokens, only the first computes them.
  // kOutOfRange, with nothing appended, when the sequence would outgrow the model's context_length;
  // kInvalidArgument for no tokens; kFailedPrecondition, naming the norm, when one takes statistics
  // over tokens in evaluation too.
  absl::Status Feed(int64_t sequence, absl::Span<const int32_t> tokens);
  absl::Status Feed(absl::Span<const int32_t> tokens) { return Feed(0, tokens); }

  // Appends one token. A sequence whose context is full begins again with the newer half of its
  // tokens, this one included, so that it may grow without end. Errors as above.
  absl::Status Append(int64_t sequence, int32_t token);

  // Appends tokens[b] to every sequence b; errors as above, of all or none.
  absl::Status FeedEach(absl::Span<const int32_t> tokens);

  // From now on passes are timed op by op, to the same bits, into `profile`, which must outlive
  // them; null: no more.
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
    std::byte* memory = nullptr;  // of all sequences
    std::byte* chunk = nullptr;   // of the one that a chunk is fed to: `memory` where there is one
    int64_t heads = 0;            // of keys and values; 1 of a convolution
    int64_t head_bytes = 0;       // of one head of one sequence
    int64_t rows = 0;             // of a head: a token each; a ring if fewer than the context's
    int64_t row_bytes = 0;

    int64_t bytes() const { return heads * head_bytes; }  // of one sequence
  };

  absl::Status Run(const Executable& executable);
  absl::Status RunChunk(int64_t position, absl::Span<const int32_t> tokens);
  absl::Status BindChunk(Executable* executable);
  absl::Status BindStep(Executable* executable);
  absl::Status BindCommon(Executable* executable);
  // Finds the caches' sizes in a program and gives them memory.
  void PlaceCaches(const Graph& graph);
  // Copies what the caches have of tokens [begin, end) of a sequence to those of the chunks, or
  // back.
  void CopyCaches(int64_t sequence, int64_t begin, int64_t end, bool to_chunk);
  // Feeds tokens whose rows of the caches are [begin, begin + their number), in chunks.
  absl::Status RunChunks(int64_t sequence, int64_t begin, absl::Span<const int32_t> tokens);
  // Computes a sequence anew if rings have lost what its next token sees.
  absl::Status RestoreRings(int64_t sequence);
  // Keeps what was fed, for sequences that are computed again.
  void Remember(int64_t sequence, absl::Span<const int32_t> tokens);

  const ModelContext* context_;
  std::unique_ptr<const PackedWeights> own_weights_;  // null: the caller's
  const PackedWeights* weights_;
  int threads_;
  std::vector<int64_t> lengths_;  // by sequence
  // By sequence: where the last token stands that was ever written to its rings, plus 1, since they
  // were computed from the beginning.
  std::vector<int64_t> written_;
  int64_t shortest_ring_ = 0;              // rows; 0: there is none
  std::vector<std::vector<int32_t>> fed_;  // by sequence: its tokens, the first length(sequence)
  ExecutableCache chunk_executables_, step_executable_;
  std::map<std::string, Cache> caches_;  // by the name of the state
  // All caches contiguously, for huge pages: reading every cache takes few TLB entries.
  AlignedBuffer cache_memory_, chunk_memory_;
  AlignedBuffer tokens_, positions_, logits_, chunk_logits_;
  AlignedBuffer types_;  // zeros; empty where the model has no token types
  // The tokens of the chunk caches and of chunk_logits_, if they begin at position 0.
  std::vector<int32_t> chunk_tokens_;
  StepProfile* profile_ = nullptr;  // null: off
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_DECODE_SESSION_H_
