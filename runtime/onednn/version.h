// Which oneDNN the program runs with.
#ifndef PLUMB_RUNTIME_ONEDNN_VERSION_H_
#define PLUMB_RUNTIME_ONEDNN_VERSION_H_

#include <string>

namespace plumb {

std::string OneDnnVersion();  // "2.6.3"

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ONEDNN_VERSION_H_
