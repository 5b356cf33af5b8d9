// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/decode_session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Longer chunks are not faster: the matrix products are large enough at this length.
constexpr int64_t kMaxChunk = 512;

BuildOptions CachedProgram(WeightFormat weights, int64_t batch) {
  BuildOptions options;
  options.program = Program::kCached;
  options.weights = weights;
  options.batch = batch;
  return options;
}

}  // namespace

DecodeSession::DecodeSession(const ModelContext* context, const PackedWeights* weights,
                             int64_t batch, int threads)
    : context_(context),
      weights_(weights),
      threads_(threads),
      lengths_(static_cast<size_t>(batch)),
      written_(lengths_.size()),
      fed_(lengths_.size()),
      chunk_executables_(context, CachedProgram(weights->format(), 1), /*gradients=*/false),
      step_executable_(context, CachedProgram(weights->format(), batch), /*gradients=*/false),
      tokens_(kMaxChunk * SizeOf(DType::kI32)),
      positions_(tokens_.size()),
      logits_(batch * context->model.dims.vocab_size * SizeOf(DType::kF32)),
      chunk_logits_(batch == 1 ? 0 : logits_.size() / batch),
      types_(context->model.token_types > 0 ? tokens_.size() : 0) {
  PLUMB_CHECK(batch >= 1 && batch <= kMaxBatch, "the number of sequences is out of range");
  if (types_.size() > 0) std::memset(types_.data(), 0, static_cast<size_t>(types_.size()));
  chunk_tokens_.reserve(static_cast<size_t>(context_length()));
}

DecodeSession::DecodeSession(const ModelContext* context, const ParameterStore* parameters,
                             int threads)
    : DecodeSession(context, new PackedWeights(*context, WeightFormat::kF32, *parameters), 1,
                    threads) {
  own_weights_.reset(weights_);
}

absl::Status DecodeSession::BindCommon(Executable* executable) {
  PLUMB_RETURN_IF_ERROR(weights_->Bind(executable));
  PLUMB_RETURN_IF_ERROR(executable->Bind("tokens", tokens_.data()));
  PLUMB_RETURN_IF_ERROR(executable->Bind("positions", positions_.data()));
  if (types_.size() > 0) PLUMB_RETURN_IF_ERROR(executable->Bind(kTypesInput, types_.data()));
  if (caches_.empty()) PlaceCaches(executable->graph());
  return absl::OkStatus();
}

void DecodeSession::PlaceCaches(const Graph& graph) {
  std::map<std::string, Cache> caches;
  int64_t total = 0;  // bytes of one sequence
  int64_t shortest_ring = 0;
  bool has_states = false;
  for (const Value& value : graph.values) {
    if (value.kind != ValueKind::kState) continue;
    if (weights_->parameters().states().Find(value.name) != nullptr) continue;  // a norm's
    Cache& cache = caches[value.name];
    // [batch, heads, tokens, channels]
    cache.heads = value.type.shape[1];
    cache.head_bytes = value.type.bytes() / (value.type.shape[0] * cache.heads);
    total += AlignUp(cache.bytes());
    if (value.type.shape.rank() == 3) {  // [batch, heads, elements]: a recurrent state
      has_states = true;
      continue;
    }
    cache.rows = value.type.shape[2];
    cache.row_bytes = cache.head_bytes / cache.rows;
    if (cache.rows == context_length()) continue;
    shortest_ring = shortest_ring == 0 ? cache.rows : std::min(shortest_ring, cache.rows);
  }
  for (auto& tokens : fed_) tokens.reserve(static_cast<size_t>(context_length()));
  AlignedBuffer memory(batch() * total), chunk_memory(batch() > 1 ? total : 0);
  // All memory is allocated: nothing fails from here on, so either all caches are placed or none.
  cache_memory_ = std::move(memory);
  chunk_memory_ = std::move(chunk_memory);
  caches_ = std::move(caches);
  shortest_ring_ = shortest_ring;
  has_states_ = has_states;
  int64_t at = 0;
  for (auto& [name, cache] : caches_) {
    cache.memory = cache_memory_.data() + batch() * at;
    cache.chunk = batch() > 1 ? chunk_memory_.data() + at : cache.memory;
    at += AlignUp(cache.bytes());
  }
}

absl::Status DecodeSession::BindChunk(Executable* executable) {
  PLUMB_RETURN_IF_ERROR(BindCommon(executable));
  for (auto& [name, cache] : caches_) {
    PLUMB_RETURN_IF_ERROR(executable->Bind(name, cache.chunk));
  }
  return executable->Bind("logits", batch() == 1 ? logits_.data() : chunk_logits_.data());
}

absl::Status DecodeSession::BindStep(Executable* executable) {
  PLUMB_RETURN_IF_ERROR(BindCommon(executable));
  for (auto& [name, cache] : caches_) {
    PLUMB_RETURN_IF_ERROR(executable->Bind(name, cache.memory));
  }
  return executable->Bind("logits", logits_.data());
}

absl::Status DecodeSession::CheckLength(int64_t sequence, int64_t tokens) const {
  if (tokens <= context_length() - length(sequence)) return absl::OkStatus();
  const auto total = static_cast<uint64_t>(length(sequence)) + static_cast<uint64_t>(tokens);
  return absl::OutOfRangeError(absl::StrCat("a sequence of ", total,
                                            " tokens is longer than the model's context_length ",
                                            context_length()));
}

void DecodeSession::CopyCaches(int64_t sequence, int64_t begin, int64_t end, bool to_chunk) {
  for (auto& [name, cache] : caches_) {
    const auto copy = [&, &cache = cache](int64_t first_row, int64_t rows) {
      const size_t bytes = static_cast<size_t>(rows * cache.row_bytes);
      for (int64_t head = 0; head < cache.heads; ++head) {
        const int64_t at = head * cache.head_bytes + first_row * cache.row_bytes;
        std::byte* const own = cache.memory + sequence * cache.bytes() + at;
        std::byte* const chunk = cache.chunk + at;
        std::memcpy(to_chunk ? chunk : own, to_chunk ? own : chunk, bytes);
      }
    };
    if (cache.rows == 0) {
      std::byte* const own = cache.memory + sequence * cache.bytes();
      std::memcpy(to_chunk ? cache.chunk : own, to_chunk ? own : cache.chunk,
                  static_cast<size_t>(cache.bytes()));
      continue;
    }
    // A ring holds only the last rows; they may wrap around its end.
    const int64_t rows = std::min(end - begin, cache.rows), row = (end - rows) % cache.rows;
    const int64_t straight = std::min(rows, cache.rows - row);
    copy(row, straight);
    copy(0, rows - straight);
  }
}

absl::Status DecodeSession::Run(const Executable& executable) {
  return profile_ != nullptr ? profile_->Run(executable, threads_) : executable.Run(threads_);
}

absl::Status DecodeSession::RunChunk(int64_t position, absl::Span<const int32_t> tokens) {
  const int64_t n = static_cast<int64_t>(tokens.size());
  const auto bind = [this](Executable* executable) { return BindChunk(executable); };
  PLUMB_ASSIGN_OR_RETURN(const Executable* executable, chunk_executables_.Get(n, bind));
  std::memcpy(tokens_.data(), tokens.data(), tokens.size() * sizeof(int32_t));
  for (int64_t i = 0; i < n; ++i) {
    positions_.as<int32_t>()[i] = static_cast<int32_t>(position + i);
  }
  return Run(*executable);
}

absl::Status DecodeSession::RunChunks(int64_t sequence, int64_t begin,
                                      absl::Span<const int32_t> tokens) {
  int64_t& written = written_[static_cast<size_t>(sequence)];
  const int64_t end = begin + static_cast<int64_t>(tokens.size());
  for (int64_t at = begin; at < end;) {
    const int64_t n = std::min(end - at, kMaxChunk);
    written = std::max(written, at + n);
    PLUMB_RETURN_IF_ERROR(
        RunChunk(at, tokens.subspan(static_cast<size_t>(at - begin), static_cast<size_t>(n))));
    at += n;
  }
  return absl::OkStatus();
}

absl::Status DecodeSession::RestoreCaches(int64_t sequence) {
  const int64_t n = length(sequence);
  int64_t& written = written_[static_cast<size_t>(sequence)];
  if (n == 0) written = 0;
  // A ring of r rows holds the r tokens that were written last; token n attends to the r - 1 before
  // it. A state is that after the tokens that were written.
  const bool has_lost_rows = shortest_ring_ > 0 && written > shortest_ring_ && written > n + 1;
  if (!has_lost_rows && !(has_states_ && written > n)) return absl::OkStatus();
  chunk_tokens_.clear();
  const auto tokens = absl::MakeConstSpan(fed_[static_cast<size_t>(sequence)]);
  PLUMB_RETURN_IF_ERROR(RunChunks(sequence, 0, tokens.subspan(0, static_cast<size_t>(n))));
  if (batch() > 1) CopyCaches(sequence, 0, n, /*to_chunk=*/false);
  written = n;
  return absl::OkStatus();
}

void DecodeSession::Remember(int64_t sequence, absl::Span<const int32_t> tokens) {
  std::vector<int32_t>& fed = fed_[static_cast<size_t>(sequence)];
  fed.resize(static_cast<size_t>(length(sequence)));
  fed.insert(fed.end(), tokens.begin(), tokens.end());
}

absl::Status DecodeSession::Feed(int64_t sequence, absl::Span<const int32_t> tokens) {
  if (tokens.empty()) {
    return absl::InvalidArgumentError("there are no tokens to feed; give one or more");
  }
  PLUMB_RETURN_IF_ERROR(CheckLength(sequence, static_cast<int64_t>(tokens.size())));
  PLUMB_RETURN_IF_ERROR(RestoreCaches(sequence));
  int64_t& length = lengths_[static_cast<size_t>(sequence)];
  const int64_t end = length + static_cast<int64_t>(tokens.size());
  const bool copies = batch() > 1, from_start = length == 0;
  if (!copies || !from_start || absl::MakeConstSpan(chunk_tokens_) != tokens) {
    chunk_tokens_.clear();
    if (copies) CopyCaches(sequence, 0, length, /*to_chunk=*/true);
    PLUMB_RETURN_IF_ERROR(RunChunks(sequence, length, tokens));
    if (copies && from_start) chunk_tokens_.assign(tokens.begin(), tokens.end());
  }
  if (copies) {
    CopyCaches(sequence, length, end, /*to_chunk=*/false);
    std::memcpy(logits_.as<float>() + sequence * context_->model.dims.vocab_size,
                chunk_logits_.data(), static_cast<size_t>(chunk_logits_.size()));
  }
  Remember(sequence, tokens);
  written_[static_cast<size_t>(sequence)] = std::max(written_[static_cast<size_t>(sequence)], end);
  length = end;
  return absl::OkStatus();
}

absl::Status DecodeSession::Append(int64_t sequence, int32_t token) {
  const int64_t n = length(sequence);
  if (n < context_length()) return Feed(sequence, absl::MakeConstSpan(&token, 1));
  const int64_t kept = std::max<int64_t>(1, context_length() / 2) - 1;
  const auto fed = fed_[static_cast<size_t>(sequence)].begin();
  std::vector<int32_t> newer(fed + (n - kept), fed + n);
  newer.push_back(token);
  Truncate(sequence, 0);
  return Feed(sequence, newer);
}

absl::Status DecodeSession::FeedBatch(absl::Span<const int32_t> tokens) {
  if (static_cast<int64_t>(tokens.size()) != batch()) {
    return absl::InvalidArgumentError(absl::StrCat(tokens.size(), " tokens are given for ", batch(),
                                                   " sequences; give one for each"));
  }
  if (batch() == 1) return tokens[0] < 0 ? absl::OkStatus() : Feed(0, tokens);
  for (int64_t b = 0; b < batch(); ++b) {
    PLUMB_RETURN_IF_ERROR(CheckLength(b, 1));
  }
  for (int64_t b = 0; b < batch(); ++b) {
    if (tokens[static_cast<size_t>(b)] >= 0) PLUMB_RETURN_IF_ERROR(RestoreCaches(b));
  }
  for (int64_t b = 0; b < batch(); ++b) {
    // A sequence without a token computes one that its next token overwrites, or a state that it
    // restores first.
    tokens_.as<int32_t>()[b] = std::max(tokens[static_cast<size_t>(b)], 0);
    positions_.as<int32_t>()[b] = static_cast<int32_t>(length(b));
    written_[static_cast<size_t>(b)] = std::max(written_[static_cast<size_t>(b)], length(b) + 1);
  }
  const auto bind = [this](Executable* executable) { return BindStep(executable); };
  PLUMB_ASSIGN_OR_RETURN(const Executable* executable, step_executable_.Get(1, bind));
  PLUMB_RETURN_IF_ERROR(Run(*executable));
  for (int64_t b = 0; b < batch(); ++b) {
    if (tokens[static_cast<size_t>(b)] < 0) continue;
    Remember(b, tokens.subspan(static_cast<size_t>(b), 1));
    ++lengths_[static_cast<size_t>(b)];
  }
  return absl::OkStatus();
}

}  // namespace plumb
