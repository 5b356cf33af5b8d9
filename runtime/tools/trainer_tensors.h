// A trainer's state, tensor by tensor, to and from safetensors files. Private to runtime/tools.
#ifndef PLUMB_RUNTIME_TOOLS_TRAINER_TENSORS_H_
#define PLUMB_RUNTIME_TOOLS_TRAINER_TENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "plumb.h"
#include "runtime/io/safetensors.h"

namespace plumb {

// `kind`: PLUMB_STATE_MODEL or PLUMB_STATE_OPTIMIZER. Nothing is copied: they are those of
// `trainer`, which must outlive them.
std::vector<TensorToWrite> StateTensors(const plumb_trainer* trainer, int32_t kind);

// Whether those of the optimizer that lie on other ranks could be read, up to now; else they are
// zeros, and this is why.
absl::Status CheckStatesWereHere(const plumb_trainer* trainer);

// Copies all of them from a file that has no others. What is missing, surplus or misshapen is
// listed whole in one error, and nothing is copied then.
absl::Status ReadState(const SafetensorsFile& file, plumb_trainer* trainer, int32_t kind);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_TRAINER_TENSORS_H_
