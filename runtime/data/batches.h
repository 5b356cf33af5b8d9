// SPDX-License-Identifier: Apache-2.0
// Batches of sequences cut from a Dataset: random ones for training, all of a split in order for
// evaluation. Which sequences a batch holds is a pure function of its index, so a resumed run sees
// what the unbroken one would have seen, and nothing about the position in the data is saved.
//
// Both classes borrow the Dataset, which must outlive them.
#ifndef PLUMB_RUNTIME_DATA_BATCHES_H_
#define PLUMB_RUNTIME_DATA_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/data.h"

namespace plumb {

// Sequences side by side, row-major [batch, seq]. Rows that are shorter than the longest end in
// padding: token 0, or -1 where options say so, target -1. Padding comes after everything else in
// its row, so in a causal model no real position sees it, unless a norm takes statistics over
// tokens.
struct Batch {
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t valid_targets = 0;       // targets that are not -1
  std::vector<int32_t> tokens;     // inputs
  std::vector<int32_t> targets;    // the token after each input; -1: none, not part of the loss
  std::vector<int32_t> positions;  // 0, 1, 2, ... in every row

  // The memory of one, and of one with room for `rows` rows of `max_seq` tokens, in bytes.
  int64_t bytes() const {
    const size_t ids = tokens.capacity() + targets.capacity() + positions.capacity();
    return static_cast<int64_t>(ids * sizeof(int32_t));
  }
  static int64_t Bytes(int64_t rows, int64_t max_seq) {
    return 3 * rows * max_seq * static_cast<int64_t>(sizeof(int32_t));
  }
};

// Where a training session's batches come from.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // A batch with capacity for any that Fill makes.
  virtual Batch MakeBatch() const = 0;
  // Batch `index` >= 0 into one from MakeBatch. Allocates nothing.
  virtual void Fill(int64_t index, Batch* batch) = 0;
  // The same of a source that may have none.
  virtual absl::Status TryFill(int64_t index, Batch* batch) {
    Fill(index, batch);
    return absl::OkStatus();
  }
  virtual int64_t max_seq() const = 0;  // the longest seq of any batch
};

// Training batches. Thread-compatible (Fill keeps the order of one epoch).
class TrainBatches : public BatchSource {
 public:
  struct Options {
    int64_t batch_size = 1;
    int64_t micro_batches = 1;   // batches that make up one step
    int64_t context_length = 0;  // no sequence has more inputs
    uint64_t seed = 1;
    bool keep_order = false;  // documents in the order of the file in every epoch
    int32_t padding = 0;      // the token of padding: -1 for models that are bidirectional
  };
  // InvalidArgument when the training split is empty, when a text has no window of context_length +
  // 1 tokens (the message says how many are missing), and for sizes that cannot be.
  static absl::StatusOr<TrainBatches> Create(const Dataset* dataset, const Options& options);

  Batch MakeBatch() const override;

  // `index` counts micro-batches over the whole run (step * micro_batches + micro-step, steps from
  // 0). Row i is sequence s = index * batch_size + i of the run, and row s mod (micro_batches *
  // batch_size) of its step. So the sequences of a step do not depend on how it is divided.
  //   documents: sequence s is document s mod n of epoch s / n, whose order is
  //     Permutation(RngStream(seed, "document-order", epoch), n); its inputs are the begin
  //     token and the document, its targets the document and the end token, both cut to
  //     context_length. seq is the length of the longest row.
  //   text: a window of context_length inputs, start RngStream(seed, "window", step).Below(row of
  //     the step, n - context_length) of n tokens. seq is context_length.
  void Fill(int64_t index, Batch* batch) override;
  // Fails if the dataset could not be read.
  absl::Status TryFill(int64_t index, Batch* batch) override;

  int64_t max_seq() const override { return max_seq_; }

 private:
  TrainBatches(const Dataset* dataset, const Options& options);
  int64_t DocumentOf(int64_t sequence);
  void FillDocuments(int64_t index, Batch* batch);
  void FillWindows(int64_t index, Batch* batch) const;

  const Dataset* dataset_;
  Options options_;
  int64_t max_seq_;
  int64_t epoch_ = -1;          // whose order order_ holds
  std::vector<int64_t> order_;  // of documents; empty when the file's order is kept
  std::vector<int64_t> rows_;   // the document of each row
};

// Every sequence of a split, once, in the order of the file, so that the mean of the losses
// weighted with valid_targets is the exact loss over the split. Immutable, thread-safe.
//   documents: as in training (cut to context_length as there).
//   text: windows of context_length, the last one shorter; all tokens but the first are targets
//     exactly once. Side by side, the first token of a window has nothing before it. With a stride
//     windows overlap: each begins that many tokens after the one before, and what that one
//     predicted is only context in it, so that all but the first tokens of the text have at least
//     context_length - stride before them (Baevski & Auli 2018, "Adaptive Input Representations",
//     section 4.3: a context window).
class EvalBatches {
 public:
  struct Options {
    int64_t batch_size = 1;
    int64_t context_length = 0;
    int64_t stride = 0;   // of text: 1..context_length; 0: context_length, side by side
    int32_t padding = 0;  // as TrainBatches::Options
  };
  // InvalidArgument when the split has nothing to predict, for sizes that cannot be, and for a
  // stride of documents.
  static absl::StatusOr<EvalBatches> Create(const Dataset* dataset, Split split,
                                            const Options& options);

  Batch MakeBatch() const;
  // Batch `index` in [0, size()) into one from MakeBatch. All have the same number of rows, the
  // last one filled up with rows of padding. Allocates nothing.
  void Fill(int64_t index, Batch* batch) const;
  // The same; fails if the dataset could not be read.
  absl::Status TryFill(int64_t index, Batch* batch) const;

  int64_t size() const;  // batches
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_targets() const { return num_targets_; }
  int64_t rows() const { return rows_; }  // batch_size, or num_sequences when that is less
  int64_t max_seq() const { return max_seq_; }

 private:
  EvalBatches(const Dataset* dataset, Split split, const Options& options);

  const Dataset* dataset_;
  Split split_;
  int64_t context_length_;
  int64_t stride_;
  int32_t padding_;
  int64_t rows_;
  int64_t max_seq_ = 0;
  int64_t num_sequences_ = 0;
  int64_t num_targets_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_DATA_BATCHES_H_
