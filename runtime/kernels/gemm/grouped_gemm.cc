// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/grouped_gemm.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"

namespace plumb {
namespace {

// Limits on the size of a block. A larger block needs less packing and more scratch.
constexpr int64_t kMinBlockRows = 64, kMaxBlockRows = 512, kMaxBlockColumns = 768;
// Blocks begin at multiples of these units, the register tile of oneDNN's AVX-512 kernel.
constexpr int64_t kGroupRowUnit = 8, kGroupColumnUnit = 48;
// Number of tasks that balances the threads of a machine; used if there are fewer groups.
constexpr int64_t kWantedTasks = 16;

// Returns the shape of a group's product if all groups had equally many rows.
GemmShape EqualGroup(const GroupedShape& groups, int64_t n, int64_t k, bool transpose_b,
                     DType operands) {
  return {CeilDiv(groups.rows, groups.groups), n, k, false, transpose_b, operands};
}

int64_t BlockRows(int64_t rows) {
  return std::clamp(CeilDiv(rows, kGroupRowUnit) * kGroupRowUnit, kMinBlockRows, kMaxBlockRows);
}

bool IsSerial(const GroupedShape& groups, int64_t n, int64_t k) {
  return groups.rows * n * k < kMaxSerialWork;
}

GemmPlan PlanColumns(const GroupedShape& groups, const GemmShape& shape, const GemmPolicy& policy) {
  GemmPlan plan = PlanGemm(shape, policy);
  plan.rows = 1;
  plan.column_unit = kGroupColumnUnit;
  plan.columns = CeilDiv(shape.n, kMaxBlockColumns);
  if (IsSerial(groups, shape.n, shape.k)) return plan;
  const int64_t wanted = CeilDiv(kWantedTasks, std::min(groups.groups, groups.rows));
  plan.columns =
      std::max(plan.columns, std::min(wanted, std::max<int64_t>(1, shape.n / kGroupColumnUnit)));
  return plan;
}

const void* ElementAt(const void* matrix, int64_t element, DType dtype) {
  return static_cast<const char*>(matrix) + element * SizeOf(dtype);
}
void* ElementAt(void* matrix, int64_t element, DType dtype) {
  return static_cast<char*>(matrix) + element * SizeOf(dtype);
}

}  // namespace

GroupedGemm::GroupedGemm(const GroupedShape& groups, int64_t n, int64_t k, bool transpose_b,
                         DType operands, DType out, const GemmPolicy& policy)
    : groups_(groups),
      shape_(EqualGroup(groups, n, k, transpose_b, operands)),
      out_(out),
      has_gemv_(transpose_b && UseGemv(1, n, k)),
      plan_(PlanColumns(groups, shape_, policy)),
      product_(plan_, operands, false, transpose_b),
      store_(SelectEpilogue(Epilogue::kStore, ActivationKind::kRelu, out)),
      tasks_(groups.groups, groups.rows, BlockRows(shape_.m)) {
  const int64_t rows = std::min(groups.rows, BlockRows(shape_.m));
  const int64_t columns = plan_.MaxColumns(shape_);
  if (out != DType::kF32) sum_bytes_ = AlignUp(rows * columns * SizeOf(DType::kF32));
  engine_bytes_ = product_.scratch_bytes(rows, columns, k);
  for (int64_t m = 1; has_gemv_ && m <= std::min(kMaxGemvRows, groups.rows); ++m) {
    gemvs_.emplace_back(m, n, k, operands, operands, out, /*may_pack=*/false);
    engine_bytes_ = std::max(engine_bytes_, AlignUp(gemvs_.back().scratch_bytes()));
  }
  if (!IsSerial(groups, n, k)) slots_ = PlannedSlots(tasks_.max_blocks() * plan_.columns);
}

absl::Status GroupedGemm::Run(const Operands& operands, void* scratch, int threads) const {
  const GroupTasks::List tasks = tasks_.Cut(operands.starts, scratch, [this](int64_t rows) {
    return IsGemv(rows) ? gemvs_[static_cast<size_t>(rows - 1)].tasks() : plan_.columns;
  });
  char* const slots = static_cast<char*>(scratch) + tasks_.scratch_bytes();
  return RunBlocks(tasks.size(), std::min(threads, slots_), [&](int64_t i, int slot) {
    const GroupTask task = tasks[i];
    char* const own = slots + slot * slot_bytes();
    if (!IsGemv(task.rows)) return RunBlock(operands, task, own);
    RunGemv(operands, task, own);
    return absl::OkStatus();
  });
}

void GroupedGemm::RunGemv(const Operands& o, const GroupTask& task, void* scratch) const {
  const int64_t n = shape_.n, k = shape_.k;
  const Gemv& gemv = gemvs_[static_cast<size_t>(task.rows - 1)];
  const GemvArgs args = gemv.Prepare(
      {ElementAt(o.a, task.begin * k, shape_.operands),
       ElementAt(o.b, task.group * n * k, shape_.operands),
       o.bias == nullptr ? nullptr : o.bias + task.group * n, ElementAt(o.c, task.begin * n, out_)},
      /*threads=*/1, scratch);
  gemv.RunTask(args, task.part);
}

absl::Status GroupedGemm::RunBlock(const Operands& o, const GroupTask& task, char* scratch) const {
  const int64_t n = shape_.n, k = shape_.k;
  const Range range = plan_.GetColumns(shape_, task.part);
  const int64_t columns = range.end - range.begin;
  if (columns == 0) return absl::OkStatus();
  void* const c = ElementAt(o.c, task.begin * n + range.begin, out_);
  const bool direct = out_ == DType::kF32;
  float* const sums = direct ? static_cast<float*>(c) : reinterpret_cast<float*>(scratch);
  const int64_t ld = direct ? n : columns;
  const float* bias = o.bias == nullptr ? nullptr : o.bias + task.group * n + range.begin;
  const bool accumulate = bias != nullptr && product_.engine() != GemmEngine::kSmall;
  for (int64_t i = 0; accumulate && i < task.rows; ++i) std::copy_n(bias, columns, sums + i * ld);
  const bool tb = shape_.transpose_b;
  const int64_t b = task.group * n * k + (tb ? range.begin * k : range.begin);
  absl::Status status = product_.Run(
      {false, tb, task.rows, columns, k, ElementAt(o.a, task.begin * k, shape_.operands), k,
       ElementAt(o.b, b, shape_.operands), tb ? k : n, accumulate, sums, ld},
      accumulate ? GemmStart() : GemmStart{bias, 0}, scratch + sum_bytes_);
  if (status.ok() && !direct) {
    store_({task.rows, columns, sums, ld, nullptr, nullptr, c, n});
  }
  return status;
}

std::string GroupedGemm::ToString() const {
  return absl::StrCat(groups_.groups, " groups of ", plan_.ToString(shape_),
                      has_gemv_ ? absl::StrCat("; GEMV of up to ", kMaxGemvRows, " rows") : "");
}

GroupedOuterGemm::GroupedOuterGemm(const GroupedShape& groups, int64_t m, int64_t n, DType operands,
                                   const GemmPolicy& policy)
    : groups_(groups),
      shape_{m, n, CeilDiv(groups.rows, groups.groups), true, false, operands},
      plan_(PlanGemm(shape_, policy)),
      product_(plan_, operands, true, false) {
  slot_bytes_ =
      product_.scratch_bytes(plan_.MaxRows(shape_), plan_.MaxColumns(shape_), groups.rows);
  if (!IsSerial(groups, m, n)) slots_ = PlannedSlots(groups.groups * plan_.tasks());
}

absl::Status GroupedOuterGemm::Run(const void* a, const void* b, const int32_t* starts, float* c,
                                   void* scratch, int threads) const {
  const int64_t m = shape_.m, n = shape_.n, each = plan_.tasks();
  return RunBlocks(groups_.groups * each, std::min(threads, slots_), [&](int64_t i, int slot) {
    const int64_t group = i / each, begin = starts[group], terms = starts[group + 1] - begin;
    const Range rows = plan_.GetRows(shape_, i % each / plan_.columns);
    const Range columns = plan_.GetColumns(shape_, i % each % plan_.columns);
    const int64_t height = rows.end - rows.begin, width = columns.end - columns.begin;
    if (height == 0 || width == 0) return absl::OkStatus();
    float* const to = c + (group * m + rows.begin) * n + columns.begin;
    for (int64_t r = 0; terms == 0 && r < height; ++r) std::fill_n(to + r * n, width, 0.0f);
    if (terms == 0) return absl::OkStatus();
    return product_.Run(
        {true, false, height, width, terms, ElementAt(a, begin * m + rows.begin, shape_.operands),
         m, ElementAt(b, begin * n + columns.begin, shape_.operands), n, false, to, n},
        GemmStart(), static_cast<char*>(scratch) + slot * slot_bytes_);
  });
}

std::string GroupedOuterGemm::ToString() const {
  return absl::StrCat(groups_.groups, " groups of ", plan_.ToString(shape_));
}

}  // namespace plumb
