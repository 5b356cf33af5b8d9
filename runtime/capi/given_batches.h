// GivenBatches: the micro-batches of one step, where a host has them. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_GIVEN_BATCHES_H_
#define PLUMB_RUNTIME_CAPI_GIVEN_BATCHES_H_

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "runtime/data/batches.h"

namespace plumb::capi {

class GivenBatches : public BatchSource {
 public:
  GivenBatches(int64_t rows, int64_t seq, int64_t micro_batches)
      : rows_(rows), seq_(seq), micro_batches_(micro_batches) {}

  void Set(const int32_t* inputs, const int32_t* targets) {
    inputs_ = inputs;
    targets_ = targets;
  }

  Batch MakeBatch() const override {
    Batch batch;
    batch.batch = rows_;
    batch.seq = seq_;
    const auto size = static_cast<size_t>(rows_ * seq_);
    batch.tokens.resize(size);
    batch.targets.resize(size);
    batch.positions.resize(size);
    for (int64_t row = 0; row < rows_; ++row) {
      const auto begin = batch.positions.begin() + row * seq_;
      std::iota(begin, begin + seq_, 0);
    }
    return batch;
  }

  void Fill(int64_t index, Batch* batch) override {
    const int64_t n = rows_ * seq_;
    const int64_t at = index % micro_batches_ * n;
    std::copy_n(inputs_ + at, n, batch->tokens.begin());
    std::copy_n(targets_ + at, n, batch->targets.begin());
    batch->valid_targets = n - std::count(targets_ + at, targets_ + at + n, -1);
  }

  int64_t max_seq() const override { return seq_; }

 private:
  const int64_t rows_, seq_, micro_batches_;
  const int32_t* inputs_ = nullptr;
  const int32_t* targets_ = nullptr;
};

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_GIVEN_BATCHES_H_
