// SPDX-License-Identifier: Apache-2.0
// BucketPlan: how ranks share the sums of gradients: buckets of whole parameters that lie side by
// side in the flat buffers, each with the rank that owns it: adds its gradients, and, where the
// optimizer is sharded, keeps its states and updates it. A function of the layout and the number of
// ranks alone, so that every rank has the same. A value.
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
    size_t first = 0, end = 0;  // parameters
    ElementRange range;         // theirs, with the padding after each
    int owner = 0;
  };
  std::vector<Bucket> buckets;

  // Buckets of a MiB of gradients, or of one parameter that is larger; smaller where there would be
  // fewer than two for each rank. The owners' bytes differ by as little as whole buckets let them.
  static BucketPlan Of(const ParameterLayout& layout, int ranks);

  std::vector<bool> OwnedBy(int rank) const;  // by parameter
  int64_t ElementsOf(int rank) const;         // that it owns

  // The buckets in the order in which a pass of `program`, whose outputs are "grad." and the names
  // of the layout, is done with them: the order in which they are sent.
  struct Ready {
    size_t node;    // after which it is
    size_t bucket;  // index
  };
  std::vector<Ready> ReadyIn(const Executable& program, const ParameterLayout& layout) const;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_BUCKET_PLAN_H_
