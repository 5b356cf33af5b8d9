// SPDX-License-Identifier: Apache-2.0
// Chains: groups the nodes of a section into chains, each of which is drawn down one column: a
// chain per stream, from its start to its end, and chains for branches. Stateless. Part of
// picture/layout.h.
#ifndef PLUMB_RUNTIME_PICTURE_CHAINS_H_
#define PLUMB_RUNTIME_PICTURE_CHAINS_H_

#include <string>
#include <vector>

#include "runtime/picture/flow.h"

namespace plumb {

struct Chain {
  std::vector<int> nodes;   // in the order of the data
  int stream = -1;          // index of the stream that owns the column, or -1
  bool ends_early = false;  // another chain continues in the column below
};

struct Chains {
  std::vector<Chain> chains;
  // Indexed by node; -1 for none.
  std::vector<int> chain_of, previous, next;
};

Chains MakeChains(const FlowSection& section, const std::vector<std::string>& streams);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_CHAINS_H_
