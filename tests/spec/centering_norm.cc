// SPDX-License-Identifier: Apache-2.0
#include "tests/spec/centering_norm.h"

struct plumb_norm_instance {
  uint32_t dim;
  plumb_tensor_def buffers[2];
};

namespace plumb {
namespace {

plumb_tensor_def Buffer(const char* name, uint32_t ndim, uint32_t dim) {
  plumb_tensor_def def{};
  def.name = name;
  def.doc = "";
  def.ndim = ndim;
  def.dims[0] = dim;
  def.init = PLUMB_INIT_ZEROS;
  def.lr_scale = 1;
  return def;
}

plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value*,
                    plumb_norm_instance** out, char*, size_t) {
  *out = new plumb_norm_instance{dim, {Buffer("running_mean", 1, dim), Buffer("calls", 0, 0)}};
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* instance) { delete instance; }

plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_buffers = 2;
  out->buffers = instance->buffers;
  out->saved_per_call = instance->dim;
  out->partial_elems = instance->dim;
  return PLUMB_OK;
}

// Subtracts the mean: that of the call if its statistics were computed, else the running one.
void Center(const plumb_norm_call* call, const void* from, int64_t from_pitch, void* to,
            int64_t to_pitch, int64_t r0, int64_t r1) {
  const void* statistics = call->call_saved != nullptr ? call->call_saved : call->buffers[0];
  const float* mean = static_cast<const float*>(statistics);
  const bool add = (call->flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  for (int64_t r = r0; r < r1; ++r) {
    const float* in = PLUMB_CONST_ROW(float, from, from_pitch, r);
    float* out = PLUMB_ROW(float, to, to_pitch, r);
    for (uint32_t i = 0; i < call->dim; ++i) {
      const float centered = in[i] - mean[i];
      out[i] = add ? out[i] + centered : centered;
    }
  }
}

plumb_status Forward(const plumb_norm_instance*, const plumb_norm_call* c, int64_t r0, int64_t r1) {
  if (c->dtype != PLUMB_DTYPE_F32) return PLUMB_STATUS_UNIMPLEMENTED;
  Center(c, c->x, c->x_pitch, c->y, c->y_pitch, r0, r1);
  return PLUMB_OK;
}

// Computes dx = dy - mean(dy). The backward statistics have replaced those of x.
plumb_status Backward(const plumb_norm_instance*, const plumb_norm_call* c, int64_t r0,
                      int64_t r1) {
  if (c->dtype != PLUMB_DTYPE_F32) return PLUMB_STATUS_UNIMPLEMENTED;
  Center(c, c->dy, c->dy_pitch, c->dx, c->dx_pitch, r0, r1);
  return PLUMB_OK;
}

plumb_status StatsPartial(const plumb_norm_instance*, uint32_t phase, const plumb_norm_call* call,
                          int64_t r0, int64_t r1, void* partial) {
  if (call->dtype != PLUMB_DTYPE_F32) return PLUMB_STATUS_UNIMPLEMENTED;
  float* sum = static_cast<float*>(partial);
  const void* from = phase == PLUMB_PHASE_FORWARD ? call->x : call->dy;
  const int64_t pitch = phase == PLUMB_PHASE_FORWARD ? call->x_pitch : call->dy_pitch;
  for (int64_t r = r0; r < r1; ++r) {
    const float* row = PLUMB_CONST_ROW(float, from, pitch, r);
    for (uint32_t i = 0; i < call->dim; ++i) sum[i] += row[i];
  }
  return PLUMB_OK;
}

void StatsCombine(const plumb_norm_instance* instance, uint32_t, const plumb_norm_call*, void* acc,
                  const void* partial) {
  float* sum = static_cast<float*>(acc);
  const float* more = static_cast<const float*>(partial);
  for (uint32_t i = 0; i < instance->dim; ++i) sum[i] += more[i];
}

plumb_status StatsFinalize(const plumb_norm_instance*, uint32_t phase, const plumb_norm_call* call,
                           void* acc) {
  if (call->dtype != PLUMB_DTYPE_F32) return PLUMB_STATUS_UNIMPLEMENTED;
  const float* sum = static_cast<const float*>(acc);
  float* mean = static_cast<float*>(call->call_saved);
  for (uint32_t i = 0; i < call->dim; ++i) mean[i] = sum[i] / static_cast<float>(call->rows);
  if (phase != PLUMB_PHASE_FORWARD || (call->flags & PLUMB_CALL_TRAIN) == 0) return PLUMB_OK;
  float* running = static_cast<float*>(call->buffers[0]);
  for (uint32_t i = 0; i < call->dim; ++i) running[i] += (mean[i] - running[i]) / 2;
  *static_cast<float*>(call->buffers[1]) += 1;
  return PLUMB_OK;
}

plumb_norm_plugin Table(const char* id, uint32_t flags) {
  plumb_norm_plugin table{};
  table.struct_size = sizeof(table);
  table.id = table.name = id;
  table.version = "1";
  table.vendor = table.license = table.doc = "";
  table.flags = flags;
  table.dtypes = PLUMB_DTYPE_F32;
  table.attr_stride = sizeof(plumb_attr_def);
  table.create = Create;
  table.destroy = Destroy;
  table.layout = Layout;
  table.forward = Forward;
  table.backward = Backward;
  table.stats_partial = StatsPartial;
  table.stats_combine = StatsCombine;
  table.stats_finalize = StatsFinalize;
  return table;
}

}  // namespace

const plumb_norm_plugin* CenteringNorm() {
  static const plumb_norm_plugin table =
      Table("test.centering", PLUMB_NORM_CROSS_ROW | PLUMB_NORM_SHIFT_INVARIANT);
  return &table;
}

const plumb_norm_plugin* CenteringEvalNorm() {
  static const plumb_norm_plugin table =
      Table("test.centering_eval", PLUMB_NORM_CROSS_ROW | PLUMB_NORM_CROSS_ROW_EVAL);
  return &table;
}

}  // namespace plumb
