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
  std::vector<int64_t> weights;  // elements of each bucket's parameters, also of frozen ones
  for (size_t i = 0; i < n; ++i) {
    const int64_t begin = layout.entries[i].begin;
    const int64_t end = i + 1 < n ? layout.entries[i + 1].begin : layout.size;
    const int64_t elements = layout.entries[i].shape.num_elements();
    if (plan.buckets.empty() || elements >= enough || weights.back() >= enough) {
      plan.buckets.push_back({i, i, {begin, begin}, 0});
      weights.push_back(0);
    }
    weights.back() += elements;
    plan.buckets.back().end = i + 1;
    plan.buckets.back().range.end = end;
  }
  // Assigns the largest buckets first, each to the rank that owns the fewest elements.
  std::vector<size_t> order(plan.buckets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto size_of = [&](size_t i) {
    const int64_t gradients = plan.buckets[i].range.size();
    return gradients > 0 ? gradients : weights[i];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&size_of](size_t a, size_t b) { return size_of(a) > size_of(b); });
  std::vector<int64_t> owned(static_cast<size_t>(ranks), 0), owned_frozen = owned;
  for (const size_t i : order) {
    std::vector<int64_t>& load = plan.buckets[i].range.size() > 0 ? owned : owned_frozen;
    const auto least = std::min_element(load.begin(), load.end());
    plan.buckets[i].owner = static_cast<int>(least - load.begin());
    *least += size_of(i);
  }
  return plan;
}

std::vector<bool> BucketPlan::OwnedBy(int rank) const {
  std::vector<bool> owned;
  for (const Bucket& bucket : buckets) owned.resize(bucket.end, bucket.owner == rank);
  return owned;
}

int64_t BucketPlan::ElementsOf(int rank) const {
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
