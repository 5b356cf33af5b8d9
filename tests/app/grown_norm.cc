// SPDX-License-Identifier: Apache-2.0
#include "tests/app/grown_norm.h"

#include <cmath>
#include <cstdio>

struct plumb_norm_instance {
  uint32_t dim;
  uint32_t heads;
  bool fails, aware, two_inputs;
  plumb_tensor_def gain;
};

namespace plumb {
namespace {

plumb_status Fill(const plumb_norm_instance* instance, const plumb_fill_call* call) {
  if (instance->fails) {
    std::snprintf(call->err, call->err_cap, "no values today");
    return PLUMB_STATUS_FAILED_PRECONDITION;
  }
  for (int64_t i = 0; i < call->elements; ++i) call->values[i] = FilledGain(call->seed, i);
  return PLUMB_OK;
}

template <bool kTwoInputs>
plumb_status Create(const plumb_host* host, uint32_t dim, const plumb_attr_value* values,
                    plumb_norm_instance** out, char*, size_t) {
  plumb_tensor_def gain{};
  gain.name = "gain";
  gain.doc = "";
  const uint32_t heads = PLUMB_HAS(plumb_host, host, heads) ? host->heads : 0;
  gain.ndim = heads > 0 ? 2 : 1;
  gain.dims[0] = heads > 0 ? heads : dim;
  gain.dims[1] = heads > 0 ? dim : 0;
  gain.init = PLUMB_INIT_FILL;
  gain.fill = Fill;
  gain.lr_scale = 1;
  *out = new plumb_norm_instance{dim, heads, values[0].i != 0, values[1].i != 0, kTwoInputs, gain};
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* instance) { delete instance; }

plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 1;
  out->params = &instance->gain;
  out->backward_needs = PLUMB_BACKWARD_READS_X | (instance->two_inputs ? PLUMB_BACKWARD_READS_X2 : 0);
  if (PLUMB_HAS(plumb_norm_layout, out, context_wants) && instance->aware) {
    out->context_wants = PLUMB_CONTEXT_POSITIONS | PLUMB_CONTEXT_STEP;
  }
  if (PLUMB_HAS(plumb_norm_layout, out, heads)) out->heads = instance->heads;
  return PLUMB_OK;
}

// Returns the offset of the gain of row `r`.
int64_t GainAt(const plumb_norm_instance& norm, int64_t r) {
  return norm.heads == 0 ? 0 : r % norm.heads * norm.dim;
}

// Returns the term that is added to the gain of row `r`.
double Added(const plumb_norm_instance& norm, const plumb_norm_call& c, int64_t r) {
  if (!norm.aware || !PLUMB_HAS(plumb_norm_call, &c, context) || c.context == nullptr) return 0;
  const plumb_norm_context& context = *c.context;
  double added = 0;
  if (context.positions != nullptr) added += context.positions[r / context.rows_per_token] / 8.0;
  if (context.step >= 0) added += static_cast<double>(context.step) / 16;
  return added;
}

template <class T>
void ForwardAs(const plumb_norm_instance& norm, const plumb_norm_call& c, int64_t r0, int64_t r1) {
  for (int64_t r = r0; r < r1; ++r) {
    const T* gain = static_cast<const T*>(c.params[0]) + GainAt(norm, r);
    const T* x = PLUMB_CONST_ROW(T, c.x, c.x_pitch, r);
    T* y = PLUMB_ROW(T, c.y, c.y_pitch, r);
    const T* x2 = norm.two_inputs ? PLUMB_CONST_ROW(T, c.x2, c.x2_pitch, r) : nullptr;
    const T added = static_cast<T>(Added(norm, c, r));
    for (uint32_t i = 0; i < c.dim; ++i) {
      const T other = x2 == nullptr ? 0 : std::tanh(x2[i]);
      y[i] = (gain[i] + added + other) * std::tanh(x[i]);
    }
  }
}

template <class T>
void BackwardAs(const plumb_norm_instance& norm, const plumb_norm_call& c, int64_t r0, int64_t r1) {
  const bool add = (c.flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  for (int64_t r = r0; r < r1; ++r) {
    const T* x = PLUMB_CONST_ROW(T, c.x, c.x_pitch, r);
    const T* gain = static_cast<const T*>(c.params[0]) + GainAt(norm, r);
    T* dgain = static_cast<T*>(c.dparams[0]) + GainAt(norm, r);
    const T* dy = PLUMB_CONST_ROW(T, c.dy, c.dy_pitch, r);
    T* dx = PLUMB_ROW(T, c.dx, c.dx_pitch, r);
    const T* x2 = norm.two_inputs ? PLUMB_CONST_ROW(T, c.x2, c.x2_pitch, r) : nullptr;
    T* dx2 = norm.two_inputs ? PLUMB_ROW(T, c.dx2, c.dx2_pitch, r) : nullptr;
    const T added = static_cast<T>(Added(norm, c, r));
    for (uint32_t i = 0; i < c.dim; ++i) {
      const T z = std::tanh(x[i]);
      const T other = x2 == nullptr ? 0 : std::tanh(x2[i]);
      const T d = dy[i] * (gain[i] + added + other) * (1 - z * z);
      if (x2 != nullptr) dx2[i] = dy[i] * z * (1 - other * other);
      dgain[i] += dy[i] * z;
      dx[i] = add ? dx[i] + d : d;
    }
  }
}

plumb_status Forward(const plumb_norm_instance* norm, const plumb_norm_call* c, int64_t r0,
                     int64_t r1) {
  if (c->dtype == PLUMB_DTYPE_BF16) return PLUMB_STATUS_UNIMPLEMENTED;
  c->dtype == PLUMB_DTYPE_F64 ? ForwardAs<double>(*norm, *c, r0, r1)
                        : ForwardAs<float>(*norm, *c, r0, r1);
  return PLUMB_OK;
}

plumb_status Backward(const plumb_norm_instance* norm, const plumb_norm_call* c, int64_t r0,
                      int64_t r1) {
  if (c->dtype == PLUMB_DTYPE_BF16) return PLUMB_STATUS_UNIMPLEMENTED;
  c->dtype == PLUMB_DTYPE_F64 ? BackwardAs<double>(*norm, *c, r0, r1)
                        : BackwardAs<float>(*norm, *c, r0, r1);
  return PLUMB_OK;
}

const plumb_attr_def kAttributes[] = {
    {"fails", "", PLUMB_ATTR_BOOL, 0, 0, 0, {0, 0, nullptr}, nullptr},
    {"aware", "", PLUMB_ATTR_BOOL, 0, 0, 0, {0, 0, nullptr}, nullptr},
};

plumb_norm_plugin Table(const char* id, bool two_inputs) {
  plumb_norm_plugin table{};
  table.struct_size = sizeof(table);
  table.min_host_minor = 1;
  table.id = id;
  table.name = table.version = table.vendor = table.license = table.doc = "";
  table.dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_F64;
  table.n_attrs = 2;
  table.attr_stride = sizeof(plumb_attr_def);
  table.attrs = kAttributes;
  table.flags = two_inputs ? PLUMB_NORM_TWO_INPUTS : 0;
  table.create = two_inputs ? Create<true> : Create<false>;
  table.destroy = Destroy;
  table.layout = Layout;
  table.forward = Forward;
  table.backward = Backward;
  return table;
}

}  // namespace

float FilledGain(uint64_t seed, int64_t i) {
  const uint64_t bits = (seed ^ static_cast<uint64_t>(i)) * 0x9e3779b97f4a7c15u;
  return 1 + static_cast<float>(bits >> 40) * 0x1p-24f;
}

const plumb_norm_plugin* GrownNorm() {
  static const plumb_norm_plugin table = Table("test.grown", false);
  return &table;
}

const plumb_norm_plugin* PairNorm() {
  static const plumb_norm_plugin table = Table("test.pair", true);
  return &table;
}

}  // namespace plumb
