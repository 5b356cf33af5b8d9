// SPDX-License-Identifier: Apache-2.0
// Chains: the nodes of a section as lines that run down a column each: a chain for every stream,
// from where it comes in to where it leaves, and chains for what branches off. Pure. A part of
// picture/layout.h.
#ifndef PLUMB_RUNTIME_PICTURE_CHAINS_H_
#define PLUMB_RUNTIME_PICTURE_CHAINS_H_

#include <string>
#include <vector>

#include "runtime/picture/flow.h"

namespace plumb {

struct Chain {
  std::vector<int> nodes;   // in the order of the data
  int stream = -1;          // index of the stream whose column it has
  bool ends_early = false;  // the column is another chain's further down
};

struct Chains {
  std::vector<Chain> chains;
  // Of the nodes; -1 for none.
  std::vector<int> chain_of, previous, next;
};

Chains MakeChains(const FlowSection& section, const std::vector<std::string>& streams);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_CHAINS_H_
