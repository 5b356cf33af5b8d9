// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/gradient_sums.h"

#include "runtime/base/check.h"
#include "runtime/kernels/simd/optimizer.h"

namespace plumb {

GradientSums::GradientSums(const ParameterLayout& layout, int64_t units, const UnitRange& range)
    : layout_(layout),
      all_units_(units),
      range_(range),
      nodes_(MaximalNodes(units, range)),
      pass_(layout.size * SizeOf(DType::kF32)),
      next_(range.begin) {
  PLUMB_CHECK(range.size() > 0, "a rank has units");
  const int64_t kept = SumsToKeep(units, range);
  for (int64_t i = 0; i < kept; ++i) {
    stack_.emplace_back(layout.size * SizeOf(DType::kF32));
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const bool is_pass = i + 1 == nodes_.size() && UnitAt(range.end - 1).sums == 0;
    sums_.push_back(is_pass ? pass_.as<float>() : stack_[i].as<float>());
  }
}

GradientSums::Unit GradientSums::UnitAt(int64_t unit) const {
  const int64_t before = CountMaximalNodes(all_units_, {range_.begin, unit});
  const int64_t after = CountMaximalNodes(all_units_, {range_.begin, unit + 1});
  return {static_cast<size_t>(before), static_cast<int>(before + 1 - after)};
}

int64_t GradientSums::bytes() const {
  int64_t bytes = pass_.size();
  for (const AlignedBuffer& sum : stack_) bytes += sum.size();
  return bytes;
}

template <class Body>
void GradientSums::ForEachParameter(const ElementRange& part, const Body& body) const {
  for (size_t i = 0; i < layout_.entries.size(); ++i) {
    const ParameterLayout::Entry& entry = layout_.entries[i];
    if (entry.begin >= part.begin && entry.end <= part.end) body(i, entry);
  }
}

void GradientSums::AddTo(const float* from, const ElementRange& part, int threads, float* to,
                         double* squares) const {
  if (squares == nullptr) {
    Accumulate(from, to, part.size(), threads);
    return;
  }
  ForEachParameter(part, [&](size_t i, const ParameterLayout::Entry& entry) {
    const int64_t n = entry.end - entry.begin, at = entry.begin - part.begin;
    squares[i] = Accumulate(from + at, to + at, n, threads);
  });
}

void GradientSums::Fold(float* top, size_t below, int sums, const ElementRange& part, int threads,
                        double* squares) const {
  const float* from = top;
  for (int i = 0; i < sums; ++i) {
    float* const to = stack_[--below].as<float>();
    AddTo(from + part.begin, part, threads, to + part.begin, i + 1 == sums ? squares : nullptr);
    from = to;
  }
}

void GradientSums::Add(int threads) {
  const Unit unit = UnitAt(next_++);
  PLUMB_CHECK(next_ < range_.end, "the last unit is added by AddLast");
  const ElementRange all = {0, layout_.size};
  if (unit.sums == 0) {
    Copy(pass(), stack_[unit.below].as<float>(), layout_.size, threads);
  } else {
    Fold(pass(), unit.below, unit.sums, all, threads, nullptr);
  }
}

void GradientSums::AddLast(const ElementRange& part, int threads, double* squares) const {
  const Unit unit = UnitAt(range_.end - 1);
  if (unit.sums > 0) {
    Fold(pass(), unit.below, unit.sums, part, threads, squares);
  } else if (squares != nullptr) {
    ForEachParameter(part, [&](size_t i, const ParameterLayout::Entry& entry) {
      squares[i] = SumOfSquares(pass() + entry.begin, entry.end - entry.begin, threads);
    });
  }
}

}  // namespace plumb
