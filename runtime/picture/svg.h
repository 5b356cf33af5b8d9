// ToSvg: the picture of a data flow as one SVG file without scripts, fonts or other files: light or
// dark as its viewer is, text as text. Pure and deterministic.
#ifndef PLUMB_RUNTIME_PICTURE_SVG_H_
#define PLUMB_RUNTIME_PICTURE_SVG_H_

#include <string>

#include "runtime/picture/flow.h"

namespace plumb {

std::string ToSvg(const FlowPicture& picture);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_SVG_H_
