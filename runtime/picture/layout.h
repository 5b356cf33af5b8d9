// SPDX-License-Identifier: Apache-2.0
// LayOut: where the nodes of a section stand and how their wires run, in columns and rows. Pure and
// deterministic.
//
// Every stream is a column of its own, and what happens to it on the way that passes no sublayer
// stands in that column. What branches off goes down in columns to the right. A wire runs down in
// one column only: in that of its source, of its target, or in one of its own; horizontally it runs
// through the gap behind its source's row, or within its target's row. No wire runs through a node,
// and no two lie on each other unless they come from one node or go to one; but of four streams and
// more that change places in pairs, two may.
#ifndef PLUMB_RUNTIME_PICTURE_LAYOUT_H_
#define PLUMB_RUNTIME_PICTURE_LAYOUT_H_

#include <string>
#include <vector>

#include "runtime/picture/flow.h"

namespace plumb {

struct FlowCell {
  int column = 0, row = 0;
};

struct FlowWire {
  enum class Path {
    kStraight,  // down
    kFork,      // across behind the source's row, then down in the target's column
    kMerge,     // down in the source's column, then across in the target's row
    kDetour,    // across, down in `column`, across
  };
  int from = 0, to = 0;
  size_t input = 0;  // which one of the target's
  Path path = Path::kStraight;
  int column = 0;   // in which it runs down
  int channel = 0;  // of the gap behind the source's row, for what runs there; from the top
};

struct FlowLayout {
  std::vector<FlowCell> cells;  // of the nodes
  std::vector<FlowWire> wires;  // a wire for each input of each node
  std::vector<int> channels;    // of the gap behind each row
};

// `streams`: all of the picture, so that a stream has the same column in all sections: the first 0,
// the next -1, and so on.
FlowLayout LayOut(const FlowSection& section, const std::vector<std::string>& streams);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_LAYOUT_H_
