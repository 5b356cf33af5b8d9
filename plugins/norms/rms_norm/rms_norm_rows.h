// One configuration of the norm and its kernels, shared by the plugin's two files. Private to it.
#ifndef PLUMB_PLUGINS_NORMS_RMS_NORM_ROWS_H_
#define PLUMB_PLUGINS_NORMS_RMS_NORM_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "plumb/norm_plugin.h"

enum class Gain { kNone, kWeight, kOnePlusWeight };

// Rows [r0, r1) of a call, forward or backward; `residual` is null without the extension.
using RowsFunction = void (*)(const plumb_norm_instance& instance, const plumb_norm_call& call,
                              const plumb_residual_call* residual, int64_t r0, int64_t r1);
struct Kernels {
  RowsFunction forward[3], backward[3];  // float, bf16, double
};

struct plumb_norm_instance {
  size_t dim;
  double eps;
  Gain gain;
  plumb_tensor_def weight;
  Kernels kernels;  // for this machine's instruction set
};

// The kernels for this machine's instruction set.
Kernels KernelsFor(Gain gain);

#endif  // PLUMB_PLUGINS_NORMS_RMS_NORM_ROWS_H_
