// SPDX-License-Identifier: Apache-2.0
// HostBatchSource: a batch source with the micro-batches of one step, which a host has in memory or
// fills in by a callback. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_HOST_BATCH_SOURCE_H_
#define PLUMB_RUNTIME_CAPI_HOST_BATCH_SOURCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "plumb.h"
#include "runtime/data/batches.h"

namespace plumb::capi {

// Thread-compatible.
class HostBatchSource : public BatchSource {
 public:
  // `pads`: inputs may end in -1, padding. `has_targets`: targets are read.
  struct Kind {
    bool pads = false, has_targets = true;
  };
  HostBatchSource(int64_t rows, int64_t seq, int64_t micro_batches, int64_t vocabulary, Kind kind)
      : rows_(rows),
        max_seq_(seq),
        micro_batches_(micro_batches),
        vocabulary_(vocabulary),
        kind_(kind) {}

  // Sets all ids of the next step, [micro_batches, rows, seq]. Fails with kInvalidArgument for ids
  // outside the vocabulary, which would index beyond the embedding.
  absl::Status Set(const int32_t* inputs, const int32_t* targets);
  // Sets the callback that fills the next step.
  void Set(plumb_micro_batch_fn fill, void* user);

  Batch MakeBatch() const override;
  // REQUIRES: all ids were set, not a callback.
  void Fill(int64_t index, Batch* batch) override;
  // Fills a micro-batch from the ids or the callback. Errors: those of Set; kCancelled if the
  // callback has none.
  absl::Status TryFill(int64_t index, Batch* batch) override;
  int64_t max_seq() const override { return max_seq_; }

 private:
  // Checks a micro-batch with rows of `seq` ids.
  absl::Status Check(const int32_t* inputs, const int32_t* targets, int64_t seq,
                     int64_t micro_batch) const;
  absl::Status CheckIds(absl::string_view name, const int32_t* ids, int64_t n, int64_t micro_batch,
                        int32_t min) const;
  void SetLength(int64_t seq, Batch* batch) const;

  const int64_t rows_, max_seq_, micro_batches_, vocabulary_;
  const Kind kind_;
  const int32_t* inputs_ = nullptr;
  const int32_t* targets_ = nullptr;
  plumb_micro_batch_fn fill_ = nullptr;  // null: inputs_ and targets_
  void* user_ = nullptr;
};

}  // namespace plumb::capi

#endif  // PLUMB_RUNTIME_CAPI_HOST_BATCH_SOURCE_H_
