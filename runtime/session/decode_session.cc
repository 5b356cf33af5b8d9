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
      chunk_logits_(logits_.size() / batch),
      types_(context->model.token_types > 0 ? tokens_.size() : 0) {
  PLUMB_CHECK(batch >= 1 && batch <= kMaxBatch, "the number of sequences is out of range");
  if (types_.size() > 0) std::memset(types_.data(), 0, static_cast<size_t>(types_.size()));
}

DecodeSession::DecodeSession(const ModelContext* context, const ParameterStore* parameters,
                             int threads)
    : DecodeSession(context, new PackedWeights(*context, WeightFormat::kF32, *parameters), 1,
                    threads) {
  own_weights_.reset(weights_);
}

absl::Status DecodeSession::Bind(const AlignedBuffer& logits, Executable* executable) {
  PLUMB_RETURN_IF_ERROR(weights_->Bind(executable));
  PLUMB_RETURN_IF_ERROR(executable->Bind("tokens", tokens_.data()));
  PLUMB_RETURN_IF_ERROR(executable->Bind("positions", positions_.data()));
  if (types_.size() > 0) PLUMB_RETURN_IF_ERROR(executable->Bind(kTypesInput, types_.data()));
  PLUMB_RETURN_IF_ERROR(executable->Bind("logits", logits.data()));
  if (caches_.empty()) PlaceCaches(executable->graph());
  return BindCaches(0, executable);
}

absl::Status DecodeSession::BindCaches(int64_t sequence, Executable* executable) {
  for (auto& [name, cache] : caches_) {
    PLUMB_RETURN_IF_ERROR(executable->Bind(name, cache.memory + sequence * cache.bytes()));
  }
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
  AlignedBuffer memory(batch() * total);
  // All memory is allocated: nothing fails from here on, so either all caches are placed or none.
  cache_memory_ = std::move(memory);
  caches_ = std::move(caches);
  shortest_ring_ = shortest_ring;
  has_states_ = has_states;
  int64_t at = 0;
  for (auto& [name, cache] : caches_) {
    cache.memory = cache_memory_.data() + batch() * at;
    at += AlignUp(cache.bytes());
  }
}

absl::Status DecodeSession::CheckLength(int64_t sequence, int64_t tokens) const {
  if (tokens <= context_length() - length(sequence)) return absl::OkStatus();
  const auto total = static_cast<uint64_t>(length(sequence)) + static_cast<uint64_t>(tokens);
  return absl::OutOfRangeError(absl::StrCat("a sequence of ", total,
                                            " tokens is longer than the model's context_length ",
                                            context_length()));
}

template <typename Copy>
void DecodeSession::ForOverwritten(int64_t sequence, Copy copy) const {
  if (length(sequence) == 0) return;  // the first token begins again
  for (const auto& [name, cache] : caches_) {
    if (cache.rows == context_length()) continue;
    const bool is_state = cache.rows == 0;
    const int64_t row = is_state ? 0 : length(sequence) % cache.rows * cache.row_bytes;
    for (int64_t head = 0; head < cache.heads; ++head) {
      copy(cache.memory + sequence * cache.bytes() + head * cache.head_bytes + row,
           static_cast<size_t>(is_state ? cache.head_bytes : cache.row_bytes));
    }
  }
}

void DecodeSession::CopySequence(int64_t from, int64_t to) {
  const int64_t vocabulary = context_->model.dims.vocab_size;
  std::copy_n(logits(from), vocabulary, logits_.as<float>() + to * vocabulary);
  for (auto& [name, cache] : caches_) {
    // A ring that is not full begins at its first row.
    const int64_t rows = std::min(written_[static_cast<size_t>(from)], cache.rows);
    const int64_t bytes = cache.rows == 0 ? cache.head_bytes : rows * cache.row_bytes;
    for (int64_t head = 0; head < cache.heads; ++head) {
      std::byte* const first = cache.memory + head * cache.head_bytes;
      std::memcpy(first + to * cache.bytes(), first + from * cache.bytes(),
                  static_cast<size_t>(bytes));
    }
  }
  written_[static_cast<size_t>(to)] = written_[static_cast<size_t>(from)];
}

void DecodeSession::Fork(int64_t from, int64_t to) {
  if (from == to) return;
  CopySequence(from, to);
  fed_[static_cast<size_t>(to)] = fed_[static_cast<size_t>(from)];
  Truncate(to, length(from));
  if (prompt_of_ == to) ForgetPrompts();
}

absl::Status DecodeSession::Run(const Executable& executable) {
  return profile_ != nullptr ? profile_->Run(executable, threads_) : executable.Run(threads_);
}

absl::Status DecodeSession::RunChunk(int64_t sequence, int64_t position,
                                     absl::Span<const int32_t> tokens) {
  const int64_t n = static_cast<int64_t>(tokens.size());
  const auto bind = [this](Executable* made) { return Bind(chunk_logits_, made); };
  PLUMB_ASSIGN_OR_RETURN(Executable* const executable, chunk_executables_.Get(n, bind));
  if (batch() > 1) PLUMB_RETURN_IF_ERROR(BindCaches(sequence, executable));
  std::copy(tokens.begin(), tokens.end(), tokens_.as<int32_t>());
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
    if (cancel_ != nullptr && cancel_->exchange(false)) return absl::CancelledError("cancelled");
    const int64_t n = std::min(end - at, kMaxChunk);
    written = std::max(written, at + n);
    PLUMB_RETURN_IF_ERROR(RunChunk(
        sequence, at, tokens.subspan(static_cast<size_t>(at - begin), static_cast<size_t>(n))));
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
  const auto tokens = absl::MakeConstSpan(fed_[static_cast<size_t>(sequence)]);
  PLUMB_RETURN_IF_ERROR(RunChunks(sequence, 0, tokens.subspan(0, static_cast<size_t>(n))));
  written = n;
  return absl::OkStatus();
}

void DecodeSession::Remember(int64_t sequence, absl::Span<const int32_t> tokens) {
  std::vector<int32_t>& fed = fed_[static_cast<size_t>(sequence)];
  fed.resize(static_cast<size_t>(length(sequence)));
  fed.insert(fed.end(), tokens.begin(), tokens.end());
}

bool DecodeSession::HasOnly(int64_t sequence, absl::Span<const int32_t> tokens) const {
  if (sequence < 0) return false;
  const auto at = static_cast<size_t>(sequence);
  const auto n = static_cast<int64_t>(tokens.size());
  return lengths_[at] == n && written_[at] == n && absl::MakeConstSpan(fed_[at]) == tokens;
}

absl::Status DecodeSession::Feed(int64_t sequence, absl::Span<const int32_t> tokens) {
  if (tokens.empty()) {
    return absl::InvalidArgumentError("there are no tokens to feed; give one or more");
  }
  PLUMB_RETURN_IF_ERROR(CheckLength(sequence, static_cast<int64_t>(tokens.size())));
  PLUMB_RETURN_IF_ERROR(RestoreCaches(sequence));
  int64_t& length = lengths_[static_cast<size_t>(sequence)];
  const bool is_prompt = length == 0;
  if (is_prompt && HasOnly(prompt_of_, tokens)) {
    CopySequence(prompt_of_, sequence);
  } else {
    PLUMB_RETURN_IF_ERROR(RunChunks(sequence, length, tokens));
    const int64_t vocabulary = context_->model.dims.vocab_size;
    std::copy_n(chunk_logits_.as<float>(), vocabulary, logits_.as<float>() + sequence * vocabulary);
  }
  if (is_prompt) prompt_of_ = sequence;
  Remember(sequence, tokens);
  length += static_cast<int64_t>(tokens.size());
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
  for (int64_t b = 0; b < batch(); ++b) {
    PLUMB_RETURN_IF_ERROR(CheckLength(b, 1));
  }
  const auto is_fed = [](int32_t token) { return token >= 0; };
  const auto fed = std::count_if(tokens.begin(), tokens.end(), is_fed);
  if (fed == 0) return absl::OkStatus();
  if (fed == 1) {  // a pass for one sequence is the fastest
    const auto token = std::find_if(tokens.begin(), tokens.end(), is_fed);
    return Feed(token - tokens.begin(), absl::MakeConstSpan(token, 1));
  }
  for (int64_t b = 0; b < batch(); ++b) {
    if (tokens[static_cast<size_t>(b)] >= 0) PLUMB_RETURN_IF_ERROR(RestoreCaches(b));
  }
  kept_.clear();
  for (int64_t b = 0; b < batch(); ++b) {
    tokens_.as<int32_t>()[b] = std::max(tokens[static_cast<size_t>(b)], 0);
    positions_.as<int32_t>()[b] = static_cast<int32_t>(length(b));
    if (tokens[static_cast<size_t>(b)] >= 0) {
      written_[static_cast<size_t>(b)] = std::max(written_[static_cast<size_t>(b)], length(b) + 1);
    } else {  // computes the token 0, of which only the logits remain
      if (prompt_of_ == b) ForgetPrompts();
      ForOverwritten(b, [this](const std::byte* memory, size_t bytes) {
        kept_.insert(kept_.end(), memory, memory + bytes);
      });
    }
  }
  const auto bind = [this](Executable* made) { return Bind(logits_, made); };
  PLUMB_ASSIGN_OR_RETURN(const Executable* const executable, step_executable_.Get(1, bind));
  const absl::Status ran = Run(*executable);
  const std::byte* kept = kept_.data();
  for (int64_t b = 0; b < batch(); ++b) {
    if (tokens[static_cast<size_t>(b)] >= 0) continue;
    ForOverwritten(b, [&kept](std::byte* memory, size_t bytes) {
      std::memcpy(memory, kept, bytes);
      kept += bytes;
    });
  }
  PLUMB_RETURN_IF_ERROR(ran);
  for (int64_t b = 0; b < batch(); ++b) {
    if (tokens[static_cast<size_t>(b)] < 0) continue;
    Remember(b, tokens.subspan(static_cast<size_t>(b), 1));
    ++lengths_[static_cast<size_t>(b)];
  }
  return absl::OkStatus();
}

}  // namespace plumb
