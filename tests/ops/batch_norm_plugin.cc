// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/batch_norm_plugin.h"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace plumb {
namespace {

// The instance. It is cast, because another test plugin defines plumb_norm_instance differently.
struct Batch {
  uint32_t dim;
  bool in_evaluation;
  plumb_tensor_def params[2];
  plumb_tensor_def buffers[3];
};
const Batch* Of(const plumb_norm_instance* instance) {
  return reinterpret_cast<const Batch*>(instance);
}

plumb_tensor_def Tensor(const char* name, uint32_t init, uint32_t dim) {
  plumb_tensor_def def{};
  def.name = name;
  def.doc = "";
  def.init = init;
  def.lr_scale = 1;
  def.ndim = dim > 0 ? 1 : 0;
  def.dims[0] = dim;
  return def;
}

template <bool kInEvaluation>
plumb_status Create(const plumb_host*, uint32_t dim, const plumb_attr_value*,
                    plumb_norm_instance** out, char*, size_t) {
  *out = reinterpret_cast<plumb_norm_instance*>(
      new Batch{dim,
                kInEvaluation,
                {Tensor("gain", PLUMB_INIT_ONES, dim), Tensor("bias", PLUMB_INIT_ZEROS, dim)},
                {Tensor("mean", PLUMB_INIT_ZEROS, dim), Tensor("variance", PLUMB_INIT_ONES, dim),
                 Tensor("backwards", PLUMB_INIT_ZEROS, 0)}});
  return PLUMB_OK;
}

void Destroy(plumb_norm_instance* instance) { delete reinterpret_cast<Batch*>(instance); }

plumb_status Layout(const plumb_norm_instance* instance, plumb_norm_layout* out) {
  const Batch* batch = Of(instance);
  out->tensor_stride = sizeof(plumb_tensor_def);
  out->n_params = 2;
  out->params = batch->params;
  if (!batch->in_evaluation) {
    out->n_buffers = 3;
    out->buffers = batch->buffers;
  }
  out->saved_per_row = batch->in_evaluation ? 1 : 0;
  out->saved_per_call = 4 * batch->dim;     // mean, 1 / deviation, mean of dy, mean of dy x'
  out->partial_elems = 1 + 2 * batch->dim;  // rows; mean and sum of squares, or two sums
  out->backward_needs = PLUMB_BACKWARD_READS_X;
  out->scratch_bytes_per_row = sizeof(double);
  return PLUMB_OK;
}

constexpr double kEps = 1e-3;
constexpr double kMomentum = 0.25;

// The statistics that a call normalizes with.
template <class T>
struct Numbers {
  Numbers(const plumb_norm_call* call, uint32_t dim) : dim_(dim) {
    const T* saved = static_cast<const T*>(call->call_saved);
    mean_ = saved != nullptr ? saved : static_cast<const T*>(call->buffers[0]);
    inverse_ = saved != nullptr ? saved + dim : nullptr;
    variance_ = saved != nullptr ? nullptr : static_cast<const T*>(call->buffers[1]);
  }
  T Inverse(uint32_t j) const {
    return inverse_ != nullptr ? inverse_[j] : 1 / std::sqrt(variance_[j] + static_cast<T>(kEps));
  }
  T Normalized(const T* x, uint32_t j) const { return (x[j] - mean_[j]) * Inverse(j); }

  uint32_t dim_;
  const T *mean_, *inverse_, *variance_;
};

template <class T>
plumb_status ForwardAs(const Batch* batch, const plumb_norm_call* call, int64_t r0, int64_t r1) {
  const T* gain = static_cast<const T*>(call->params[0]);
  const T* bias = static_cast<const T*>(call->params[1]);
  const Numbers<T> numbers(call, batch->dim);
  for (int64_t r = r0; r < r1; ++r) {
    const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, r);
    T* y = PLUMB_ROW(T, call->y, call->y_pitch, r);
    static_cast<double*>(call->scratch)[r - r0] = 0;
    for (uint32_t j = 0; j < batch->dim; ++j) {
      y[j] = numbers.Normalized(x, j) * gain[j] + bias[j];
    }
    if (batch->in_evaluation && (call->flags & PLUMB_CALL_TRAIN) != 0) {
      *PLUMB_ROW(T, call->saved, call->saved_pitch, r) = x[0];
    }
  }
  return PLUMB_OK;
}

template <class T>
plumb_status BackwardAs(const Batch* batch, const plumb_norm_call* call, int64_t r0, int64_t r1) {
  const T* gain = static_cast<const T*>(call->params[0]);
  T* dbias = static_cast<T*>(call->dparams[1]);
  const Numbers<T> numbers(call, batch->dim);
  const T* mean_dy = static_cast<const T*>(call->call_saved) + 2 * batch->dim;
  const T* mean_dyx = mean_dy + batch->dim;
  for (int64_t r = r0; r < r1; ++r) {
    const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, r);
    const T* dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, r);
    T* dx = PLUMB_ROW(T, call->dx, call->dx_pitch, r);
    if (batch->in_evaluation && *PLUMB_CONST_ROW(T, call->saved, call->saved_pitch, r) != x[0]) {
      std::snprintf(call->err, call->err_cap, "row %lld was not saved", static_cast<long long>(r));
      return PLUMB_STATUS_INTERNAL;
    }
    for (uint32_t j = 0; j < batch->dim; ++j) {
      dbias[j] += dy[j];
      dx[j] = gain[j] * numbers.Inverse(j) *
              (dy[j] - mean_dy[j] - numbers.Normalized(x, j) * mean_dyx[j]);
    }
  }
  return PLUMB_OK;
}

template <class T>
plumb_status PartialAs(const Batch* batch, uint32_t phase, const plumb_norm_call* call, int64_t r0,
                       int64_t r1, T* partial) {
  const uint32_t dim = batch->dim;
  T *a = partial + 1, *b = a + dim;
  partial[0] = static_cast<T>(r1 - r0);
  for (int64_t r = r0; r < r1; ++r) {
    const T* x = PLUMB_CONST_ROW(T, call->x, call->x_pitch, r);
    for (uint32_t j = 0; j < dim; ++j) {
      if (phase == PLUMB_PHASE_FORWARD) {  // Welford
        const T difference = x[j] - a[j];
        a[j] += difference / static_cast<T>(r - r0 + 1);
        b[j] += difference * (x[j] - a[j]);
      } else {
        const T dy = PLUMB_CONST_ROW(T, call->dy, call->dy_pitch, r)[j];
        a[j] += dy;
        b[j] += dy * Numbers<T>(call, dim).Normalized(x, j);
      }
    }
  }
  return PLUMB_OK;
}

template <class T>
void CombineAs(const Batch* batch, uint32_t phase, T* acc, const T* partial) {
  const uint32_t dim = batch->dim;
  if (partial[0] == 0) return;
  const T rows = acc[0] + partial[0];
  for (uint32_t j = 1; j < dim + 1; ++j) {
    if (phase == PLUMB_PHASE_FORWARD) {  // Chan, Golub and LeVeque
      const T difference = partial[j] - acc[j];
      acc[j] += difference * partial[0] / rows;
      acc[j + dim] += partial[j + dim] + difference * difference * acc[0] * partial[0] / rows;
    } else {
      acc[j] += partial[j];
      acc[j + dim] += partial[j + dim];
    }
  }
  acc[0] = rows;
}

template <class T>
plumb_status FinalizeAs(const Batch* batch, uint32_t phase, const plumb_norm_call* call,
                        const T* acc) {
  const uint32_t dim = batch->dim;
  const T rows = acc[0];
  const T *a = acc + 1, *b = a + dim;
  T* saved = static_cast<T*>(call->call_saved) + (phase == PLUMB_PHASE_FORWARD ? 0 : 2 * dim);
  for (uint32_t j = 0; j < dim; ++j) {
    const T variance = b[j] / rows;
    saved[j] = phase == PLUMB_PHASE_FORWARD ? a[j] : a[j] / rows;
    saved[j + dim] =
        phase == PLUMB_PHASE_FORWARD ? 1 / std::sqrt(variance + static_cast<T>(kEps)) : b[j] / rows;
    if (phase == PLUMB_PHASE_BACKWARD) {
      static_cast<T*>(call->dparams[0])[j] += b[j];
    } else if (!batch->in_evaluation && (call->flags & PLUMB_CALL_TRAIN) != 0) {
      T* mean = static_cast<T*>(call->buffers[0]) + j;
      T* running = static_cast<T*>(call->buffers[1]) + j;
      *mean += static_cast<T>(kMomentum) * (a[j] - *mean);
      *running += static_cast<T>(kMomentum) * (variance - *running);
    }
  }
  if (phase == PLUMB_PHASE_BACKWARD && !batch->in_evaluation) *static_cast<T*>(call->buffers[2]) += 1;
  return PLUMB_OK;
}

// -- Entries by element type

plumb_status Forward(const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                     int64_t r1) {
  return call->dtype == PLUMB_DTYPE_F64 ? ForwardAs<double>(Of(instance), call, r0, r1)
                                  : ForwardAs<float>(Of(instance), call, r0, r1);
}

plumb_status Backward(const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                      int64_t r1) {
  return call->dtype == PLUMB_DTYPE_F64 ? BackwardAs<double>(Of(instance), call, r0, r1)
                                  : BackwardAs<float>(Of(instance), call, r0, r1);
}

plumb_status StatsPartial(const plumb_norm_instance* instance, uint32_t phase,
                          const plumb_norm_call* call, int64_t r0, int64_t r1, void* partial) {
  return call->dtype == PLUMB_DTYPE_F64
             ? PartialAs(Of(instance), phase, call, r0, r1, static_cast<double*>(partial))
             : PartialAs(Of(instance), phase, call, r0, r1, static_cast<float*>(partial));
}

void StatsCombine(const plumb_norm_instance* instance, uint32_t phase, const plumb_norm_call* call,
                  void* acc, const void* partial) {
  if (call->dtype == PLUMB_DTYPE_F64) {
    CombineAs(Of(instance), phase, static_cast<double*>(acc), static_cast<const double*>(partial));
  } else {
    CombineAs(Of(instance), phase, static_cast<float*>(acc), static_cast<const float*>(partial));
  }
}

plumb_status StatsFinalize(const plumb_norm_instance* instance, uint32_t phase,
                           const plumb_norm_call* call, void* acc) {
  return call->dtype == PLUMB_DTYPE_F64
             ? FinalizeAs(Of(instance), phase, call, static_cast<const double*>(acc))
             : FinalizeAs(Of(instance), phase, call, static_cast<const float*>(acc));
}

plumb_norm_plugin Table(const char* id, uint32_t flags) {
  plumb_norm_plugin table{};
  table.struct_size = sizeof(table);
  table.id = table.name = id;
  table.version = "1";
  table.vendor = table.license = table.doc = "";
  table.flags = flags;
  table.dtypes = PLUMB_DTYPE_F32 | PLUMB_DTYPE_F64;
  table.create = (flags & PLUMB_NORM_CROSS_ROW_EVAL) != 0 ? Create<true> : Create<false>;
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

const plumb_norm_plugin* BatchNorm() {
  static const plumb_norm_plugin table = Table("test.batch", PLUMB_NORM_CROSS_ROW);
  return &table;
}

const plumb_norm_plugin* BatchNormInEvaluationToo() {
  static const plumb_norm_plugin table =
      Table("test.batch_eval", PLUMB_NORM_CROSS_ROW | PLUMB_NORM_CROSS_ROW_EVAL);
  return &table;
}

}  // namespace plumb
