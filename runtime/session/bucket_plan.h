// SPDX-License-Identifier: Apache-2.0
// BucketPlan: the partition of the gradients into buckets of consecutive parameters of the flat
// buffers. Each bucket has an owner, the rank that sums its gradients. A pure function of the
// layout and the number of ranks, so every rank computes the same plan. A value.
#ifndef PLUMB_RUNTIME_SESSION_BUCKET_PLAN_H_
#define PLUMB_RUNTIME_SESSION_BUCKET_PLAN_H_

#include <cstdint>
#include <vector>

#include "runtime/compile/executable.h"
#include "runtime/session/gradient_sums.h"
#include "runtime/session/parameter_store.h"

namespace plumb {

struct BucketPlan {
  struct Bucket {
    size_t first = 0, end = 0;  // parameters [first, end)
    ElementRange range;         // their elements, with the padding after each; empty: all frozen
    int owner = 0;
  };
  std::vector<Bucket> buckets;

  // Plans buckets of 1 MiB of gradients, or of one parameter if it is larger. Buckets are smaller
  // if there would be fewer than two for each rank. Buckets are assigned so that the owners' bytes
  // are nearly equal.
  static BucketPlan Of(const ParameterLayout& layout, int ranks);

  int64_t CountElements(int rank) const;  // elements that `rank` owns

  // Returns the buckets in the order in which a pass of `program` completes them, which is the
  // order in which they are sent. The outputs of the program are "grad." and the names of the
  // layout. Omits buckets of frozen parameters.
  struct Ready {
    size_t node;    // node that completes the bucket
    size_t bucket;  // index in `buckets`
  };
  std::vector<Ready> ReadyIn(const Executable& program, const ParameterLayout& layout) const;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_BUCKET_PLAN_H_
