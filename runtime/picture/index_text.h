// IndexText: the index of a name in several layers as one text. Pure.
#ifndef PLUMB_RUNTIME_PICTURE_INDEX_TEXT_H_
#define PLUMB_RUNTIME_PICTURE_INDEX_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/picture/flow.h"

namespace plumb {

// What `indices` are in `layers`, which count from 0, as formulas write it, where `layer` counts
// from 1: "0..layer - 1" of {0, 0}, {0, 1}, {0, 2} in layers 0, 1, 2. "..." where it is no multiple
// of the layer. REQUIRES: as many of one as of the other, not none.
std::string IndexText(const std::vector<int64_t>& layers, const std::vector<FlowIndex>& indices);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_INDEX_TEXT_H_
