// DecodeSession: one sequence that grows token by token, with a KV cache. Prompts run in chunks
// whose lengths are powers of two, each through its own executable; a token by itself is a chunk of
// one. Feeding allocates nothing once a chunk's length has been seen. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_DECODE_SESSION_H_
#define PLUMB_RUNTIME_SESSION_DECODE_SESSION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"

namespace plumb {

class DecodeSession {
 public:
  // `context` and `parameters` must outlive the session; weights are read in place.
  DecodeSession(const ModelContext* context, const ParameterStore* parameters, int threads);

  // Forgets the sequence. The next token stands at position 0.
  void Reset() { length_ = 0; }

  // Appends tokens; logits() is then the distribution of the token after them. kOutOfRange, with
  // nothing appended, when the sequence would outgrow the model's context_length; kInvalidArgument
  // for no tokens; kFailedPrecondition, naming the norm, when one takes statistics over tokens in
  // evaluation too.
  absl::Status Feed(absl::Span<const int32_t> tokens);

  const float* logits() const { return logits_.as<float>(); }  // [vocab_size]
  int64_t length() const { return length_; }                   // tokens so far
  int64_t context_length() const { return context_->model.dims.context_length; }

 private:
  absl::Status FeedChunk(absl::Span<const int32_t> tokens);
  absl::Status BindExecutable(Executable* executable);

  const ModelContext* context_;
  const ParameterStore* parameters_;
  int threads_;
  int64_t length_ = 0;
  ProgramSet programs_;
  std::map<std::string, AlignedBuffer> caches_;  // by the name of the state
  AlignedBuffer tokens_, positions_, logits_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_DECODE_SESSION_H_
