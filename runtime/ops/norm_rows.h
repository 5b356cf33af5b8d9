// SPDX-License-Identifier: Apache-2.0
// The host's side of the norm plugin ABI (plugins/abi/plumb/norm_plugin.h), shared by the ops on
// norms: the partition of rows, the checks of operands, and the partial gradients of parameters.
// Private to the module.
#ifndef PLUMB_RUNTIME_OPS_NORM_ROWS_H_
#define PLUMB_RUNTIME_OPS_NORM_ROWS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "plumb/norm_plugin.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/graph/op.h"
#include "runtime/kernels/simd/element_tasks.h"
#include "runtime/ops/sum_rows.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

const NormInstance& GetNormInstance(const Attrs& attrs);

// -- Shape rules

// Fails unless the instance is a cross-row norm, or is none, as `cross_row` requires.
absl::Status CheckNormKind(const NormInstance& instance, bool cross_row);
// Fails unless input i is f32 or bf16 and its last dimension is a multiple of the instance's, or of
// the instance's total over all heads.
absl::Status CheckNormRows(const OpTypes& types, size_t i, absl::string_view name,
                           const NormInstance& instance);
// Fails unless the inputs from `first` on are the instance's parameters and `more` others.
absl::Status CheckNormParams(const OpTypes& types, size_t first, const NormInstance& instance,
                             size_t more = 0);
// Indices of the inputs after the parameters of a row-wise norm (ABI 1.1), in this order. Each is
// present if the instance needs it; else it is kNone.
struct NormExtras {
  // `first` is the index of the first parameter.
  NormExtras(const NormInstance& instance, size_t first);
  static constexpr size_t kNone = ~size_t{0};

  size_t x2 = kNone;         // like x; may be absent in norm_grad
  size_t positions = kNone;  // i32, one per token
  size_t step = kNone;       // f32[1]
  size_t count = 0;
};
// Checks parameters and extras, for rows of type `x`. has_x2: x2 is present.
absl::Status CheckNormOperands(const OpTypes& types, size_t first, const NormInstance& instance,
                               const TensorType& x, bool has_x2);
// Fails unless input i has the type, or is absent if it is not `wanted`.
absl::Status CheckWanted(const OpTypes& types, size_t i, absl::string_view name, bool wanted,
                         const TensorType& type);
// Returns [rows, saved_per_row].
TensorType NormSavedType(const TensorType& x, const NormInstance& instance);

// -- Rows

// The partition of a call's rows. Chunks are the unit of summation of parameter gradients and
// statistics. Tasks, the unit of scheduling, are several adjacent chunks. Both depend on the shape
// only.
struct NormPartition {
  // `max_chunks` is NormInstance's, for a backward call.
  NormPartition(int64_t rows_in, int64_t dim, int64_t max_chunks = 0)
      : rows(rows_in),
        chunk_rows(std::max<int64_t>(
            8, CeilDiv(rows, max_chunks == 0 ? 64 : std::min<int64_t>(64, max_chunks)))),
        chunks(CeilDiv(rows, chunk_rows)),
        tasks(TaskCount(chunks, 8 * rows * dim)) {}

  Range Rows(Range of_chunks) const {
    return {of_chunks.begin * chunk_rows, std::min(rows, of_chunks.end * chunk_rows)};
  }
  Range TaskChunks(int64_t task) const { return TaskRange(chunks, tasks, task); }
  int64_t rows_per_task() const { return std::min(rows, CeilDiv(chunks, tasks) * chunk_rows); }

  int64_t rows;
  int64_t chunk_rows;
  int64_t chunks;
  int64_t tasks;
};

// Returns the rows of a block that stays in the L1 cache between two passes over it.
inline int64_t NormBlockRows(int64_t dim) { return std::max<int64_t>(1, 8192 / dim); }

// Calls body(begin, end) -> status for each row block of a range; stops at the first failure.
template <class Body>
absl::Status ForEachRowBlock(Range rows, int64_t block, const Body& body) {
  for (int64_t begin = rows.begin; begin < rows.end; begin += block) {
    absl::Status status = body(begin, std::min(rows.end, begin + block));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Calls body(task) -> status for all tasks. Returns the first failure in their order. Requires:
// tasks <= 64, which TaskCount guarantees.
template <class Body>
absl::Status RunTasks(int64_t tasks, int threads, const Body& body) {
  if (tasks == 1) return body(int64_t{0});
  std::array<absl::Status, 64> status;
  ParallelFor(tasks, threads,
              [&](int64_t task) { status[static_cast<size_t>(task)] = body(task); });
  for (absl::Status& s : status) {
    if (!s.ok()) return std::move(s);
  }
  return absl::OkStatus();
}

// -- Calls

// The buffer of a call for the plugin's error message.
class CallErrorText {
 public:
  explicit CallErrorText(plumb_norm_call* call) {
    text_[0] = '\0';
    call->err = text_;
    call->err_cap = sizeof(text_);
  }

 private:
  char text_[256];
};

// The context of a call's rows: positions, sequences and step. Immutable.
class NormContext {
 public:
  NormContext(const TensorType& x, const NormInstance& instance, const NormExtras& extras);

  // Returns a context that is valid as long as this and `in`, the inputs of the node.
  plumb_norm_context At(const void* const* in) const;

 private:
  const NormExtras extras_;
  std::vector<int64_t> offsets_;  // empty: x is not [batch, tokens, ..]
  plumb_norm_context context_{};
};

// -- Gradients of parameters

// The partial gradients of an instance's parameters: zeroed memory for each chunk of rows, added up
// in the order of the chunks. They are stored in `memory`, bytes() of a kernel's scratch.
// Immutable.
class NormPartialGradients {
 public:
  NormPartialGradients(const NormInstance& instance, int64_t chunks);

  bool empty() const { return params_.empty(); }
  int64_t bytes() const { return chunks_ * (partial_bytes_ + pointer_bytes_); }

  // Returns a chunk's zeroed gradients: the `dparams` of a call.
  void* const* Zeroed(char* memory, int64_t chunk) const;
  // Sets out[i], or with `add` increases it, by the sum over all chunks.
  void Sum(const char* memory, void* const* out, bool add, int threads) const;
  // Sets out[i] = 0.
  void ZeroSums(void* const* out) const;

 private:
  struct Param {
    int64_t n;
    int64_t offset;  // in bytes, in a chunk's partials
    ElementTasks sum;
  };

  int64_t chunks_;
  SumRowsFns sum_rows_;
  std::vector<Param> params_;
  int64_t partial_bytes_ = 0;  // size of all parameters of one chunk
  int64_t pointer_bytes_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_NORM_ROWS_H_
