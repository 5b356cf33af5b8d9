// SPDX-License-Identifier: Apache-2.0
// LayOut: assigns the nodes of a section to columns and rows, and routes their wires. Stateless and
// deterministic.
//
// Each stream has its own column, which also contains the operations on the stream that bypass
// sublayers. Branches run down in columns to the right. A wire runs down in only one column: that
// of its source, that of its target, or one of its own. Horizontally it runs through the gap below
// its source's row, or within its target's row. No wire crosses a node, and two wires overlap only
// if they share a source or a target. Exception: with four or more streams that swap places in
// pairs, two wires may overlap.
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
    kStraight,  // straight down
    kFork,      // across below the source's row, then down in the target's column
    kMerge,     // down in the source's column, then across in the target's row
    kDetour,    // across, down in `column`, across
  };
  int from = 0, to = 0;
  size_t input = 0;  // index in the target's inputs
  Path path = Path::kStraight;
  int column = 0;   // column in which it runs down
  int channel = 0;  // channel of the gap below the source's row, from the top, if it runs there
};

struct FlowLayout {
  std::vector<FlowCell> cells;  // one per node
  std::vector<FlowWire> wires;  // one per input of each node
  std::vector<int> channels;    // number of channels in the gap below each row
};

// Lays out one section. `streams` are those of the whole picture, so that a stream has the same
// column in all sections: column 0 for the first, -1 for the next, and so on.
FlowLayout LayOut(const FlowSection& section, const std::vector<std::string>& streams);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_LAYOUT_H_
