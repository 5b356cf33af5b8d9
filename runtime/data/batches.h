// SPDX-License-Identifier: Apache-2.0
// Batch sources over a Dataset: random sequences for training, and all sequences of a split in
// order for evaluation. The content of a batch is a pure function of its index, so a resumed run
// sees the same batches as an unbroken one, and no position in the data has to be saved. MaskTokens
// makes inputs and targets of masked language modelling.
//
// Both classes borrow the Dataset, which must outlive them.
#ifndef PLUMB_RUNTIME_DATA_BATCHES_H_
#define PLUMB_RUNTIME_DATA_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/data/data.h"

namespace plumb {

// A batch of sequences, row-major [batch, seq]. Rows shorter than the longest end in padding: token
// 0, or -1 if the options say so, and target -1. Padding comes last in its row, so in a causal
// model no real position attends to it; only norms with statistics over tokens see it.
struct Batch {
  int64_t batch = 0;
  int64_t seq = 0;
  int64_t valid_targets = 0;       // number of targets that are not -1
  std::vector<int32_t> tokens;     // inputs
  std::vector<int32_t> targets;    // next token of each input; -1: not part of the loss
  std::vector<int32_t> positions;  // 0, 1, 2, ... in every row

  // Memory in bytes of this batch, and of one with capacity for `rows` rows of `max_seq` tokens.
  int64_t bytes() const {
    const size_t ids = tokens.capacity() + targets.capacity() + positions.capacity();
    return static_cast<int64_t>(ids * sizeof(int32_t));
  }
  static int64_t Bytes(int64_t rows, int64_t max_seq) {
    return 3 * rows * max_seq * static_cast<int64_t>(sizeof(int32_t));
  }
};

// Source of a training session's batches.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Returns a batch with capacity for any that Fill produces.
  virtual Batch MakeBatch() const = 0;
  // Writes batch `index` into `*batch`, which MakeBatch returned. Allocates nothing.
  // Requires: index >= 0.
  virtual void Fill(int64_t index, Batch* batch) = 0;
  // Does the same for a source that can fail.
  virtual absl::Status TryFill(int64_t index, Batch* batch) {
    Fill(index, batch);
    return absl::OkStatus();
  }
  virtual int64_t max_seq() const = 0;  // maximum seq of any batch
};

// Batches for training. Thread-compatible (Fill caches the order of one epoch).
class TrainBatches : public BatchSource {
 public:
  struct Options {
    int64_t batch_size = 1;
    int64_t micro_batches = 1;   // number of micro-batches per step
    int64_t context_length = 0;  // maximum number of inputs of a sequence
    uint64_t seed = 1;
    bool keep_order = false;  // keep the documents in the order of the file in every epoch
    int32_t padding = 0;      // token of padding; -1 for bidirectional models
  };
  // Errors: kInvalidArgument if the training split has no target, if a text is shorter than a
  // window of context_length + 1 tokens (the message states both), or if a size is invalid.
  static absl::StatusOr<TrainBatches> Create(const Dataset* dataset, const Options& options);

  Batch MakeBatch() const override;

  // `index` counts micro-batches over the whole run (step * micro_batches + micro-step, steps from
  // 0). Row i is sequence s = index * batch_size + i of the run, and row s mod (micro_batches *
  // batch_size) of its step, so the sequences of a step do not depend on how it is divided.
  //   documents: sequence s is document s mod n of epoch s / n, whose order is
  //     Permutation(RngStream(seed, "document-order", epoch), n), for the n documents whose prompt
  //     is shorter than context_length. The inputs are the begin token and the document, the
  //     targets are the document without its prompt and the end token, both truncated to
  //     context_length. seq is the length of the longest row.
  //   text: a window of context_length inputs that starts at RngStream(seed, "window",
  //     step).Below(row of the step, n - context_length), for n tokens. seq is context_length. A
  //     window in which a mask leaves no target is drawn again, up to 100 times.
  void Fill(int64_t index, Batch* batch) override;
  // Does the same. Fails if the dataset could not be read.
  absl::Status TryFill(int64_t index, Batch* batch) override;

  int64_t max_seq() const override { return max_seq_; }

 private:
  TrainBatches(const Dataset* dataset, const Options& options);
  int64_t GetDocument(int64_t sequence);
  void FillDocuments(int64_t index, Batch* batch);
  void FillWindows(int64_t index, Batch* batch) const;

  const Dataset* dataset_;
  Options options_;
  int64_t max_seq_ = 0;
  int64_t epoch_ = -1;              // epoch of order_
  std::vector<int64_t> documents_;  // documents that have targets
  std::vector<int64_t> order_;      // the same in the epoch's order; empty with keep_order
  std::vector<int64_t> rows_;       // document of each row
};

// Every sequence of a split once, in the order of the file, so that the mean of the losses weighted
// by valid_targets is the exact loss over the split. Immutable, thread-safe.
//   documents: the same sequences as in training, also truncated to context_length.
//   text: windows of context_length, the last one shorter; every token but the first is a target
//     exactly once. Without overlap, the first input of a window has no context. With a stride,
//     windows overlap: each begins `stride` tokens after the previous one, and tokens that the
//     previous one predicted serve only as context. So all but the first tokens of the text are
//     predicted from at least context_length - stride tokens of context (Baevski & Auli 2018,
//     "Adaptive Input Representations", section 4.3: a context window).
class EvalBatches {
 public:
  struct Options {
    int64_t batch_size = 1;
    int64_t context_length = 0;
    int64_t stride = 0;   // for text: 1..context_length; 0: context_length, no overlap
    int32_t padding = 0;  // see TrainBatches::Options
  };
  // Errors: kInvalidArgument if the split has nothing to predict, if a size is invalid, or if
  // documents have a stride.
  static absl::StatusOr<EvalBatches> Create(const Dataset* dataset, Split split,
                                            const Options& options);

  Batch MakeBatch() const;
  // Writes batch `index` into `*batch`, which MakeBatch returned. All batches have the same number
  // of rows; the last one ends with rows of padding. Allocates nothing.
  // Requires: 0 <= index < size().
  void Fill(int64_t index, Batch* batch) const;
  // Does the same. Fails if the dataset could not be read.
  absl::Status TryFill(int64_t index, Batch* batch) const;

  int64_t size() const;  // number of batches
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_targets() const { return num_targets_; }
  int64_t rows() const { return rows_; }  // min(batch_size, num_sequences)
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
  int64_t num_inputs_ = 0;  // of a text: all its tokens but the last
};

// Settings of masked language modelling (BERT; Devlin et al. 2018, section 3.1, task 1).
struct TokenMasking {
  uint64_t seed = 1;
  double share = 0.15;                  // fraction of a sequence's tokens that are chosen
  double masked = 0.8, random = 0.1;    // fractions of the chosen; the rest keeps its token
  int32_t mask_token = 0;               // replacement of the masked ones
  int64_t vocab_size = 0;               // random tokens are drawn from [0, vocab_size)
  std::vector<int32_t> special_tokens;  // tokens that are never chosen
};

// Chooses max(1, round(share * n)) of the n tokens in each row that are neither padding (-1) nor
// special, makes them the row's only targets, and replaces them. The choice and the replacements
// are a function of the stream (seed, purpose, number of the sequence); row r has the number
// first_sequence + r.
void MaskTokens(const TokenMasking& masking, absl::string_view purpose, int64_t first_sequence,
                Batch* batch);

// Purposes for training and for validation data, whose masks do not depend on the step.
inline constexpr char kTrainingMasks[] = "masked-tokens";
inline constexpr char kEvaluationMasks[] = "masked-tokens-evaluation";

}  // namespace plumb

#endif  // PLUMB_RUNTIME_DATA_BATCHES_H_
