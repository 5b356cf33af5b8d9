// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/host_batch_source.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb::capi {

absl::Status HostBatchSource::CheckIds(absl::string_view name, const int32_t* ids, int64_t n,
                                       int64_t micro_batch, int32_t min) const {
  const int32_t* const wrong =
      std::find_if(ids, ids + n, [&](int32_t id) { return id < min || id >= vocabulary_; });
  if (wrong == ids + n) return absl::OkStatus();
  const int64_t at =
      fill_ == nullptr ? micro_batch * rows_ * max_seq_ + (wrong - ids) : wrong - ids;
  return absl::InvalidArgumentError(absl::StrCat(name, ": id ", *wrong, " at ", at,
                                                 " is not in the vocabulary of ", vocabulary_,
                                                 min < 0 ? ", nor -1" : ""));
}

absl::Status HostBatchSource::Check(const int32_t* inputs, const int32_t* targets, int64_t seq,
                                    int64_t micro_batch) const {
  const int64_t n = rows_ * seq;
  PLUMB_RETURN_IF_ERROR(CheckIds("inputs", inputs, n, micro_batch, kind_.pads ? -1 : 0));
  for (int64_t i = 1; kind_.pads && i < n; ++i) {
    if (i % seq == 0 || inputs[i - 1] >= 0 || inputs[i] < 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("inputs: micro-batch ", micro_batch, ": id ",
                                                   inputs[i], " at ", i,
                                                   " comes after -1, the end of its row"));
  }
  if (!kind_.has_targets) return absl::OkStatus();
  return CheckIds("targets", targets, n, micro_batch, -1);
}

absl::Status HostBatchSource::Set(const int32_t* inputs, const int32_t* targets) {
  fill_ = nullptr;
  inputs_ = inputs;
  targets_ = targets;
  const int64_t n = rows_ * max_seq_;
  for (int64_t i = 0; i < micro_batches_; ++i) {
    PLUMB_RETURN_IF_ERROR(Check(inputs + i * n, targets + i * n, max_seq_, i));
  }
  return absl::OkStatus();
}

void HostBatchSource::Set(plumb_micro_batch_fn fill, void* user) {
  fill_ = fill;
  user_ = user;
}

Batch HostBatchSource::MakeBatch() const {
  Batch batch;
  batch.batch = rows_;
  SetLength(max_seq_, &batch);
  return batch;
}

void HostBatchSource::SetLength(int64_t seq, Batch* batch) const {
  const auto size = static_cast<size_t>(rows_ * seq);
  batch->tokens.resize(size);
  batch->targets.resize(size);
  if (batch->seq == seq) return;
  batch->seq = seq;
  batch->positions.resize(size);
  for (int64_t row = 0; row < rows_; ++row) {
    const auto begin = batch->positions.begin() + row * seq;
    std::iota(begin, begin + seq, 0);
  }
}

void HostBatchSource::Fill(int64_t index, Batch* batch) {
  const int64_t n = rows_ * max_seq_;
  const int64_t at = index % micro_batches_ * n;
  SetLength(max_seq_, batch);
  std::copy_n(inputs_ + at, n, batch->tokens.begin());
  std::copy_n(targets_ + at, n, batch->targets.begin());
  batch->valid_targets = n - std::count(targets_ + at, targets_ + at + n, -1);
}

absl::Status HostBatchSource::TryFill(int64_t index, Batch* batch) {
  if (fill_ == nullptr) {
    Fill(index, batch);
    return absl::OkStatus();
  }
  const int64_t micro_batch = index % micro_batches_;
  const auto all = static_cast<size_t>(rows_ * max_seq_);
  batch->tokens.resize(all);
  batch->targets.resize(all);
  int64_t seq = max_seq_;
  if (fill_(user_, micro_batch, batch->tokens.data(), batch->targets.data(), &seq) != 0) {
    return absl::CancelledError("the callback has no micro-batch");
  }
  if (seq < 1 || seq > max_seq_) {
    return absl::InvalidArgumentError(
        absl::StrCat("seq: must be in 1..", max_seq_, ", micro-batch ", micro_batch, " has ", seq));
  }
  SetLength(seq, batch);
  const int64_t n = rows_ * seq;
  batch->valid_targets = n - std::count(batch->targets.begin(), batch->targets.end(), -1);
  return Check(batch->tokens.data(), batch->targets.data(), seq, micro_batch);
}

}  // namespace plumb::capi
