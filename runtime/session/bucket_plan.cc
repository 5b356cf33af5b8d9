// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/bucket_plan.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "runtime/base/tensor_type.h"

namespace plumb {
namespace {

constexpr int64_t kBucketElements = (int64_t{1} << 20) / SizeOf(DType::kF32);

}  // namespace

BucketPlan BucketPlan::Of(const ParameterLayout& layout, int ranks) {
  BucketPlan plan;
  const int64_t enough = std::min(kBucketElements, layout.size / (2 * ranks));
  const size_t n = layout.entries.size();
  for (size_t i = 0; i < n; ++i) {
    const int64_t begin = layout.entries[i].begin;
    const int64_t end = i + 1 < n ? layout.entries[i + 1].begin : layout.size;
    if (plan.buckets.empty() || end - begin >= enough ||
        plan.buckets.back().range.size() >= enough) {
      plan.buckets.push_back({i, i, {begin, begin}, 0});
    }
    plan.buckets.back().end = i + 1;
    plan.buckets.back().range.end = end;
  }
  // Assigns the largest buckets first, each to the rank that owns the fewest elements.
  std::vector<size_t> order(plan.buckets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&plan](size_t a, size_t b) {
    return plan.buckets[a].range.size() > plan.buckets[b].range.size();
  });
  std::vector<int64_t> owned(static_cast<size_t>(ranks), 0);
  for (const size_t i : order) {
    const auto least = std::min_element(owned.begin(), owned.end());
    plan.buckets[i].owner = static_cast<int>(least - owned.begin());
    *least += plan.buckets[i].range.size();
  }
  return plan;
}

int64_t BucketPlan::CountElements(int rank) const {
  int64_t elements = 0;
  for (const Bucket& bucket : buckets) {
    if (bucket.owner == rank) elements += bucket.range.size();
  }
  return elements;
}

std::vector<BucketPlan::Ready> BucketPlan::ReadyIn(const Executable& program,
                                                   const ParameterLayout& layout) const {
  std::vector<Ready> order;
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].range.size() == 0) continue;
    Ready ready = {0, b};
    for (size_t i = buckets[b].first; i < buckets[b].end; ++i) {
      if (layout.entries[i].is_frozen()) continue;
      ready.node =
          std::max(ready.node, program.NodeOfOutput(absl::StrCat("grad.", layout.entries[i].name)));
    }
    order.push_back(ready);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Ready& a, const Ready& b) { return a.node < b.node; });
  return order;
}

}  // namespace plumb
