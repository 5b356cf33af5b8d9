// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/aligned_buffer.h"

namespace plumb {
namespace {

constexpr int64_t kFloat = SizeOf(DType::kF32);

GemmShape GetShape(const GemmSpec& spec, const GemmResult& result) {
  int64_t k = 0;
  for (const GemmTerm& term : result.terms) k += term.k;
  return {spec.m, result.n, k, spec.transpose_a, spec.transpose_b, spec.operands};
}

std::vector<GemmShape> GetShapes(const GemmSpec& spec) {
  std::vector<GemmShape> shapes;
  for (const GemmResult& result : spec.results) shapes.push_back(GetShape(spec, result));
  return shapes;
}

int64_t Size(const Range& range) { return range.end - range.begin; }

// Returns the address of element [row, column] of a row-major matrix.
const void* At(const void* matrix, int64_t row, int64_t column, int64_t ld, DType dtype) {
  return static_cast<const char*>(matrix) + (row * ld + column) * SizeOf(dtype);
}

}  // namespace

Gemm::Gemm(GemmSpec spec, const GemmPolicy& policy)
    : spec_(std::move(spec)),
      epilogue_(SelectEpilogue(spec_.epilogue, spec_.activation, spec_.out)) {
  const std::vector<GemmShape> shapes = GetShapes(spec_);
  for (size_t r = 0; r < shapes.size(); ++r) {
    const GemmPlan plan = PlanGemm(shapes[r], policy);
    const GemmResult& result = spec_.results[r];
    const BlockProduct product(plan, spec_.operands, spec_.transpose_a, spec_.transpose_b);
    for (int64_t j = 0; j < plan.columns; ++j) {
      for (int64_t i = 0; i < plan.rows; ++i) {
        const Task task = {r, plan.GetRows(shapes[r], i), plan.GetColumns(shapes[r], j)};
        if (Size(task.rows) == 0 || Size(task.columns) == 0) continue;
        tasks_.push_back(task);
        const int64_t rows = Size(task.rows), columns = Size(task.columns);
        if (!StoresDirectly(result)) {
          sum_bytes_ = std::max(sum_bytes_, AlignUp(rows * columns * kFloat));
        }
        for (const GemmTerm& term : result.terms) {
          engine_bytes_ = std::max(engine_bytes_, product.scratch_bytes(rows, columns, term.k));
        }
      }
    }
    plans_.push_back(plan);
    products_.push_back(product);
  }
  // A thread's tasks are adjacent, so that the rows it writes are in its cache in the next op.
  std::stable_sort(tasks_.begin(), tasks_.end(),
                   [](const Task& x, const Task& y) { return x.rows.begin < y.rows.begin; });
  int64_t work = 0;
  for (const GemmShape& shape : shapes) work += shape.work();
  if (work >= kMaxSerialWork) slots_ = PlannedSlots(static_cast<int64_t>(tasks_.size()));
}

// Returns true if sums accumulate in the result's memory: the epilogue does not change them.
bool Gemm::StoresDirectly(const GemmResult& result) const {
  if (spec_.out != DType::kF32) return false;
  return spec_.epilogue == Epilogue::kStore ||
         (spec_.epilogue == Epilogue::kAdd && result.bias < 0);
}

absl::Status Gemm::Run(const void* const* in, void* const* out, void* scratch, int threads) const {
  if (tasks_.size() == 1) return RunTask(in, out, tasks_[0], static_cast<char*>(scratch));
  const auto run = [&](int64_t i, int slot) {
    return RunTask(in, out, tasks_[static_cast<size_t>(i)],
                   static_cast<char*>(scratch) + slot * slot_bytes());
  };
  return RunBlocks(static_cast<int64_t>(tasks_.size()), std::min(threads, slots_), run);
}

absl::Status Gemm::RunTask(const void* const* in, void* const* out, const Task& task,
                           char* scratch) const {
  const GemmResult& result = spec_.results[task.result];
  const int64_t rows = Size(task.rows), columns = Size(task.columns);
  const int64_t first = task.rows.begin * result.n + task.columns.begin;
  const bool direct = StoresDirectly(result);
  Sums sums =
      direct ? BeginSums(in, task, direct, static_cast<float*>(out[result.out]) + first, result.n)
             : BeginSums(in, task, direct, reinterpret_cast<float*>(scratch), columns);
  for (const GemmTerm& term : result.terms) {
    absl::Status status = AddTerm(in, term, task, sums, scratch + sum_bytes_);
    if (!status.ok()) return status;
    sums.initialized = true;
    sums.start = {};
  }
  if (direct) return absl::OkStatus();
  const int64_t offset = first * SizeOf(spec_.out);
  EpilogueArgs e{rows, columns, sums.at, sums.ld, nullptr, nullptr, nullptr, result.n};
  if (result.operand >= 0) e.operand = static_cast<const char*>(in[result.operand]) + offset;
  if (result.derivative >= 0) e.derivative = static_cast<char*>(out[result.derivative]) + offset;
  e.out = static_cast<char*>(out[result.out]) + offset;
  epilogue_(e);
  return absl::OkStatus();
}

// Initializes the accumulators with the bias, or with the addend if they are in the result's
// memory; the small engine reads it when it begins.
Gemm::Sums Gemm::BeginSums(const void* const* in, const Task& task, bool direct, float* at,
                           int64_t ld) const {
  const GemmResult& result = spec_.results[task.result];
  const float* from = nullptr;
  int64_t ld_from = 0;
  if (result.bias >= 0) {
    from = static_cast<const float*>(in[result.bias]) + task.columns.begin;
  } else if (direct && result.operand >= 0) {
    ld_from = result.n;
    from = static_cast<const float*>(in[result.operand]) + task.rows.begin * ld_from +
           task.columns.begin;
    if (from == at) return {at, ld, true, {}};
  }
  if (from == nullptr) return {at, ld, false, {}};
  if (products_[task.result].engine() == GemmEngine::kSmall) {
    return {at, ld, false, {from, ld_from}};
  }
  for (int64_t i = 0; i < Size(task.rows); ++i) {
    std::memcpy(at + i * ld, from + i * ld_from, static_cast<size_t>(Size(task.columns) * kFloat));
  }
  return {at, ld, true, {}};
}

absl::Status Gemm::AddTerm(const void* const* in, const GemmTerm& term, const Task& task,
                           const Sums& sums, char* scratch) const {
  const DType dtype = spec_.operands;
  const void* const a = spec_.transpose_a ? At(in[term.a], 0, task.rows.begin, term.lda, dtype)
                                          : At(in[term.a], task.rows.begin, 0, term.lda, dtype);
  const void* const b = spec_.transpose_b ? At(in[term.b], task.columns.begin, 0, term.ldb, dtype)
                                          : At(in[term.b], 0, task.columns.begin, term.ldb, dtype);
  return products_[task.result].Run(
      {spec_.transpose_a, spec_.transpose_b, Size(task.rows), Size(task.columns), term.k, a,
       term.lda, b, term.ldb, sums.initialized, sums.at, sums.ld},
      sums.start, scratch);
}

std::string Gemm::ToString() const {
  const std::vector<GemmShape> shapes = GetShapes(spec_);
  std::vector<std::string> lines;
  for (size_t r = 0; r < shapes.size(); ++r) lines.push_back(plans_[r].ToString(shapes[r]));
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  return absl::StrJoin(lines, "; ");
}

}  // namespace plumb
