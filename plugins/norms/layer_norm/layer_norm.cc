// layer_norm: y = gamma (x - mu) / sigma + beta, Ba, Kiros & Hinton 2016, "Layer Normalization",
// arXiv:1607.06450, eq. 4, with the biased variance and eps inside the root. `affine: false` leaves
// gamma and beta out (OLMo 1), `bias: false` beta alone.
//
// With <a> the mean of a over the row, mu = <x>, r = (<(x - mu)^2> + eps)^(-1/2), h = (x - mu) r:
//     y = gamma h + beta
// Let u = dy gamma, the gradient of h. As dmu/dx_j = 1/dim and dr/dx_j = -r^3 (x_j - mu) / dim,
//     dx_j = r (u_j - <u>) + sum_i(u_i (x_i - mu)) dr/dx_j = r (u_j - <u> - h_j <u h>)
//     dgamma = sum over rows of dy h,   dbeta = sum over rows of dy
// forward() keeps mu and r for each row; backward() reads x again and makes h from it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>

#include "layer_norm_rows.h"

PLUMB_NORM_NOTE("layer_norm");

namespace {

enum Attribute { kEps, kAffine, kBias, kAttributeCount };
constexpr plumb_attr_def Attr(const char* name, const char* doc, uint32_t type,
                              plumb_attr_value def) {
  return {name, doc, type, 0, 0, 1, def, nullptr};
}
const plumb_attr_def kAttributes[kAttributeCount] = {
    Attr("eps", "Added to the variance before the root.", PLUMB_ATTR_F64, {1e-5, 0, nullptr}),
    Attr("affine", "Whether there are a gain and a bias.", PLUMB_ATTR_BOOL, {0, 1, nullptr}),
    Attr("bias", "Whether there is a bias beside the gain.", PLUMB_ATTR_BOOL, {0, 1, nullptr}),
};

plumb_tensor_def VectorParam(const char* name, const char* doc, uint32_t dim, uint32_t init) {
  return {name, doc, 0, 1, {dim, 0, 0, 0}, init, 0, 0, 0, /*lr_scale=*/1, /*offset=*/0};
}

plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value* values,
                    plumb_norm_instance** out, char* err, size_t cap) {
  if (!(values[kEps].f >= 0 && values[kEps].f <= 1)) {  // also NaN
    std::snprintf(err, cap, "eps is %g, must be in 0..1", values[kEps].f);
    return PLUMB_INVALID_ARGUMENT;
  }
  plumb_norm_instance* instance = new (std::nothrow) plumb_norm_instance();
  if (instance == nullptr) return PLUMB_RESOURCE_EXHAUSTED;
  const bool affine = values[kAffine].i != 0, bias = values[kBias].i != 0;
  instance->dim = dim;
  instance->eps = values[kEps].f;
  instance->affine = !affine ? Affine::kNone : bias ? Affine::kWeightAndBias : Affine::kWeight;
  instance->params[0] = VectorParam("weight", "The gain gamma.", dim, PLUMB_INIT_ONES);
  instance->params[1] = VectorParam("bias", "The bias beta.", dim, PLUMB_INIT_ZEROS);
  instance->kernels = KernelsFor(instance->affine);
  *out = instance;
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* instance) { delete instance; }

plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = static_cast<uint32_t>(instance->affine);
  out->params = instance->params;
  out->saved_per_row = 2;
  out->backward_needs = PLUMB_BWD_X;
  return PLUMB_OK;
}

bool Offered(uint32_t dtype) { return dtype == 1 || dtype == 2 || dtype == 4; }  // all three

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
    "layer_norm",
    "LayerNorm",
    "1.1.0",
    "plumb",
    "Apache-2.0",
    "y = gamma (x - mean) / sqrt(var + eps) + beta; Ba, Kiros & Hinton 2016, arXiv:1607.06450.",
    PLUMB_NORM_INPLACE | PLUMB_NORM_DX_ALIAS_DY | PLUMB_NORM_NAN_ISOLATED |
        PLUMB_NORM_SCALE_INVARIANT | PLUMB_NORM_SHIFT_INVARIANT,
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
