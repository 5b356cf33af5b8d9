// rms_norm: y = g * x / rms(x), Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", eq.
// 4, with eps inside the root as LLaMA has it. g is the weight, or 1 + weight (`unit_offset`, as in
// Gemma: weight decay and zero initial values then pull the gain towards 1), or 1 (`affine:
// false`).
//
// With <a> the mean of a over the row, r = (<x^2> + eps)^(-1/2), h = x r:
//     y = g h
// Let u = dy g, the gradient of h. As dr/dx_j = -r^3 x_j / dim,
//     dx_j = r u_j + sum_i(u_i x_i) dr/dx_j = r (u_j - h_j <u h>)
//     dweight = sum over rows of dy h        (g and weight differ by a constant)
// forward() keeps r for each row; backward() reads x again and makes h from it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>

#include "rms_norm_rows.h"

PLUMB_NORM_NOTE("rms_norm");

namespace {

enum Attribute { kEps, kAffine, kUnitOffset, kAttributeCount };

constexpr plumb_attr_def Bool(const char* name, const char* doc, int64_t value) {
  return {name, doc, PLUMB_ATTR_BOOL, 0, 0, 1, {0, value, nullptr}, nullptr};
}
const char kEpsDoc[] = "Added to the mean square before the root.";
const plumb_attr_def kAttributes[kAttributeCount] = {
    {"eps", kEpsDoc, PLUMB_ATTR_F64, 0, 0, 1, {1e-5, 0, nullptr}, nullptr},
    Bool("affine", "Whether there is a gain.", 1),
    Bool("unit_offset", "The gain is 1 + weight, and weight starts at 0 (Gemma).", 0),
};

plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value* values,
                    plumb_norm_instance** out, char* err, size_t cap) {
  const bool affine = values[kAffine].i != 0, unit_offset = values[kUnitOffset].i != 0;
  if (!(values[kEps].f >= 0 && values[kEps].f <= 1)) {  // for hosts that do not check, also NaN
    std::snprintf(err, cap, "eps is %g, must be in 0..1", values[kEps].f);
    return PLUMB_INVALID_ARGUMENT;
  }
  if (unit_offset && !affine) {
    std::snprintf(err, cap, "unit_offset is about the gain, and affine: false leaves none");
    return PLUMB_INVALID_ARGUMENT;
  }
  plumb_norm_instance* instance = new (std::nothrow) plumb_norm_instance();
  if (instance == nullptr) return PLUMB_RESOURCE_EXHAUSTED;
  instance->dim = dim;
  instance->eps = values[kEps].f;
  instance->gain = !affine ? Gain::kNone : unit_offset ? Gain::kOnePlusWeight : Gain::kWeight;
  instance->kernels = KernelsFor(instance->gain);
  plumb_tensor_def& weight = instance->weight;
  weight.name = "weight";
  weight.doc = unit_offset ? "The gain less 1." : "The gain.";
  weight.ndim = 1;
  weight.dims[0] = dim;
  weight.init = unit_offset ? PLUMB_INIT_ZEROS : PLUMB_INIT_ONES;
  weight.lr_scale = 1;
  weight.offset = unit_offset ? 1 : 0;
  *out = instance;
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* instance) { delete instance; }

plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = instance->gain == Gain::kNone ? 0 : 1;
  out->params = &instance->weight;
  out->saved_per_row = 1;
  out->backward_needs = PLUMB_BWD_X;
  return PLUMB_OK;
}

bool Offered(uint32_t dtype) { return dtype == 1 || dtype == 2 || dtype == 4; }

plumb_status ForwardSum(const plumb_norm_instance* instance, const plumb_norm_call* call,
                        const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  if (!Offered(call->dtype)) return PLUMB_UNIMPLEMENTED;
  instance->kernels.forward[call->dtype / 2](*instance, *call, residual, r0, r1);
  return PLUMB_OK;
}

plumb_status BackwardSum(const plumb_norm_instance* instance, const plumb_norm_call* call,
                         const plumb_residual_call* residual, int64_t r0, int64_t r1) {
  if (!Offered(call->dtype)) return PLUMB_UNIMPLEMENTED;
  instance->kernels.backward[call->dtype / 2](*instance, *call, residual, r0, r1);
  return PLUMB_OK;
}

plumb_status Forward(const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                     int64_t r1) {
  return ForwardSum(instance, call, nullptr, r0, r1);
}

plumb_status Backward(const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                      int64_t r1) {
  return BackwardSum(instance, call, nullptr, r0, r1);
}

const plumb_norm_residual kResidual = {sizeof(plumb_norm_residual), 0, ForwardSum, BackwardSum};

const void* GetExtension(const char* id) {
  return std::strcmp(id, PLUMB_EXT_RESIDUAL) == 0 ? &kResidual : nullptr;
}

const plumb_norm_plugin kNorm = {
    sizeof(plumb_norm_plugin),
    0,  // min_host_minor
    "rms_norm",
    "RMSNorm",
    "1.1.0",
    "plumb",
    "Apache-2.0",
    "y = g x / sqrt(mean(x^2) + eps), g = weight or 1 + weight; Zhang & Sennrich 2019, "
    "arXiv:1910.07467.",
    PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED |
        PLUMB_NORM_SCALE_INVARIANT,
    PLUMB_F32 | PLUMB_BF16 | PLUMB_F64,
    kAttributeCount,
    sizeof(plumb_attr_def),
    kAttributes,
    nullptr,  // available: every instruction set down to none has its code
    Create,
    Destroy,
    Layout,
    Forward,
    Backward,
    nullptr,  // stats_partial
    nullptr,  // stats_combine
    nullptr,  // stats_finalize
    GetExtension,
};

}  // namespace

const plumb_norm_plugin* plumb_norm_plugin_v1(uint32_t index) {
  return index == 0 ? &kNorm : nullptr;
}
