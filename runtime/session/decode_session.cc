#include "runtime/session/decode_session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Longer chunks gain nothing: the products are large enough by then.
constexpr int64_t kLongestChunk = 256;

BuildOptions CachedProgram() {
  BuildOptions options;
  options.program = Program::kCached;
  return options;
}

}  // namespace

DecodeSession::DecodeSession(const ModelContext* context, const ParameterStore* parameters,
                             int threads)
    : context_(context),
      parameters_(parameters),
      threads_(threads),
      programs_(context, CachedProgram(), /*gradients=*/false),
      tokens_(kLongestChunk * static_cast<int64_t>(sizeof(int32_t))),
      positions_(tokens_.size()),
      logits_(context->model.dims.vocab_size * static_cast<int64_t>(sizeof(float))) {}

absl::Status DecodeSession::BindExecutable(Executable* executable) {
  PLUMB_RETURN_IF_ERROR(parameters_->Bind(executable));
  PLUMB_RETURN_IF_ERROR(executable->Bind("tokens", tokens_.data()));
  PLUMB_RETURN_IF_ERROR(executable->Bind("positions", positions_.data()));
  for (const Value& value : executable->graph().values) {
    if (value.kind != ValueKind::kState) continue;
    if (parameters_->states().Find(value.name) != nullptr) continue;  // of a norm
    AlignedBuffer& cache = caches_[value.name];
    if (cache.size() == 0) cache = AlignedBuffer(value.type.bytes());
    PLUMB_RETURN_IF_ERROR(executable->Bind(value.name, cache.data()));
  }
  return executable->Bind("logits", logits_.data());
}

absl::Status DecodeSession::FeedChunk(absl::Span<const int32_t> tokens) {
  const int64_t n = static_cast<int64_t>(tokens.size());
  const auto bind = [this](Executable* executable) { return BindExecutable(executable); };
  PLUMB_ASSIGN_OR_RETURN(const Executable* executable, programs_.Get(n, bind));
  std::memcpy(tokens_.data(), tokens.data(), tokens.size() * sizeof(int32_t));
  for (int64_t i = 0; i < n; ++i) {
    positions_.as<int32_t>()[i] = static_cast<int32_t>(length_ + i);
  }
  PLUMB_RETURN_IF_ERROR(executable->Run(threads_));
  length_ += n;
  return absl::OkStatus();
}

absl::Status DecodeSession::Feed(absl::Span<const int32_t> tokens) {
  if (tokens.empty()) return absl::InvalidArgumentError("no tokens to feed");
  const int64_t total = length_ + static_cast<int64_t>(tokens.size());
  if (total > context_length()) {
    return absl::OutOfRangeError(absl::StrCat("a sequence of ", total,
                                              " tokens is longer than the model's context_length ",
                                              context_length()));
  }
  const int64_t before = length_;
  while (!tokens.empty()) {
    int64_t chunk = 1;
    while (2 * chunk <= std::min(static_cast<int64_t>(tokens.size()), kLongestChunk)) chunk *= 2;
    if (absl::Status status = FeedChunk(tokens.subspan(0, static_cast<size_t>(chunk)));
        !status.ok()) {
      length_ = before;
      return status;
    }
    tokens.remove_prefix(static_cast<size_t>(chunk));
  }
  return absl::OkStatus();
}

}  // namespace plumb
