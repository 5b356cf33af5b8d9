// SPDX-License-Identifier: Apache-2.0
// How fast the messages of a job are: what `plumb doctor` says of its links.
#ifndef PLUMB_RUNTIME_RANKS_LINKS_H_
#define PLUMB_RUNTIME_RANKS_LINKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

// Between two ranks, by messages to and fro.
struct LinkSpeed {
  int a = 0, b = 0;
  double latency_seconds = 0;   // of a message of 8 bytes, one way: the median of 100
  double bytes_per_second = 0;  // in messages of 1 MiB, one way: the median of 9
};

// One link of every host that has several ranks, between the first two; and the links between
// hosts, each by its first rank: of all pairs of at most 8 hosts, else those of rank 0's. `hosts`:
// by rank. All ranks call it with the same; the result is everyone's. Links are measured one after
// the other.
absl::StatusOr<std::vector<LinkSpeed>> MeasureLinks(Communicator* ranks,
                                                    const std::vector<std::string>& hosts);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_LINKS_H_
