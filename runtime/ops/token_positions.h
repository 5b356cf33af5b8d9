// The positions that ops with a cache take. Stateless. Private to the module.
#ifndef PLUMB_RUNTIME_OPS_TOKEN_POSITIONS_H_
#define PLUMB_RUNTIME_OPS_TOKEN_POSITIONS_H_

#include <cstdint>

#include "absl/status/status.h"

namespace plumb {

// positions[batch, tokens] are inside a cache of `capacity` tokens, and consecutive within a row.
// What every run must find before it writes anything.
absl::Status CheckPositions(const int32_t* positions, int64_t batch, int64_t tokens,
                            int64_t capacity);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_TOKEN_POSITIONS_H_
