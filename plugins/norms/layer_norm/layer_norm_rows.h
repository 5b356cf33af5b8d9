// One configuration of the norm and its kernels, shared by the plugin's two files. Private to it.
#ifndef PLUMB_PLUGINS_NORMS_LAYER_NORM_ROWS_H_
#define PLUMB_PLUGINS_NORMS_LAYER_NORM_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "plumb/norm_plugin.h"

enum class Affine { kNone, kWeight, kWeightAndBias };  // as a number: the count of parameters

// Rows [r0, r1) of a call, forward or backward; `residual` is null without the extension.
using RowsFunction = void (*)(const plumb_norm_instance& instance, const plumb_norm_call& call,
                              const plumb_residual_call* residual, int64_t r0, int64_t r1);
struct Kernels {
  RowsFunction forward[3], backward[3];  // float, bf16, double
};

struct plumb_norm_instance {
  size_t dim;
  double eps;
  Affine affine;
  plumb_tensor_def params[2];  // weight, bias
  Kernels kernels;             // for this machine's instruction set
};

// The kernels for this machine's instruction set.
Kernels KernelsFor(Affine affine);

#endif  // PLUMB_PLUGINS_NORMS_LAYER_NORM_ROWS_H_
