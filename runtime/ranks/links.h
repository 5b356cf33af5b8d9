// SPDX-License-Identifier: Apache-2.0
// Measures the speed of a job's messages, for `plumb doctor`.
#ifndef PLUMB_RUNTIME_RANKS_LINKS_H_
#define PLUMB_RUNTIME_RANKS_LINKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/ranks/communicator.h"

namespace plumb {

// Speed of the link between two ranks, from ping-pong messages.
struct LinkSpeed {
  int a = 0, b = 0;
  double latency_seconds = 0;   // one way, message of 8 bytes; median of 100
  double bytes_per_second = 0;  // one way, messages of 1 MiB; median of 9
};

// Measures, one after another, the link between the first two ranks of every host that has several,
// and links between the first ranks of hosts: all pairs of up to 8 hosts, or, for more hosts, only
// those with rank 0's host. `hosts` is indexed by rank. Returns the same on all ranks. Collective.
absl::StatusOr<std::vector<LinkSpeed>> MeasureLinks(Communicator* ranks,
                                                    const std::vector<std::string>& hosts);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_RANKS_LINKS_H_
