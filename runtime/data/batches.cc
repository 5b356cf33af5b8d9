// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/base/check.h"
#include "runtime/base/divide.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Maximum number of tokens in a batch: a larger one is surely a typing error and exhausts memory.
constexpr int64_t kMaxBatchTokens = int64_t{1} << 27;

// Maximum number of windows that are drawn until one has a target.
constexpr int kMaxDraws = 100;

absl::Status CheckSizes(int64_t batch_size, int64_t context_length) {
  if (batch_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("batch_size must be >= 1, is ", batch_size));
  }
  if (context_length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("context_length must be >= 1, is ", context_length));
  }
  if (batch_size > kMaxBatchTokens / context_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch_size ", batch_size, " times context_length ", context_length, " is more than ",
        kMaxBatchTokens, " tokens; lower one and raise gradient_accumulation_steps"));
  }
  return absl::OkStatus();
}

absl::Status EmptySplit(const Dataset& dataset, Split split) {
  return absl::InvalidArgumentError(
      absl::StrCat(dataset.name(), ": the ", SplitName(split),
                   " split has nothing to predict; change val_fraction or use more data",
                   dataset.has_masks() ? ", a larger context_length or another mask" : ""));
}

// Returns the number of inputs of a document: the begin token and the document, truncated.
int64_t DocumentSeq(int64_t tokens, int64_t context_length) {
  return std::min(tokens + 1, context_length);
}

Batch Reserved(int64_t rows, int64_t max_seq) {
  Batch batch;
  const size_t size = static_cast<size_t>(rows * max_seq);
  batch.tokens.reserve(size);
  batch.targets.reserve(size);
  batch.positions.reserve(size);
  return batch;
}

// Fills the batch with padding.
void Reset(int64_t rows, int64_t seq, int32_t padding, Batch* batch) {
  batch->batch = rows;
  batch->seq = seq;
  batch->valid_targets = 0;
  const size_t size = static_cast<size_t>(rows * seq);
  batch->tokens.assign(size, padding);
  batch->targets.assign(size, -1);
  batch->positions.resize(size);
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = batch->positions.begin() + row * seq;
    std::iota(begin, begin + seq, 0);
  }
}

// Tokens at either end of a document.
struct Marks {
  int32_t begin, end;
};

// Requires: a tokenizer for documents, which has both tokens.
Marks GetMarks(const Tokenizer& tokenizer) {
  return {*tokenizer.begin_token(), *tokenizer.end_token()};
}

// Writes the i-th document of a split, whose prompt has no targets.
void PutDocument(const Dataset& dataset, Split split, int64_t i, int64_t row, Batch* batch) {
  const absl::Span<const int32_t> document = dataset.document(split, i);
  const Marks marks = GetMarks(dataset.tokenizer());
  const int64_t n = static_cast<int64_t>(document.size());
  const int64_t length = std::min(n + 1, batch->seq);
  int32_t* tokens = batch->tokens.data() + row * batch->seq;
  int32_t* targets = batch->targets.data() + row * batch->seq;
  tokens[0] = marks.begin;
  std::copy_n(document.begin(), length - 1, tokens + 1);
  std::copy_n(document.begin(), std::min(n, length), targets);
  if (length == n + 1) targets[n] = marks.end;
  const int64_t prompt = std::min(dataset.prompt_size(split, i), length);
  std::fill_n(targets, prompt, -1);
  batch->valid_targets += length - prompt;
}

// Writes the window of a split that begins at `begin` and has `length` inputs, of which the first
// `context` have no target.
void PutWindow(const Dataset& dataset, Split split, int64_t begin, int64_t length, int64_t context,
               int64_t row, Batch* batch) {
  const int64_t at = row * batch->seq;
  const auto part = [](std::vector<int32_t>* of, int64_t from, int64_t count) {
    return absl::MakeSpan(of->data() + from, static_cast<size_t>(count));
  };
  dataset.ReadText(split, begin, part(&batch->tokens, at, length));
  const auto targets = part(&batch->targets, at + context, length - context);
  dataset.ReadTargets(split, begin + 1 + context, targets);
  batch->valid_targets +=
      std::count_if(targets.begin(), targets.end(), [](int32_t target) { return target >= 0; });
}

bool IsChoosable(const TokenMasking& masking, int32_t token) {
  return token >= 0 && std::find(masking.special_tokens.begin(), masking.special_tokens.end(),
                                 token) == masking.special_tokens.end();
}

// Number of draws per token: if it is chosen, how it is replaced, and the random token.
constexpr uint64_t kDraws = 3;

int32_t Replacement(const TokenMasking& masking, const RngStream& stream, uint64_t t,
                    int32_t token) {
  const double what = stream.Uniform(kDraws * t + 1);
  if (what < masking.masked) return masking.mask_token;
  if (what >= masking.masked + masking.random) return token;
  return static_cast<int32_t>(
      stream.Below(kDraws * t + 2, static_cast<uint64_t>(masking.vocab_size)));
}

}  // namespace

absl::StatusOr<TrainBatches> TrainBatches::Create(const Dataset* dataset, const Options& options) {
  PLUMB_RETURN_IF_ERROR(CheckSizes(options.batch_size, options.context_length));
  PLUMB_CHECK(options.micro_batches >= 1, "a step has micro-batches");
  if (dataset->num_tokens(Split::kTrain) == 0) return EmptySplit(*dataset, Split::kTrain);
  if (dataset->is_running()) {
    const int64_t n = dataset->num_tokens(Split::kTrain);
    if (n <= options.context_length) {
      return absl::InvalidArgumentError(absl::StrCat(
          dataset->name(), ": the training split has ", n,
          " tokens, but a window of context_length ", options.context_length, " needs at least ",
          options.context_length + 1, "; use more text or a smaller context_length"));
    }
  }
  TrainBatches batches(dataset, options);
  const bool has_targets =
      dataset->is_running() ? dataset->has_targets(Split::kTrain) : !batches.documents_.empty();
  if (!has_targets) return EmptySplit(*dataset, Split::kTrain);
  return batches;
}

TrainBatches::TrainBatches(const Dataset* dataset, const Options& options)
    : dataset_(dataset), options_(options) {
  if (dataset->is_running()) max_seq_ = options.context_length;
  for (int64_t i = 0; i < dataset->num_documents(Split::kTrain); ++i) {
    if (dataset->prompt_size(Split::kTrain, i) >= options.context_length) continue;
    documents_.push_back(i);
    const auto tokens = static_cast<int64_t>(dataset->document(Split::kTrain, i).size());
    max_seq_ = std::max(max_seq_, DocumentSeq(tokens, options.context_length));
  }
  rows_.resize(static_cast<size_t>(options.batch_size));
  if (!options.keep_order) order_.resize(documents_.size());
}

Batch TrainBatches::MakeBatch() const { return Reserved(options_.batch_size, max_seq_); }

void TrainBatches::Fill(int64_t index, Batch* batch) {
  PLUMB_CHECK(index >= 0, "batches are counted from 0");
  if (dataset_->is_running()) {
    FillWindows(index, batch);
  } else {
    FillDocuments(index, batch);
  }
}

absl::Status TrainBatches::TryFill(int64_t index, Batch* batch) {
  Fill(index, batch);
  return dataset_->read_status();
}

int64_t TrainBatches::GetDocument(int64_t sequence) {
  const auto n = static_cast<int64_t>(documents_.size());
  const int64_t epoch = sequence / n;
  if (options_.keep_order) return documents_[static_cast<size_t>(sequence % n)];
  if (epoch != epoch_) {
    // This is Permutation, without its allocation.
    const RngStream stream(options_.seed, "document-order", static_cast<uint64_t>(epoch));
    std::copy(documents_.begin(), documents_.end(), order_.begin());
    for (size_t i = order_.size() - 1; i > 0; --i) {
      std::swap(order_[i], order_[stream.Below(i, i + 1)]);
    }
    epoch_ = epoch;
  }
  return order_[static_cast<size_t>(sequence % n)];
}

void TrainBatches::FillDocuments(int64_t index, Batch* batch) {
  int64_t longest = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    rows_[i] = GetDocument(index * options_.batch_size + static_cast<int64_t>(i));
    const auto document = dataset_->document(Split::kTrain, rows_[i]);
    longest = std::max(longest,
                       DocumentSeq(static_cast<int64_t>(document.size()), options_.context_length));
  }
  Reset(options_.batch_size, longest, options_.padding, batch);
  for (size_t i = 0; i < rows_.size(); ++i) {
    PutDocument(*dataset_, Split::kTrain, rows_[i], static_cast<int64_t>(i), batch);
  }
}

void TrainBatches::FillWindows(int64_t index, Batch* batch) const {
  const int64_t length = options_.context_length;
  const int64_t starts = dataset_->num_tokens(Split::kTrain) - length;
  const int64_t step = index / options_.micro_batches;
  const int64_t first_row = index % options_.micro_batches * options_.batch_size;
  const int64_t rows_of_step = options_.micro_batches * options_.batch_size;
  const RngStream stream(options_.seed, "window", static_cast<uint64_t>(step));
  Reset(options_.batch_size, options_.context_length, options_.padding, batch);
  for (int64_t row = 0; row < options_.batch_size; ++row) {
    const int64_t before = batch->valid_targets;
    for (int draw = 0; draw < kMaxDraws && batch->valid_targets == before; ++draw) {
      const auto number = static_cast<uint64_t>(first_row + row + draw * rows_of_step);
      const auto start = static_cast<int64_t>(stream.Below(number, static_cast<uint64_t>(starts)));
      PutWindow(*dataset_, Split::kTrain, start, length, 0, row, batch);
    }
  }
}

absl::StatusOr<EvalBatches> EvalBatches::Create(const Dataset* dataset, Split split,
                                                const Options& options) {
  PLUMB_RETURN_IF_ERROR(CheckSizes(options.batch_size, options.context_length));
  if (options.stride < 0 || options.stride > options.context_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a stride must be 1 to context_length ", options.context_length, ", not ", options.stride));
  }
  if (options.stride > 0 && !dataset->is_running()) {
    return absl::InvalidArgumentError(
        absl::StrCat(dataset->name(),
                     ": a stride is for running text; these are documents, each "
                     "of which is read from its beginning"));
  }
  EvalBatches batches(dataset, split, options);
  if (batches.num_targets() == 0) return EmptySplit(*dataset, split);
  return batches;
}

EvalBatches::EvalBatches(const Dataset* dataset, Split split, const Options& options)
    : dataset_(dataset),
      split_(split),
      context_length_(options.context_length),
      stride_(options.stride > 0 ? options.stride : options.context_length),
      padding_(options.padding) {
  if (dataset->is_running()) {
    num_targets_ = dataset->num_targets(split);
    num_inputs_ = std::max<int64_t>(dataset->num_tokens(split) - 1, 0);
    // The first window has context_length inputs, each later one a stride of new ones.
    const int64_t rest = std::max<int64_t>(num_inputs_ - context_length_, 0);
    num_sequences_ = num_inputs_ > 0 ? 1 + CeilDiv(rest, stride_) : 0;
    max_seq_ = std::min(num_inputs_, context_length_);
  } else {
    num_sequences_ = dataset->num_documents(split);
    for (int64_t i = 0; i < num_sequences_; ++i) {
      const int64_t tokens = static_cast<int64_t>(dataset->document(split, i).size());
      const int64_t seq = DocumentSeq(tokens, context_length_);
      num_targets_ += std::max<int64_t>(seq - dataset->prompt_size(split, i), 0);
      max_seq_ = std::max(max_seq_, seq);
    }
  }
  rows_ = std::min(options.batch_size, num_sequences_);
}

Batch EvalBatches::MakeBatch() const { return Reserved(rows_, max_seq_); }

absl::Status EvalBatches::TryFill(int64_t index, Batch* batch) const {
  Fill(index, batch);
  return dataset_->read_status();
}

int64_t EvalBatches::size() const { return CeilDiv(num_sequences_, rows_); }

void EvalBatches::Fill(int64_t index, Batch* batch) const {
  PLUMB_CHECK(index >= 0 && index < size(), "the split has such a batch");
  const int64_t first = index * rows_;
  const int64_t count = std::min(rows_, num_sequences_ - first);
  if (dataset_->is_running()) {
    Reset(rows_, max_seq_, padding_, batch);
    for (int64_t row = 0; row < count; ++row) {
      const int64_t window = first + row, begin = window * stride_;
      PutWindow(*dataset_, split_, begin, std::min(context_length_, num_inputs_ - begin),
                window > 0 ? context_length_ - stride_ : 0, row, batch);
    }
    return;
  }
  int64_t longest = 0;
  for (int64_t row = 0; row < count; ++row) {
    const int64_t tokens = static_cast<int64_t>(dataset_->document(split_, first + row).size());
    longest = std::max(longest, DocumentSeq(tokens, context_length_));
  }
  Reset(rows_, longest, padding_, batch);
  for (int64_t row = 0; row < count; ++row) {
    PutDocument(*dataset_, split_, first + row, row, batch);
  }
}

void MaskTokens(const TokenMasking& masking, absl::string_view purpose, int64_t first_sequence,
                Batch* batch) {
  batch->valid_targets = 0;
  for (int64_t row = 0; row < batch->batch; ++row) {
    const RngStream stream(masking.seed, purpose, static_cast<uint64_t>(first_sequence + row));
    int32_t* const tokens = batch->tokens.data() + row * batch->seq;
    int32_t* const targets = batch->targets.data() + row * batch->seq;
    int64_t left = std::count_if(tokens, tokens + batch->seq,
                                 [&](int32_t token) { return IsChoosable(masking, token); });
    const double share = masking.share * static_cast<double>(left);
    int64_t wanted = std::min(left, std::max<int64_t>(1, std::llround(share)));
    batch->valid_targets += wanted;
    // Selection sampling (Knuth, volume 2, 3.4.2, algorithm S): all sets of `wanted` tokens are
    // equally likely.
    for (int64_t t = 0; t < batch->seq; ++t) {
      targets[t] = -1;
      if (!IsChoosable(masking, tokens[t])) continue;
      const auto draw = static_cast<uint64_t>(t);
      if (stream.Uniform(kDraws * draw) * static_cast<double>(left--) >=
          static_cast<double>(wanted)) {
        continue;
      }
      --wanted;
      targets[t] = tokens[t];
      tokens[t] = Replacement(masking, stream, draw, tokens[t]);
    }
  }
}

}  // namespace plumb
